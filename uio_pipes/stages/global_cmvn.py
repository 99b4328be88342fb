"""``global_cmvn``: features normalized by the mean and variance of the corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

import torch

from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.cmvn import Cmvn, cmvn_of, read_cmvn


@dataclass(frozen=True)
class GlobalCmvn(OfStream):
    """Normalize ``feat`` by the mean and standard deviation of each bin over the whole corpus.

    Args:
        stats: path or URL of WeNet's ``global_cmvn`` (JSON) or of Kaldi's statistics (binary or text), which is
            read when a loader starts; or a dict with the content of WeNet's JSON. The command ``uio cmvn`` computes
            them.
        norm_var: whether to divide by the standard deviation; False only subtracts the mean. Default: True.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        ListError: when the loader starts, if the file cannot be used.
        PipelineError: while running, if ``feat`` has another number of bins.
    """

    name: ClassVar[str] = "global_cmvn"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    stats: str | os.PathLike[str] | Mapping[str, Any]
    norm_var: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.stats, (str, os.PathLike, Mapping))
        require(ok, self.name, "stats must be a path or a dict", self.stats, 'as in .global_cmvn("data/global_cmvn")')
        if isinstance(self.stats, Mapping):
            self.cmvn  # noqa: B018  wrong numbers fail now

    @cached_property
    def cmvn(self) -> Cmvn:
        return cmvn_of(self.stats) if isinstance(self.stats, Mapping) else read_cmvn(self.stats)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        self.cmvn  # noqa: B018  a bad file fails before the first utterance
        return super().build(source, lane, site)

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat = torch.as_tensor(sample.fields["feat"])
        mean, istd = map(torch.from_numpy, self.cmvn)
        if feat.shape[1] != len(mean):
            raise PipelineError(
                f"global_cmvn: the statistics are of {len(mean)} bins, the features of {sample.key} have "
                f"{feat.shape[1]}; compute statistics of these features, or features with as many bins"
            )
        centred = feat - mean
        sample.fields["feat"] = centred.mul_(istd) if self.norm_var else centred

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; fingerprints have a hash of the numbers instead of their path."""
        if not stable:
            return super().describe()
        digest = blake2b(self.cmvn.mean.tobytes() + self.cmvn.istd.tobytes(), digest_size=8).hexdigest()
        of = f", of={self.of!r}" if self.of else ""
        return f"{self.name}(stats={digest}, norm_var={self.norm_var}{of})"
