"""Resampling and speed against torchaudio's."""

import pytest
import torch
import torchaudio
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.resample import change_speed, resample, resampled_length, speed_length

ASKED = [(14400, 16000), (17600, 16000), (8000, 16000), (44100, 16000), (48000, 16000)]
OTHERS = [(22050, 16000), (11025, 16000), (16000, 8000), (16000, 44100), (97, 100), (3, 2), (16000, 1600)]
LENGTHS = [1, 2, 7, 100, 441, 16001, 78400]


def noise(samples: int) -> torch.Tensor:
    return torch.rand(1, samples, generator=torch.Generator().manual_seed(samples)) * 2 - 1


@pytest.mark.parametrize(("orig", "new"), ASKED + OTHERS)
def test_equals_torchaudio(orig: int, new: int) -> None:
    for samples in LENGTHS:
        got = resample(noise(samples), orig, new)
        weights_like_ours = torchaudio.transforms.Resample(orig, new)(noise(samples))
        assert got.shape == weights_like_ours.shape == (1, resampled_length(samples, orig, new))
        assert got.is_contiguous()
        assert (got - weights_like_ours).abs().max() < 2e-6
        functional = torchaudio.functional.resample(noise(samples), orig, new)
        # its float32 weights are the less exact ones where the rates have few common factors
        assert (got - functional).abs().max() < (1e-5 if (orig, new) in ASKED else 5e-5)


@settings(deadline=None, max_examples=100)
@given(samples=st.integers(1, 3000), orig=st.integers(1, 60), new=st.integers(1, 60))
def test_any_small_ratio(samples: int, orig: int, new: int) -> None:
    got = resample(noise(samples), orig, new)
    expected = torchaudio.transforms.Resample(orig, new)(noise(samples))
    assert got.shape == expected.shape == (1, resampled_length(samples, orig, new))
    assert (got - expected).abs().max() < 2e-6


def test_lengths_of_hours_follow_torchaudios_rounding() -> None:
    for samples in (44100 * 3600 + 1, 2**24 + 1, 44100 * 5 + 1):
        expected = int(torch.ceil(torch.as_tensor(160 * samples / 441)))
        assert resampled_length(samples, 44100, 16000) == min(expected, (samples // 441 + 1) * 160)


def test_nothing_to_do_returns_the_input() -> None:
    waveform = noise(100)
    assert resample(waveform, 16000, 16000) is waveform
    assert change_speed(waveform, 16000, 1.0) is waveform
    assert resample(torch.zeros(1, 0), 8000, 16000).shape == (1, 0)


def test_same_bits_and_input_stays() -> None:
    waveform = noise(5000)
    before = waveform.clone()
    unaligned = torch.cat([torch.zeros(1, 3), waveform], 1)[:, 3:]
    assert torch.equal(resample(waveform, 9, 10), resample(unaligned, 9, 10))
    assert torch.equal(waveform, before)


@pytest.mark.parametrize(("speed", "orig", "new"), [(0.9, 9, 10), (1.1, 11, 10), (0.95, 19, 20), (2.0, 2, 1)])
def test_speed_is_a_ratio_of_rates(speed: float, orig: int, new: int) -> None:
    got = change_speed(noise(16000), 16000, speed)
    assert torch.equal(got, resample(noise(16000), orig, new))
    assert got.shape[1] == speed_length(16000, speed) == -(-16000 * new // orig)


def test_speed_changes_the_pitch() -> None:
    tone = torch.sin(2 * torch.pi * 1000 * torch.arange(32000) / 16000)[None]
    faster = change_speed(tone, 16000, 1.1)[0, :16000]
    assert torch.fft.rfft(faster).abs().argmax() == 1100


@pytest.mark.parametrize("rates", [(0, 16000), (16000, -1)])
def test_wrong_rates(rates: tuple[int, int]) -> None:
    with pytest.raises(PipelineError, match="above 0 Hz"):
        resample(noise(10), *rates)


@pytest.mark.parametrize("speed", [0.0, -1.0, 0.001, float("nan"), float("inf")])
def test_wrong_speed(speed: float) -> None:
    with pytest.raises(PipelineError, match="speed must be"):
        change_speed(noise(10), 16000, speed)


def test_several_channels() -> None:
    """Each is resampled as it is alone; a shape without channels is refused."""
    each = [noise(1000), noise(1000) * 2]
    both = resample(torch.cat(each), 8000, 16000)
    assert torch.equal(both, torch.cat([resample(one, 8000, 16000) for one in each]))
    with pytest.raises(PipelineError, match=r"needs a shape of \(channels, samples\)"):
        resample(torch.zeros(10), 8000, 16000)
