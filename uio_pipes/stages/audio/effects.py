"""Stages that change the waveform: sample rate, speed, volume, loudness, pitch, filters and codecs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.audio.containers import HIGHEST_RATE, LOWEST_RATE
from uio_pipes.audio.length import ROUNDING, TICKS, Plan
from uio_pipes.audio.recording import in_floats
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.roles import OfStream
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import must_be, within
from uio_pipes.dsp.effects import CODECS, clip, transcode
from uio_pipes.dsp.filters import loudness, lowpass, pitch_shift
from uio_pipes.dsp.resample import change_speed, resample, resampled_length, speed_length, speed_ratio


class Perturbation(OfStream):
    """A change of ``wav`` that keeps its shape and rate. Subclasses are frozen dataclasses with a ``probability``."""

    reads = ("wav", "sample_rate")
    writes = ("wav",)

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


@dataclass(frozen=True)
class Clip(Perturbation):
    """Clip ``wav`` like a recording at too high a level, and restore its level.

    The waveform is amplified until its peak is a random number of dB above full scale. Then it is clipped at full
    scale, hard (what is above is cut off) or soft (it saturates: tanh), and scaled back: samples far below the peak
    stay as they were. All channels have one peak. Length and rate stay.

    Args:
        gain_db: (lowest, highest) dB by which the peak exceeds full scale; one is drawn evenly from between. Hard
            clipping at 0 dB changes nothing. Default: (0.0, 20.0).
        hard: how likely the clipping is hard, from 0 (always soft) to 1 (always hard). Default: 0.5.
        probability: how likely an utterance is clipped, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "clip"

    gain_db: Sequence[float] = field(default=(0.0, 20.0), metadata=within(-100, 100, "dB"))
    hard: float = must_be(0.5, "a probability from 0 to 1", lambda p: 0 <= p <= 1, "try 0.5")
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        gain_db, hard = draws.uniform(*self.gain_db), draws.uniform() < self.hard
        return clip(waveform, gain_db, hard)


@dataclass(frozen=True)
class Codec(Perturbation):
    """Encode ``wav`` with a random lossy codec and decode it again, in memory. Length, timing and rate stay.

    "opus", "mp3" and "vorbis" work at the utterance's rate, or at the next higher one that they know. "gsm" (GSM
    06.10 full rate, 13 kbit/s), "mulaw" and "alaw" (ITU-T G.711, 64 kbit/s) are those of telephones: they work at
    8 kHz, so that nothing above 4 kHz remains. Delays of encoders are taken out. Each channel is coded by itself.
    Samples above full scale are scaled down before, and up again after. libsndfile does the work. Samples that are
    not finite numbers make the utterance the failure ``bad_audio``.

    Args:
        codecs: names of codecs, of which one is drawn for each utterance with equal chances; a name that is given
            twice is twice as likely. Default: ("opus", "mp3", "vorbis", "gsm", "mulaw").
        compression_level: (lowest, highest) compression of "opus", "mp3" and "vorbis", from 0 (best sound) to 1 (fewest
            bits); one is drawn evenly from between. At 16 kHz, 0.8 to 0.99 is about 59 to 10 kbit/s for Opus, 31
            to 23 for MP3 and 34 to 33 for Vorbis. Default: (0.8, 0.99).
        probability: how likely an utterance is coded, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "codec"

    codecs: Sequence[str] = ("opus", "mp3", "vorbis", "gsm", "mulaw")
    compression_level: Sequence[float] = field(default=(0.8, 0.99), metadata=within(0, 1))
    probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [self.codecs] if isinstance(self.codecs, str) else self.codecs
        ok = isinstance(names, (list, tuple)) and bool(names) and all(str(name) in CODECS for name in names)
        rule = f"codecs must be a list of {', '.join(map(repr, CODECS))}"
        require(ok, self.name, rule, self.codecs, 'try ["opus", "gsm"]')
        object.__setattr__(self, "codecs", tuple(names))

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        codec, level = self.codecs[draws.below(len(self.codecs))], draws.uniform(*self.compression_level)
        return transcode(waveform, sample_rate, codec, level)


@dataclass(frozen=True)
class Loudness(Perturbation):
    """Scale ``wav`` to a random perceived loudness in LUFS (ITU-R BS.1770-4).

    The loudness is that of ``torchaudio.functional.loudness``. Utterances below 0.4 s, which is the shortest that
    can be measured, and silent ones stay as they are. Nothing is clipped: samples may leave [-1, 1]. Of more than
    five channels, the first five are measured, and all are scaled.

    Args:
        target: (lowest, highest) loudness in LUFS; one is drawn evenly from between. Both the same: every utterance
            gets this loudness. Default: (-33.0, -13.0).
        probability: how likely an utterance is scaled, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "loudness"

    target: Sequence[float] = field(default=(-33.0, -13.0), metadata=within(-70, 0, "LUFS"))
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        target, measured = draws.uniform(*self.target), loudness(waveform, sample_rate)
        return waveform * 10 ** ((target - measured) / 20) if math.isfinite(measured) else waveform


