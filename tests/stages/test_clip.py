"""Gains and kinds of clipping that were drawn."""

from __future__ import annotations

import numpy as np
import torch
from helpers_bad import run

import uio_pipes as uio

RAMP = torch.linspace(-1, 1, 2001)[None]


def clipped(count: int, **options: object) -> list[torch.Tensor]:
    rows = [{"key": f"{i}", "wav": RAMP, "sample_rate": 8000} for i in range(count)]
    return [b["wav"] for b in run(uio.from_iterable(rows).clip(**options), failures="raise")[0]]  # type: ignore[arg-type]


def test_gains_are_even_between_the_bounds_in_db() -> None:
    """Kolmogorov and Smirnov's distance of 500 draws from even ones, below its 99.9 % quantile."""
    gains = np.sort([-20 * np.log10(float(wav.abs().max())) for wav in clipped(500, gain_db=(2, 22), hard=1.0)])
    assert np.abs((gains - 2) / 20 - np.arange(500) / 500).max() < 1.95 / 500**0.5
    assert gains[0] >= 2 - 1e-3
    assert gains[-1] <= 22


def test_hard_is_the_share_that_is_cut_off() -> None:
    for share in (0.0, 0.3, 1.0):
        flat = sum(bool(wav[0, -1] == wav[0, -2]) for wav in clipped(300, gain_db=(10, 10), hard=share))
        assert abs(flat - 300 * share) <= 3.3 * (300 * share * (1 - share)) ** 0.5
