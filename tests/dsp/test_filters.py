"""The low-pass by its response, loudness by the standard's own signals, pitch by the spectrum, and clipping."""

import math

import numpy as np
import pytest
import torch
import torchaudio

from uio_pipes.dsp.effects import clip, loudness, lowpass, pitch_shift
from uio_pipes.dsp.resample import fit_length

RATES = (8000, 16_000, 44_100)


def sine(hertz: float, seconds: float = 1.0, rate: int = 16_000, level: float = 1.0) -> torch.Tensor:
    time = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    return (level * torch.sin(2 * math.pi * hertz * time)).float()[None]


def rms(waveform: torch.Tensor) -> float:
    return float(waveform.double().square().mean().sqrt())


@pytest.mark.parametrize("rate", RATES)
def test_lowpass_has_the_response_of_an_eighth_order_butterworth(rate: int) -> None:
    """Bilinear: the frequency axis is warped by a tangent."""
    cutoff = rate / 6
    impulse = torch.zeros(1, 1 << 14)
    impulse[0, 0] = 1.0
    response = np.abs(np.fft.rfft(lowpass(impulse, rate, cutoff)[0].double().numpy()))
    turn = np.pi * np.arange(len(response) - 1) / (1 << 14)
    wanted = 1 / np.sqrt(1 + (np.tan(turn) / np.tan(np.pi * cutoff / rate)) ** 16)
    assert np.abs(response[:-1] - wanted).max() < 1e-4
    at = round(cutoff / rate * (1 << 14))
    assert 20 * math.log10(response[at]) == pytest.approx(-3.01, abs=0.02)


@pytest.mark.parametrize("level", [1e-4, 1.0, 300.0])
def test_lowpass_clips_nothing_whatever_the_level(level: float) -> None:
    kept = lowpass(sine(500, level=level), 16_000, 3000)
    assert rms(kept) == pytest.approx(level / 2**0.5, rel=0.01)
    assert rms(lowpass(sine(6000, level=level), 16_000, 3000)) < level / 100


def test_lowpass_leaves_alone_what_has_nothing_above_the_cutoff() -> None:
    wav = sine(500)
    assert lowpass(wav, 16_000, 8000.0) is wav
    assert torch.equal(lowpass(torch.zeros(2, 50), 16_000, 3000), torch.zeros(2, 50))
    assert lowpass(torch.ones(2, 1), 16_000, 3000).shape == (2, 1)


@pytest.mark.parametrize(("rate", "within"), [(8000, 0.25), (16_000, 0.1), (44_100, 0.1), (48_000, 0.1)])
def test_loudness_of_the_standards_sine(rate: int, within: float) -> None:
    """BS.1770-4: a sine of 997 Hz at 0 dBFS in one channel has -3.01 LUFS; in two channels 3 dB more."""
    for level in (0.0, -20.0, -40.0, 20.0):
        wav = sine(997, 3, rate, 10 ** (level / 20))
        assert loudness(wav, rate) == pytest.approx(level - 3.01, abs=within)
        assert loudness(torch.cat([wav, wav]), rate) == pytest.approx(level, abs=within)


def test_loudness_is_torchaudios_where_that_does_not_clip() -> None:
    wav = 0.05 * torch.randn(2, 40_000, generator=torch.Generator().manual_seed(1))
    wanted = float(torchaudio.functional.loudness(wav, 16_000))
    assert loudness(wav, 16_000) == pytest.approx(wanted, abs=1e-4)
    assert loudness(wav * 100, 16_000) == pytest.approx(wanted + 40, abs=1e-3)


def test_loudness_passes_over_pauses() -> None:
    """Blocks that are 10 LU below the others do not count: 3 s of speech level and 3 s of near silence."""
    loud, quiet = sine(997, 3, level=0.1), sine(997, 3, level=0.001)
    assert loudness(torch.cat([loud, quiet], dim=1), 16_000) == pytest.approx(-23.01, abs=0.3)


@pytest.mark.parametrize("wav", [torch.zeros(1, 16_000), torch.ones(1, 6399), torch.zeros(1, 1)])
def test_loudness_of_silence_and_of_short_audio_is_no_number(wav: torch.Tensor) -> None:
    assert not math.isfinite(loudness(wav, 16_000))