@dataclass(frozen=True)
class Lowpass(Perturbation):
    """Remove frequencies above a random cutoff from ``wav``, like narrow channels and cheap microphones.

    The filter is an eighth-order Butterworth low-pass: -3 dB at the cutoff, 48 dB per octave above it. A cutoff at or
    above half the sample rate changes nothing. Length and rate stay.

    Args:
        cutoff: (lowest, highest) cutoff in Hz; one is drawn evenly from between. Default: (3500.0, 8000.0).
        probability: how likely an utterance is filtered, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "lowpass"

    cutoff: Sequence[float] = field(default=(3500.0, 8000.0), metadata=within(10, 1_000_000, "Hz"))
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        return lowpass(waveform, sample_rate, draws.uniform(*self.cutoff))


@dataclass(frozen=True)
class PitchShift(Perturbation):
    """Shift the pitch of ``wav`` by a random interval. Length, timing, power and rate stay.

    A phase vocoder (windows of 32 ms) stretches the time, and resampling undoes that. Formants move with the pitch, as
    with ``speed_perturb``.

    Args:
        semitones: (lowest, highest) interval in semitones, below 0 for a lower voice; one is drawn evenly from between.
            Both within ±24. Default: (-2.0, 2.0).
        probability: how likely an utterance is shifted, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "pitch_shift"

    semitones: Sequence[float] = field(default=(-2.0, 2.0), metadata=within(-24, 24, "semitones"))
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        return pitch_shift(waveform, sample_rate, draws.uniform(*self.semitones))


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
    reads = ("wav",)
    writes = ("wav",)

    low: float = 0.125
    high: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "low and high must be linear factors with 0 < low <= high"
        require(0 < self.low <= self.high, self.name, rule, (self.low, self.high), "Kaldi's are 0.125 and 2")

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["wav"] = sample.fields["wav"] * draws.uniform(self.low, self.high)


@dataclass(frozen=True)
class Resample(OfStream):
    """Resample ``wav`` by windowed sinc interpolation, equal to torchaudio's ``Resample`` with its defaults.

    Args:
        resample_rate: the new sample rate in Hz. Default: 16,000.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "resample"
    reads = ("wav", "sample_rate")
    writes = ("wav", "sample_rate")

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
    """Play each utterance faster or slower, which also changes its pitch (Ko et al. 2015; sox's ``speed``).

    The times of a timeline are divided by the factor.

    Args:
        speeds: factors, above 0, of which one is drawn for each utterance with equal chances; 0.9 makes it longer,
            1.1 shorter. Default: (0.9, 1.0, 1.1).
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "speed_perturb"
    reads = ("wav", "sample_rate")
    writes = ("wav",)
    moves = ()

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
            return Plan(int(plan.samples / self._draw(draws)) + ROUNDING + 1, TICKS)
        return Plan(speed_length(plan.samples, self._draw(draws)), plan.sample_rate)

    def move(self, timeline: Timeline, sample: Sample, draws: Draws) -> Timeline:
        played, seconds = speed_ratio(self._draw(draws))
        return timeline.faster(played / seconds)

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        fields["wav"] = change_speed(fields["wav"], fields["sample_rate"], self._draw(draws))

    def _draw(self, draws: Draws) -> float:
        return self.speeds[draws.below(len(self.speeds))]
