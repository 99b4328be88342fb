"""Cepstral coefficients against torchaudio's, at every rate and bank; the ends of the mel bank."""

import pickle

import pytest
import torch
import torchaudio.compliance.kaldi as kaldi

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.fbank import Fbank
from uio_pipes.dsp.spectra import Mfcc


def signals(rate: int) -> dict[str, torch.Tensor]:
    """(1, S) of 1.2 s each."""
    time = torch.arange(int(rate * 1.2)) / rate
    noise = torch.randn(len(time), generator=torch.Generator().manual_seed(1))
    return {
        "noise": 0.1 * noise[None],
        "tone": 0.9 * torch.sin(2 * torch.pi * 440 * time)[None],
        "near_silence": (noise * 0.7).round()[None] / 32768,
        "silence": torch.zeros(1, len(time)),
    }


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
@pytest.mark.parametrize(("bins", "ceps"), [(23, 13), (23, 23), (40, 40), (80, 40), (80, 1)])
def test_equal_to_torchaudio(rate: int, bins: int, ceps: int) -> None:
    kernel = Mfcc(bins, num_ceps=ceps)
    for name, waveform in signals(rate).items():
        expected = kaldi.mfcc(
            waveform * 32768, num_mel_bins=bins, num_ceps=ceps, sample_frequency=rate, energy_floor=0.0
        )
        got = kernel(waveform, rate)
        assert got.shape == expected.shape
        check(got, expected, name)


def check(got: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    """Bands far below the peak of a tone hold nothing but rounding (tests/dsp/test_fbank.py compares with float64)."""
    difference = (got - expected).abs()
    assert difference.max() < (0.5 if name == "tone" else 5e-3), name
    assert difference.mean() < (1e-2 if name == "tone" else 2e-4), name


@pytest.mark.parametrize(("low", "high"), [(20.0, 0.0), (0.0, 0.0), (64.0, -400.0), (100.0, 3800.0), (300.0, 8000.0)])
def test_ends_of_the_bank_are_torchaudio_s(low: float, high: float) -> None:
    options = {"num_mel_bins": 30, "low_freq": low, "high_freq": high}
    for name, waveform in signals(16000).items():
        expected = kaldi.fbank(waveform * 32768, energy_floor=0.0, **options)
        check(Fbank(**options)(waveform, 16000), expected, name)  # type: ignore[arg-type]
        expected = kaldi.mfcc(waveform * 32768, num_ceps=20, energy_floor=0.0, **options)
        got = Mfcc(num_ceps=20, **options)(waveform, 16000)  # type: ignore[arg-type]
        check(got, expected, name)


def test_an_end_above_half_the_rate_is_told() -> None:
    kernel = Mfcc(num_ceps=13, high_freq=7600.0)
    assert kernel(torch.zeros(1, 16000), 16000).shape == (98, 13)
    with pytest.raises(PipelineError, match=r"mfcc: at 8000 Hz .* from 20 to 7600 Hz.*at most 4000 Hz"):
        kernel(torch.zeros(1, 8000), 8000)
    with pytest.raises(PipelineError, match=r"from 20 to 0 Hz"):
        Mfcc(num_ceps=13, high_freq=-4000.0)(torch.zeros(1, 8000), 8000)


def test_travels_to_a_worker_as_its_parameters() -> None:
    waveform = signals(16000)["noise"]
    kernel = Mfcc(30, 32.0, 8.0, 0.0, "hamming", 50.0, 7000.0, 12)
    first = kernel(waveform, 16000)
    assert len(pickle.dumps(kernel)) < 300
    assert torch.equal(pickle.loads(pickle.dumps(kernel))(waveform, 16000), first)
    assert torch.equal(kernel(torch.cat([torch.zeros(3), waveform[0]])[3:], 16000), first)