def test_loudness_of_eight_channels_is_that_of_five() -> None:
    wav = sine(440).repeat(8, 1)
    assert loudness(wav, 16_000) == loudness(wav[:5], 16_000)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("semitones", [-12.0, -4.0, -0.5, 0.5, 3.0, 12.0])
def test_pitch_moves_the_peak_of_the_spectrum_and_keeps_length_and_power(rate: int, semitones: float) -> None:
    wav = sine(440, 2, rate, 0.3)
    shifted = pitch_shift(wav, rate, semitones)
    assert shifted.shape == wav.shape
    assert rms(shifted) == pytest.approx(rms(wav), rel=1e-3)
    spectrum = np.abs(np.fft.rfft(shifted[0].numpy() * np.hanning(2 * rate), 1 << 21))
    peak = np.argmax(spectrum) * rate / (1 << 21)
    assert 12 * math.log2(peak / 440) == pytest.approx(semitones, abs=0.1)


@pytest.mark.parametrize("semitones", [-3.0, 3.0])
def test_pitch_leaves_every_sound_in_its_place(semitones: float) -> None:
    """Bursts of 100 ms: their envelopes agree best without any delay, to 2 ms."""
    burst = (torch.arange(32_000) // 1600 % 3 == 1).float()
    wav = sine(300, 2) * burst
    shifted = pitch_shift(wav, 16_000, semitones)
    before, after = (torch.nn.functional.avg_pool1d(w.abs()[None], 32)[0, 0].numpy() for w in (wav, shifted))
    likeness = [float(np.dot(before[50:-50], after[50 + k : len(after) - 50 + k])) for k in range(-40, 41)]
    assert abs(int(np.argmax(likeness)) - 40) <= 1


@pytest.mark.parametrize("samples", [1, 2, 100, 160, 511, 512, 513])
@pytest.mark.parametrize("semitones", [-24.0, 1.0, 24.0])
def test_pitch_of_short_audio_and_of_silence(samples: int, semitones: float) -> None:
    assert pitch_shift(torch.ones(2, samples), 16_000, semitones).isfinite().all()
    silence = torch.zeros(2, samples)
    assert torch.equal(pitch_shift(silence, 16_000, semitones), silence)


def test_no_interval_changes_nothing() -> None:
    wav = sine(440)
    assert pitch_shift(wav, 16_000, 0.0) is wav


def test_lengths_are_cut_and_filled_up() -> None:
    wav = torch.ones(2, 5)
    assert torch.equal(fit_length(wav, 3), torch.ones(2, 3))
    assert fit_length(wav, 7).tolist() == [[1.0] * 5 + [0.0] * 2] * 2


# clip


WAV = torch.tensor([[0.5, -0.25, 0.1, 0.01], [-0.4, 0.2, 0.0, -0.01]])


def test_hard_cuts_off_what_is_above() -> None:
    out = clip(WAV, 20 * 0.30103, hard=True)  # a factor of 2: above half of the peak
    assert torch.allclose(out, WAV.clamp(-0.25, 0.25), atol=1e-6)


def test_soft_saturates_and_leaves_small_samples() -> None:
    out = clip(WAV, 6.0, hard=False)
    limit = 0.5 / 10 ** (6 / 20)
    assert torch.allclose(out, limit * torch.tanh(WAV / limit), atol=1e-7)
    assert torch.allclose(out[:, 3], WAV[:, 3], rtol=0.01)
    assert float(out.abs().max()) < limit


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1000.0])
def test_level_does_not_matter(hard: bool, scale: float) -> None:
    assert torch.allclose(clip(WAV * scale, 9.0, hard) / scale, clip(WAV, 9.0, hard), atol=1e-6)


def test_at_0_db_hard_changes_nothing_and_silence_stays() -> None:
    assert torch.equal(clip(WAV, 0.0, hard=True), WAV)
    for hard in (True, False):
        assert torch.equal(clip(torch.zeros(1, 5), 9.0, hard), torch.zeros(1, 5))
