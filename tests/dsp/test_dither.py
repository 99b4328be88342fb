"""Noise for dither: normal, the utterance's own, and nearly as good out of a pool."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import uio_pipes as uio
from uio_pipes.dsp.dither import POOL, fresh_noise, pooled_noise
from uio_pipes.lane import Draws, mix64

Noise = Callable[[int, Draws], torch.Tensor]
BOTH = pytest.mark.parametrize("noise", [fresh_noise, pooled_noise])


def utterances(noise: Noise, count: int, samples: int) -> torch.Tensor:
    return torch.stack([noise(samples, Draws(mix64(i + 999))) for i in range(count)])


def distance_from_normal(sample: torch.Tensor) -> float:
    """Kolmogorov's statistic times the root of the count."""
    ordered = sample.double().sort().values
    below = torch.arange(1, len(ordered) + 1) / len(ordered)
    normal = 0.5 * (1 + torch.erf(ordered / math.sqrt(2)))
    return float((normal - below).abs().max() * math.sqrt(len(ordered)))


@BOTH
def test_each_utterance_s_noise_is_normal(noise: Noise) -> None:
    drawn = utterances(noise, 200, 16_000)
    assert drawn.dtype == torch.float32
    distances = [distance_from_normal(row) for row in drawn]
    assert np.mean(distances) < 1.0  # 0.87 is expected
    assert max(distances) < 2.3  # p = 5e-5 each


@BOTH
def test_neighbouring_samples_are_uncorrelated(noise: Noise) -> None:
    for row in utterances(noise, 20, 40_000):
        for lag in (1, 2, 160, 400):
            assert abs(float((row[lag:] * row[:-lag]).mean())) < 5 / math.sqrt(len(row))


@BOTH
def test_noises_of_two_utterances_are_uncorrelated(noise: Noise) -> None:
    drawn = utterances(noise, 300, 8_000)
    products = drawn @ drawn.T / drawn.shape[1] * math.sqrt(drawn.shape[1])
    off = products[~torch.eye(len(drawn), dtype=torch.bool)]
    assert abs(float(off.std()) - 1) < 0.12  # stretches overlap, so pairs are not independent
    assert off.abs().max() < 6


@BOTH
def test_the_same_draws_give_the_same_and_others_others(noise: Noise) -> None:
    assert torch.equal(noise(500, Draws(3)), noise(500, Draws(3)))
    assert not torch.equal(noise(500, Draws(3)), noise(500, Draws(4)))


@pytest.mark.parametrize("samples", [0, 1, POOL, POOL + 1, 3 * POOL + 7])
def test_any_length_comes_from_the_pool(samples: int) -> None:
    drawn = pooled_noise(samples, Draws(1))
    assert drawn.shape == (samples,)
    assert samples < 1000 or abs(float(drawn.std()) - 1) < 0.01


def test_a_stretch_of_the_pool_repeats_nothing() -> None:
    assert len(pooled_noise(POOL, Draws(12)).unique()) > 0.95 * len(fresh_noise(POOL, Draws(1)).unique())


def test_features_of_silence_have_the_same_spread(tmp_path: object) -> None:
    """Mean and deviation of the log energies, over many utterances, with and without the pool."""

    def energies(pool: bool) -> torch.Tensor:
        silent = [{"key": str(i), "wav": torch.zeros(1, 16_000), "sample_rate": 16_000, "txt": ""} for i in range(300)]
        graph = uio.from_iterable(silent).fbank(40, dither=1.0, noise_pool=pool).batch(50).pad()
        return torch.cat([batch["feats"].reshape(-1, 40) for batch in uio.Loader(graph)])

    fresh, pooled = energies(False), energies(True)
    assert (fresh.mean(0) - pooled.mean(0)).abs().max() < 0.05
    assert (fresh.std(0) - pooled.std(0)).abs().max() < 0.05
    assert not torch.equal(fresh, pooled)
