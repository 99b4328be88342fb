"""Loudness, measured again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers_bad import run

import uio_pipes as uio
from uio_pipes.dsp.effects import loudness


def scaled(wavs: list[torch.Tensor], target: tuple[float, float], rate: int = 16_000) -> list[torch.Tensor]:
    rows = [{"key": f"{i}", "wav": wav, "sample_rate": rate} for i, wav in enumerate(wavs)]
    return [b["wav"] for b in run(uio.from_iterable(rows).loudness(target), failures="raise")[0]]


def noise(samples: int, channels: int = 1) -> torch.Tensor:
    return torch.randn(channels, samples, generator=torch.Generator().manual_seed(samples))


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_every_utterance_has_the_loudness_that_was_asked_for(rate: int) -> None:
    wavs = [noise(rate) * level for level in (1e-3, 0.1, 30.0)] + [0.2 * noise(rate, 2), 0.01 * noise(rate, 7)]
    for wav in scaled(wavs, (-23.0, -23.0), rate):
        assert loudness(wav, rate) == pytest.approx(-23, abs=0.05)


def test_targets_are_even_between_the_bounds() -> None:
    wavs = scaled([0.1 * noise(8000)] * 150, (-40.0, -10.0))
    measured = np.sort([loudness(wav, 16_000) for wav in wavs])
    assert np.abs((measured + 40) / 30 - np.arange(150) / 150).max() < 1.95 / 150**0.5


def test_what_cannot_be_measured_stays() -> None:
    wavs = [torch.zeros(1, 16_000), noise(6399), noise(1), 1e-6 * noise(16_000)]  # the last is below -70 LUFS
    assert all(torch.equal(a, b) for a, b in zip(wavs, scaled(wavs, (-23, -23)), strict=True))
