"""The cutoffs that were drawn, read off the spectrum."""

from __future__ import annotations

import numpy as np
import torch
from helpers_bad import run

import uio_pipes as uio


def test_cutoffs_are_even_between_the_bounds() -> None:
    """Kolmogorov and Smirnov's distance of 300 draws from even ones, below its 99.9 % quantile."""
    click = torch.zeros(1, 4096)
    click[0, 100] = 1.0
    rows = [{"key": f"{i}", "wav": click, "sample_rate": 16_000} for i in range(300)]
    batches, _ = run(uio.from_iterable(rows).lowpass((1000.0, 5000.0)), failures="raise")
    cutoffs = []
    for batch in batches:
        response = np.abs(np.fft.rfft(batch["wav"][0].numpy()))
        cutoffs.append(float(np.argmax(response < 0.5**0.5)) * 16_000 / 4096)
    drawn = np.sort(cutoffs)
    assert 1000 <= drawn[0] < 1100
    assert 4900 < drawn[-1] <= 5010
    assert np.abs((drawn - 1000) / 4000 - np.arange(300) / 300).max() < 1.95 / 300**0.5
