"""``volume_perturb``: louder or softer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uio_pipes.lane import Draws
from uio_pipes.sample import Sample
from uio_pipes.stage import PerUtterance, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["VolumePerturb"]


@dataclass(frozen=True)
class VolumePerturb(PerUtterance):
    """Multiply ``wav`` by a factor drawn evenly from ``low`` to ``high``.

    The factor is linear, with the defaults of Kaldi's ``perturb_data_dir_volume.sh``: 0.125 … 2 is -18 … +6 dB.
    Nothing is clipped: the waveform is float, and what is above 1 stays so.
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

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().volume_perturb()
