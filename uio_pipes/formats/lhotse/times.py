"""Seconds as numbers of samples and frames, rounded as Lhotse does, so that both cut at the same places."""

from __future__ import annotations

from math import ceil, floor

_DIGITS = 8  # after the point: what floats add beyond is no part of the number


def samples_in(seconds: float, rate: int) -> int:
    """Return seconds as samples; halves are rounded up."""
    return floor(round(seconds * rate, _DIGITS) + 0.5)


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
