"""``resample`` and ``speed_perturb``: the waveform at another rate, or faster or slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.audio.bounds import HIGHEST_RATE, LOWEST_RATE
from uio_pipes.audio.length import SLACK, TICKS, Plan
from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.roles import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.resample import change_speed, resample, resampled_length, speed_length


@dataclass(frozen=True)
class Resample(OfStream):
    """Resample ``wav`` by windowed sinc interpolation, equal to torchaudio's ``Resample`` with its defaults.

    Args:
        resample_rate: the new sample rate in Hz. Default: 16,000.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "resample"
    reads: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])

    resample_rate: int = 16_000

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.resample_rate
        ok = is_whole(rate) and LOWEST_RATE <= rate <= HIGHEST_RATE
        rule = f"resample_rate must be a whole number of Hz from {LOWEST_RATE:,} to {HIGHEST_RATE:,}"
        meant = f"did you mean {rate}_000?" if is_whole(rate) and 1 <= rate <= HIGHEST_RATE // 1000 else "try 16_000"
        require(ok, self.name, rule, rate, meant)

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or plan.sample_rate == self.resample_rate or plan.frames is not None:
            return plan
        if plan.sample_rate == TICKS:
            return Plan(plan.samples * self.resample_rate // TICKS + 2, self.resample_rate)
        return Plan(resampled_length(plan.samples, plan.sample_rate, self.resample_rate), self.resample_rate)

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        if fields["sample_rate"] != self.resample_rate:
            fields["wav"] = resample(fields["wav"], fields["sample_rate"], self.resample_rate)
            fields["sample_rate"] = self.resample_rate


@dataclass(frozen=True)
class SpeedPerturb(OfStream):
    """Play each utterance faster or slower, which changes its pitch, too (Ko et al. 2015; sox's ``speed``).

    Args:
        speeds: factors, above 0, of which one is drawn for each utterance with equal chances; 0.9 makes it longer,
            1.1 shorter. Default: (0.9, 1.0, 1.1).
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "speed_perturb"
    reads: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])

    speeds: Sequence[float] = (0.9, 1.0, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "speeds", tuple(self.speeds))
        ok = bool(self.speeds) and all(0.1 <= s <= 10 for s in self.speeds)
        require(ok, self.name, "speeds must be factors from 0.1 to 10", self.speeds, "WeNet's are [0.9, 1.0, 1.1]")

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or plan.frames is not None:
            return plan
        if plan.sample_rate == TICKS:
            return Plan(int(plan.samples / self._draw(draws)) + SLACK + 1, TICKS)
        return Plan(speed_length(plan.samples, self._draw(draws)), plan.sample_rate)

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        fields["wav"] = change_speed(fields["wav"], fields["sample_rate"], self._draw(draws))

    def _draw(self, draws: Draws) -> float:
        return self.speeds[draws.below(len(self.speeds))]
