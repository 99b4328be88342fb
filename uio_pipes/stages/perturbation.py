"""The base of stages that change the waveform of some utterances, and not its length."""

from __future__ import annotations

from typing import ClassVar

import torch

from uio_pipes.audio.waveform import in_floats
from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import OfStream, PerUtterance
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.extra import functional, require_torchaudio


class Perturbation(OfStream):
    """A change of ``wav`` that keeps its shape and rate. Subclasses are frozen dataclasses with a ``probability``."""

    reads: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])

    probability: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.probability <= 1, self.name, "probability must be 0 to 1", self.probability, "try 0.5")

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        """Return another waveform of the same shape; ``waveform`` is float32 (C, S), not empty, and not written to."""
        raise NotImplementedError

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        wav = in_floats(fields["wav"])
        wanted = draws.uniform() < self.probability and wav.numel()
        fields["wav"] = self.change(wav, fields["sample_rate"], draws) if wanted else wav


class TorchaudioPerturbation(Perturbation):
    """One that runs on torchaudio, which is asked for when it is described, and imported when it is built."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_torchaudio(self.name)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        functional(self.name)
        return super().build(source, lane, site)

    def deferred(self) -> PerUtterance | None:
        return self  # though it has a ``build`` of its own
