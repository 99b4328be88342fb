"""``volume_perturb``: louder or softer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample


@dataclass(frozen=True)
class VolumePerturb(OfStream):
    """Multiply ``wav`` by a random factor, drawn evenly between two bounds.

    The defaults, 0.125 to 2 or -18 to +6 dB, are those of Kaldi's ``perturb_data_dir_volume.sh``. Nothing is
    clipped: samples may leave [-1, 1].

    Args:
        low: smallest factor (linear, not dB), above 0. Default: 0.125.
        high: largest factor, not below ``low``. Default: 2.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "volume_perturb"
    reads: ClassVar[frozenset[str]] = frozenset(["wav"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])

    low: float = 0.125
    high: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "low and high must be linear factors with 0 < low <= high"
        require(0 < self.low <= self.high, self.name, rule, (self.low, self.high), "Kaldi's are 0.125 and 2")

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["wav"] = sample.fields["wav"] * draws.uniform(self.low, self.high)
