"""Whisper's features against its published definition, its filters against those that it ships."""

import pickle

import numpy as np
import pytest
import torch
import torchaudio.functional
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.spectra import LogMel, slaney_mel_bank


def whisper(waveform: torch.Tensor, n_fft: int = 400, hop: int = 160, bins: int = 80) -> torch.Tensor:
    """The definition: Radford et al. 2022, section 2.2, and openai/whisper's audio.py, with torchaudio's filters."""
    spectrum = torch.stft(waveform, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True)
    bank = torchaudio.functional.melscale_fbanks(
        n_fft // 2 + 1, 0.0, 8000.0, bins, 16000, norm="slaney", mel_scale="slaney"
    )
    mel = bank.T @ spectrum[:, :-1].abs() ** 2
    log = torch.clamp(mel, min=1e-10).log10()
    return ((torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0).T


def signals() -> dict[str, torch.Tensor]:
    """(S,) of 2.6 s: more than one block of frames."""
    time = torch.arange(41_777) / 16000
    noise = torch.randn(len(time), generator=torch.Generator().manual_seed(1))
    click = torch.zeros(len(time))
    click[5000] = 1.0
    return {
        "noise": 0.1 * noise,
        "tone": 0.9 * torch.sin(2 * torch.pi * 440 * time),
        "half_silent": 0.1 * noise * (time > 1),
        "near_silence": (noise * 0.7).round() / 32768,
        "silence": torch.zeros(len(time)),
        "click": click,
        "clipped": (noise * 3).clamp(-1, 1),
    }


@pytest.mark.parametrize(
    ("name", "n_fft", "hop", "bins"),
    [(name, 400, 160, bins) for name in signals() for bins in (80, 128)]
    + [("noise", 512, 128, 20), ("noise", 320, 320, 20), ("noise", 64, 200, 20)],
)
def test_equal_to_the_definition(name: str, n_fft: int, hop: int, bins: int) -> None:
    waveform = signals()[name]
    got = LogMel(n_fft, hop, bins, 0, False, 30.0)(waveform[None])
    want = whisper(waveform, n_fft, hop, bins)
    assert got.dtype == torch.float32
    assert got.shape == want.shape == (len(waveform) // hop, bins)
    assert (got - want).abs().max() < 1e-4


def test_padding_appends_zeros() -> None:
    waveform = signals()["noise"]
    padded = torch.cat([waveform, torch.zeros(4800)])
    assert (LogMel(400, 160, 80, 4800, False, 30.0)(waveform) - whisper(padded)).abs().max() < 1e-4


@pytest.mark.parametrize("samples", [1, 150, 41_777, 48_000, 48_001, 90_000])
@pytest.mark.parametrize("padding", [0, 800])
def test_pad_or_trim_brings_everything_to_max_duration(samples: int, padding: int) -> None:
    waveform = 0.1 * torch.randn(samples, generator=torch.Generator().manual_seed(2))
    got = LogMel(400, 160, 80, padding, True, 3.0)(waveform)
    want = whisper(torch.cat([waveform, torch.zeros(48_000)])[:48_000])
    assert got.shape == (300, 80)
    assert (got - want).abs().max() < 1e-4


def test_thirty_seconds_are_the_3000_frames_of_whisper_s_encoder() -> None:
    assert LogMel(400, 160, 80, 0, True, 30.0)(torch.zeros(1, 16000)).shape == (3000, 80)


@settings(deadline=None, max_examples=80)
@given(
    samples=st.integers(0, 3000),
    n_fft=st.sampled_from([64, 400, 512]),
    hop=st.sampled_from([1, 37, 160, 700]),
    padding=st.sampled_from([0, 1, 500]),
)
def test_frames_is_the_number_of_frames(samples: int, n_fft: int, hop: int, padding: int) -> None:
    kernel = LogMel(n_fft, hop, 4, padding, False, 30.0)
    got = kernel(torch.ones(samples) / 9)
    assert got.shape == (kernel.frames(samples), 4)
    if samples + padding <= n_fft // 2:  # cannot be reflected: torch.stft refuses it
        assert len(got) == 0
    else:
        spectrum = torch.stft(torch.ones(samples + padding), n_fft, hop, window=torch.ones(n_fft), return_complex=True)
        assert len(got) == spectrum.shape[1] - 1


@pytest.mark.parametrize("bins", [80, 128])
def test_filters_are_torchaudio_s(bins: int) -> None:
    want = torchaudio.functional.melscale_fbanks(201, 0.0, 8000.0, bins, 16000, norm="slaney", mel_scale="slaney")
    assert np.abs(slaney_mel_bank(bins, 400) - want.numpy().T).max() < 1e-6


# (mel bin, spectrum bin): weight; from openai/whisper's assets/mel_filters.npz, made by librosa
SHIPPED = {
    80: {(0, 1): 0.0248625949, (1, 1): 0.001990822, (1, 2): 0.0228717718, (79, 192): 0.0031647119},
    128: {(0, 1): 0.0123739867, (1, 1): 0.0303925648, (64, 43): 0.0180915184, (127, 195): 0.0050416016},
}  # fmt: skip
SUMS = {80: {1: 0.024862593, 40: 0.0266648605, 79: 0.02492534}, 128: {64: 0.0248412006, 127: 0.0249360427}}


@pytest.mark.parametrize("bins", SHIPPED)
def test_filters_are_those_that_whisper_ships(bins: int) -> None:
    bank = slaney_mel_bank(bins, 400)
    for at, weight in SHIPPED[bins].items():
        assert bank[at] == pytest.approx(weight, abs=1e-8)
    for band, total in SUMS[bins].items():
        assert bank[band].sum() == pytest.approx(total, abs=1e-7)


def test_neighbours_alignment_and_pickling_change_nothing() -> None:
    kernel, waveform = LogMel(400, 160, 80, 0, False, 30.0), signals()["noise"]
    before = waveform.clone()
    first = kernel(waveform)
    kernel(torch.ones(100_000))
    for again in (waveform[None], torch.cat([torch.zeros(3), waveform])[3:]):
        assert torch.equal(kernel(again), first)
    assert torch.equal(pickle.loads(pickle.dumps(kernel))(waveform), first)
    assert torch.equal(waveform, before)


def test_several_channels_are_refused() -> None:
    with pytest.raises(PipelineError, match="one channel"):
        LogMel(400, 160, 80, 0, False, 30.0)(torch.zeros(2, 1000))
