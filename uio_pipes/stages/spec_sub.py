"""``spec_sub``: spans of frames replaced by earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample


@dataclass(frozen=True)
class SpecSub(OfStream):
    """Replace random spans of ``feat`` by earlier frames of the same utterance (SpecSub, Wu et al. 2021: U2++).

    As in WeNet, three numbers are drawn for each span, evenly: its start over all frames, its length (cut off at
    the end of the utterance), and how many frames earlier its substitute begins, from 0 to the start.

    Args:
        max_t: longest span in frames; the shortest is 1. Default: 20.
        num_t_sub: spans to replace. Default: 3.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_sub"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    max_t: int = 20
    num_t_sub: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_t >= 1, self.name, "max_t must be 1 frame or more", self.max_t, "WeNet's is 20")
        require(self.num_t_sub >= 0, self.name, "num_t_sub must be 0 or more", self.num_t_sub, "WeNet's is 3")

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat = torch.as_tensor(sample.fields["feat"])
        out, frames = feat.clone(), len(feat)
        for _ in range(self.num_t_sub):
            start = draws.below(frames)
            end = min(frames, start + 1 + draws.below(self.max_t))
            back = draws.below(start + 1)
            out[start:end] = feat[start - back : end - back]
        sample.fields["feat"] = out
