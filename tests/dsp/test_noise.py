"""Noise at a ratio and reverberation, against torchaudio and against sums written out."""

import numpy as np
import pytest
import torch
import torchaudio
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.dsp.effects import add_noise, fast_length, reverberate


def noise(samples: int, seed: int = 0, scale: float = 0.1) -> torch.Tensor:
    return scale * torch.randn(samples, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("snr", [-20.0, 0.0, 7.5, 40.0])
def test_noise_is_added_as_torchaudio_does(snr: float) -> None:
    speech, other = noise(8000)[None], noise(8000, 1, 0.7)
    wanted = torchaudio.functional.add_noise(speech, other[None], torch.tensor([snr]))
    assert torch.allclose(add_noise(speech, other, snr), wanted, atol=1e-6)


def test_every_channel_gets_the_same_noise_and_the_input_stays() -> None:
    speech = torch.stack([noise(900), noise(900, 1)])
    before = speech.clone()
    added = add_noise(speech, noise(900, 2), 3.0) - speech
    assert torch.equal(speech, before)
    assert torch.allclose(added[0], added[1], atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 1e-30])
def test_silence_gives_no_nan(scale: float) -> None:
    sound = noise(100)
    quiet = scale * torch.ones(100)
    assert torch.equal(add_noise(sound, quiet, 10.0), sound)
    assert torch.equal(add_noise(quiet, sound, 10.0), quiet)
    assert torch.equal(reverberate(torch.zeros(1, 100), sound), torch.zeros(1, 100))


def slow_reverberate(speech: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Kaldi's definition with shift and normalization, sum by sum."""
    peak = int(np.argmax(np.abs(response)))
    wet = np.zeros(len(speech))
    for n in range(len(speech)):
        for i, h in enumerate(response):
            if 0 <= n + peak - i < len(speech):
                wet[n] += h * speech[n + peak - i]
    return wet * np.sqrt((speech**2).mean() / (wet**2).mean())


@pytest.mark.parametrize(("samples", "taps"), [(300, 40), (40, 300), (1, 7), (255, 1), (128, 129)])
def test_reverberation_is_the_convolution_from_the_peak_on(samples: int, taps: int) -> None:
    speech = noise(samples)
    response = noise(taps, 3) * torch.exp(-torch.arange(taps) / 20)
    response[taps // 5] = 0.9
    wanted = slow_reverberate(speech.double().numpy(), response.double().numpy())
    assert np.abs(reverberate(speech[None], response)[0].numpy() - wanted).max() < 1e-5


def test_reverberation_keeps_length_power_and_place() -> None:
    speech = torch.zeros(1, 16_000)
    speech[0, 5000] = 0.5
    response = noise(8000, 1, 0.01) * torch.exp(-torch.arange(8000) / 900)
    response[700] = 1.0
    wet = reverberate(speech, response)
    assert wet.shape == speech.shape
    assert int(wet[0].abs().argmax()) == 5000
    assert float(wet.square().mean()) == pytest.approx(float(speech.square().mean()), rel=1e-4)


def test_a_single_impulse_changes_nothing() -> None:
    speech = noise(4000)[None]
    for at, level in ((0, 1.0), (50, 0.3), (99, -2.0)):
        response = torch.zeros(100)
        response[at] = level
        sign = 1 if level > 0 else -1
        assert torch.allclose(reverberate(speech, response), sign * speech, atol=1e-6)


@settings(max_examples=200)
@given(st.integers(1, 10**6))
def test_fast_length_has_small_factors_and_is_near(least: int) -> None:
    length = rest = fast_length(least)
    for prime in (2, 3, 5):
        while rest % prime == 0:
            rest //= prime
    assert rest == 1
    assert least <= length <= max(least * 1.13, least + 3)
