"""Noise for dither: normal, the utterance's own, as good as drawn anew."""

import math

import numpy as np
import pytest
import torch

import uio_pipes as uio
from uio_pipes.base.hashing import Draws, mix64
from uio_pipes.dsp import fbank as dither
from uio_pipes.dsp.fbank import LENGTHS


def noise(samples: int, draws: Draws) -> torch.Tensor:
    one, other = map(torch.from_numpy, dither.noise(samples, draws))
    return one + other


def utterances(count: int, samples: int) -> torch.Tensor:
    return torch.stack([noise(samples, Draws(mix64(i + 999))) for i in range(count)])


def distance_from_normal(sample: torch.Tensor) -> float:
    """Kolmogorov's statistic times the root of the count."""
    ordered = sample.double().sort().values
    below = torch.arange(1, len(ordered) + 1) / len(ordered)
    normal = 0.5 * (1 + torch.erf(ordered / math.sqrt(2)))
    return float((normal - below).abs().max() * math.sqrt(len(ordered)))


def test_each_utterance_s_noise_is_normal() -> None:
    drawn = utterances(200, 16_000)
    assert drawn.dtype == torch.float32
    distances = [distance_from_normal(row) for row in drawn]
    assert np.mean(distances) < 1.0  # 0.87 is expected
    assert max(distances) < 2.3  # p = 5e-5 each


def test_neighbouring_samples_are_uncorrelated() -> None:
    for row in utterances(20, 40_000):
        for lag in (1, 2, 160, 400):
            assert abs(float((row[lag:] * row[:-lag]).mean())) < 5 / math.sqrt(len(row))


def test_noises_of_two_utterances_are_uncorrelated() -> None:
    drawn = utterances(300, 8_000)
    products = drawn @ drawn.T / drawn.shape[1] * math.sqrt(drawn.shape[1])
    off = products[~torch.eye(len(drawn), dtype=torch.bool)]
    assert abs(float(off.std()) - 1) < 0.12  # stretches overlap, so pairs are not independent
    assert int((off.abs() > 6).sum()) <= 6, "in one pair of 260,000 a table is at the same place: half of their noise"
    assert off.abs().max() < 0.6 * math.sqrt(drawn.shape[1])


def test_the_same_draws_give_the_same_and_others_others() -> None:
    assert torch.equal(noise(500, Draws(3)), noise(500, Draws(3)))
    assert not torch.equal(noise(500, Draws(3)), noise(500, Draws(4)))


@pytest.mark.parametrize("samples", [0, 1, *LENGTHS, LENGTHS[0] + 1, 3 * LENGTHS[0] + 7])
def test_any_length_comes_from_the_tables(samples: int) -> None:
    for seed in range(20):
        drawn = noise(samples, Draws(mix64(seed)))
        assert drawn.shape == (samples,)
        assert samples < 1000 or abs(float(drawn.std()) - 1) < 0.01
        assert torch.equal(drawn[:1000], noise(min(samples, 1000), Draws(mix64(seed))))


def test_a_long_utterance_repeats_nothing() -> None:
    """Two minutes: at no distance is the noise what it was, or its negative."""
    drawn = noise(1_920_000, Draws(12)).double()
    spectrum = torch.fft.rfft(drawn, 2 * len(drawn))
    correlations = torch.fft.irfft(spectrum * spectrum.conj())[: len(drawn) // 2] / len(drawn)
    assert float(correlations[1:].abs().max()) < 0.55  # one table comes round, the other is elsewhere
    assert int((correlations[1:].abs() > 0.01).sum()) < 20


def test_features_of_silence_are_those_of_drawn_noise() -> None:
    """Mean and deviation of the log energies over many utterances."""
    from uio_pipes.dsp.fbank import Fbank

    silent = [{"key": str(i), "wav": torch.zeros(1, 16_000), "sample_rate": 16_000, "txt": ""} for i in range(300)]
    graph = uio.from_iterable(silent).fbank(40, dither=1.0).batch(50).pad()
    ours = torch.cat([batch["feats"].reshape(-1, 40) for batch in uio.Loader(graph)])
    kernel, generator = Fbank(40, dither=1.0), torch.Generator().manual_seed(5)
    drawn = torch.cat([kernel(s["wav"], 16_000, [torch.randn(16_000, generator=generator)]) for s in silent])
    assert (drawn.mean(0) - ours.mean(0)).abs().max() < 0.05
    assert (drawn.std(0) - ours.std(0)).abs().max() < 0.05
