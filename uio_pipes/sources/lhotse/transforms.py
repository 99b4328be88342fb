"""The transforms that Lhotse stores in a recording's manifest and applies when it loads the audio, with times rounded
as in Lhotse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from uio_pipes.base.errors import DataError

if TYPE_CHECKING:
    import torch


_DIGITS = 8  # after the point: what floats add beyond is no part of the number


def samples_in(seconds: float, rate: int) -> int:
    """Return seconds as samples; halves are rounded up."""
    samples = seconds * rate
    return whole if samples == (whole := int(samples)) else floor(round(samples, _DIGITS) + 0.5)


def at_speed(samples: int, factor: float) -> int:
    """Return the samples that are left of ``samples`` played ``factor`` times as fast."""
    length = round(samples / factor, _DIGITS)
    return floor(length + 0.5) if factor >= 1 else ceil(length - 0.5)


def frames_in(seconds: float, frame_shift: float, rate: int) -> int:
    """Return seconds as frames of features whose neighbours are ``frame_shift`` seconds apart."""
    hop = round(frame_shift * rate)
    return (round(seconds * rate) + hop // 2) // hop


def steps_in(seconds: float, frame_shift: float) -> int:
    """Return seconds as steps of an array; halves are rounded up."""
    return floor(round(seconds / frame_shift, _DIGITS) + 0.5)


Span = tuple[float, float | None]  # begin and duration in seconds; None: to the end


class Transform:
    """One change. ``rate``: the sample rate in Hz that the recording has after all changes, as in Lhotse."""

    def before(self, span: Span, rate: int) -> Span:
        """Return the span of the audio before the change of which ``span`` is made."""
        return span

    def apply(self, waveform: torch.Tensor, rate: int) -> torch.Tensor:
        """Change (C, S)."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Speed(Transform):
    factor: float

    def before(self, span: Span, rate: int) -> Span:
        begin, duration = (None if t is None else at_speed(samples_in(t, rate), 1 / self.factor) / rate for t in span)
        return begin or 0.0, duration

    def apply(self, waveform: torch.Tensor, rate: int) -> torch.Tensor:
        return resampled(waveform, round(rate * self.factor), rate)


@dataclass(frozen=True)
class _Resample(Transform):
    source_sampling_rate: int
    target_sampling_rate: int

    def before(self, span: Span, rate: int) -> Span:
        orig = int(self.source_sampling_rate)
        begin, duration = (None if t is None else samples_in(t, orig) / orig for t in span)
        return begin or 0.0, duration

    def apply(self, waveform: torch.Tensor, rate: int) -> torch.Tensor:
        return resampled(waveform, int(self.source_sampling_rate), int(self.target_sampling_rate))


@dataclass(frozen=True)
class _Volume(Transform):
    factor: float

    def apply(self, waveform: torch.Tensor, rate: int) -> torch.Tensor:
        return waveform * self.factor


_KNOWN = {"Speed": _Speed, "Resample": _Resample, "Volume": _Volume}


def check_transforms(recording: Mapping[str, Any]) -> None:
    """Raises: DataError ``unsupported_transform`` if the manifest notes a change that is not known here."""
    for one in recording.get("transforms") or ():
        if (name := one.get("name")) not in _KNOWN:
            message = (
                f"its audio is changed by {name}, but only {', '.join(_KNOWN)} are applied here: write the audio as "
                "it should be by Lhotse (cuts.save_audios), or leave the change to a stage of the pipeline"
            )
            raise DataError("unsupported_transform", message)


def transforms_of(recording: Mapping[str, Any]) -> list[Transform]:
    """Return the changes in their order. Raises: DataError ``bad_cut``."""
    try:
        return [_KNOWN[one["name"]](**one["kwargs"]) for one in recording.get("transforms") or ()]
    except (KeyError, TypeError) as error:
        raise DataError("bad_cut", f"the recording's transforms cannot be read ({error}): write it again") from error


def rate_before(recording: Mapping[str, Any]) -> int:
    """Return the sample rate in Hz of the audio as it is stored."""
    for one in recording.get("transforms") or ():
        if one["name"] == "Resample":
            return int(one["kwargs"]["source_sampling_rate"])
    return int(recording["sampling_rate"])


def resampled(waveform: torch.Tensor, orig: int, new: int) -> torch.Tensor:
    """Resample (C, S)."""
    import torch

    from uio_pipes.dsp.resample import resample

    return torch.cat([resample(row[None], orig, new) for row in waveform])
