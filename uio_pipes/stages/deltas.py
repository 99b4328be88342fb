"""``deltas``: features with their differences over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.deltas import append_deltas


@dataclass(frozen=True)
class Deltas(OfStream):
    """Append to ``feat`` (T, F) its differences over time: (T, F · (order + 1)).

    Each order is the linear regression, over a few frames, of the order before, with frames at the edges repeated,
    equal to ``torchaudio.functional.compute_deltas``. Order 2 after ``mfcc`` gives Kaldi's usual MFCC + Δ + ΔΔ.

    Args:
        order: 1 appends Δ, 2 appends Δ and ΔΔ, and so on. Default: 2.
        win_length: frames of the regression, an odd number. Default: 5.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "deltas"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    order: int = 2
    win_length: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.order >= 1, self.name, "order must be 1 or more", self.order, "2 is usual")
        ok = self.win_length >= 3 and self.win_length % 2 == 1
        require(ok, self.name, "win_length must be an odd number of frames, 3 or more", self.win_length, "5 is usual")

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["feat"] = append_deltas(torch.as_tensor(sample.fields["feat"]), self.order, self.win_length)
