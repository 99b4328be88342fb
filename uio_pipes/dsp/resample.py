"""Windowed sinc resampling with cached kernels, equal to torchaudio's default."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import gcd

import torch
import torchaudio

__all__ = ["change_speed", "resample", "resampled_length", "speed_length"]


@lru_cache(maxsize=64)
def _kernel(orig: int, new: int) -> torchaudio.transforms.Resample:
    return torchaudio.transforms.Resample(orig, new)


def resampled_length(samples: int, orig: int, new: int) -> int:
    """Samples that :func:`resample` gives."""
    return -(-samples * new // orig)


def resample(waveform: torch.Tensor, orig: int, new: int) -> torch.Tensor:
    """Waveform (C, S) at ``orig`` Hz as (C, S') at ``new`` Hz."""
    if orig == new:
        return waveform
    common = gcd(orig, new)
    out: torch.Tensor = _kernel(orig // common, new // common)(waveform)
    return out


def speed_length(samples: int, speed: float) -> int:
    """Samples that :func:`change_speed` gives."""
    ratio = _ratio(speed)
    return resampled_length(samples, ratio.numerator, ratio.denominator)


def change_speed(waveform: torch.Tensor, sample_rate: int, speed: float) -> torch.Tensor:
    """Waveform (C, S) played ``speed`` times as fast: pitch and length change, the rate does not (sox's speed and rate)."""
    ratio = _ratio(speed)
    return resample(waveform, ratio.numerator, ratio.denominator)


def _ratio(speed: float) -> Fraction:
    return Fraction(speed).limit_denominator(100)
