"""Intervals that were drawn, read off the spectrum."""

from __future__ import annotations

import math

import numpy as np
import torch
from helpers_bad import run

import uio_pipes as uio


def test_intervals_are_even_between_the_bounds() -> None:
    """Kolmogorov and Smirnov's distance of 100 draws from even ones, below its 99.9 % quantile."""
    wav = torch.sin(torch.arange(8000) * (2 * math.pi * 400 / 8000))[None]
    rows = [{"key": f"{i}", "wav": wav, "sample_rate": 8000} for i in range(100)]
    intervals = []
    for batch in run(uio.from_iterable(rows).pitch_shift((-5.0, 3.0)), failures="raise")[0]:
        spectrum = np.abs(np.fft.rfft(batch["wav"][0].numpy() * np.hanning(8000), 1 << 17))
        intervals.append(12 * math.log2(np.argmax(spectrum) * 8000 / (1 << 17) / 400))
    drawn = np.sort(intervals)
    assert -5.1 < drawn[0] < -4.5
    assert 2.5 < drawn[-1] < 3.1
    assert np.abs((drawn + 5) / 8 - np.arange(100) / 100).max() < 1.95 / 100**0.5
