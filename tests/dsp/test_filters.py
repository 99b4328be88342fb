"""The low-pass by its response, loudness by the standard's own signals, pitch by the spectrum, and clipping.

torchaudio is a reference where it is there: in float32, or in float64 where its own rounding would show.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from uio_pipes.dsp import frames
from uio_pipes.dsp.effects import clip, with_power_of
from uio_pipes.dsp.filters import SECTIONS, loudness, lowpass, pitch_shift
from uio_pipes.dsp.resample import fit_length, resample

RATES = (8000, 16_000, 44_100)


def sine(hertz: float, seconds: float = 1.0, rate: int = 16_000, level: float = 1.0) -> torch.Tensor:
    time = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    return (level * torch.sin(2 * math.pi * hertz * time)).float()[None]


def sound(channels: int = 2, samples: int = 40_000) -> torch.Tensor:
    """Tones that come and go, and noise."""
    noise = 0.02 * torch.randn(channels, samples, generator=torch.Generator().manual_seed(1))
    return noise + sine(200, samples / 16_000, level=0.2) * (1 + sine(3, samples / 16_000))


@pytest.fixture
def functional() -> Any:
    return pytest.importorskip("torchaudio.functional")


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


@pytest.mark.parametrize(("rate", "cutoff"), [(16_000, 3500.0), (16_000, 500.0), (8000, 3900.0), (44_100, 100.0)])
def test_lowpass_is_four_of_torchaudios(functional: Any, rate: int, cutoff: float) -> None:
    wanted = sound()
    for i in range(SECTIONS):
        q = 0.5 / math.cos(math.pi * (2 * i + 1) / (4 * SECTIONS))
        wanted = functional.lowpass_biquad(wanted, rate, cutoff, q)
    torch.testing.assert_close(lowpass(sound(), rate, cutoff), wanted, atol=2e-5, rtol=0)


def test_without_a_compiler_filters_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = lowpass(sound(), 16_000, 3000), loudness(sound(), 16_000)
    monkeypatch.setattr(frames, "kernel", None)
    assert torch.equal(lowpass(sound(), 16_000, 3000), compiled[0])
    assert loudness(sound(), 16_000) == compiled[1]


@pytest.mark.skipif(frames.kernel is None, reason="the kernel is not compiled")
def test_the_kernel_never_reads_or_writes_beyond_an_array() -> None:
    row, sections = np.zeros(10, np.float32), np.zeros((4, 5))
    frames.kernel.cascade(row, sections, 0.0, row.copy())
    for samples, these, out in (
        (row, sections, row[1:]), (row[1:], sections, row), (row, np.zeros((9, 5)), row), (row, np.zeros(4), row),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="do not fit each other"):
            frames.kernel.cascade(samples, these, 0.0, out)


@pytest.mark.parametrize("cutoff", [50.0, 3000.0])
def test_lowpass_is_linear_and_takes_channels_one_by_one(cutoff: float) -> None:
    """After the sound there is silence, in which what is left dies away without a trace."""
    wav = fit_length(sound(), 80_000)
    filtered = lowpass(wav, 16_000, cutoff)
    assert torch.equal(filtered[1:], lowpass(wav[1:], 16_000, cutoff))
    torch.testing.assert_close(lowpass(4 * wav, 16_000, cutoff), 4 * filtered, atol=1e-30, rtol=1e-6)
    swapped = lowpass(wav + 0.5 * wav.flip(0), 16_000, cutoff)
    torch.testing.assert_close(swapped, filtered + 0.5 * filtered.flip(0), atol=1e-6, rtol=0)
    assert filtered[:, :40_000].abs().max() > 0.01
    assert not filtered[:, -1000:].any()
    assert torch.equal(lowpass(wav[:, ::2], 16_000, cutoff), lowpass(wav[:, ::2].clone(), 16_000, cutoff))


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


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_loudness_is_torchaudios_where_that_does_not_clip(functional: Any, rate: int, channels: int) -> None:
    wav = sound(channels)
    wanted = float(functional.loudness(wav.double(), rate))
    assert float(functional.loudness(wav, rate)) == pytest.approx(wanted, abs=2e-4)
    assert loudness(wav, rate) == pytest.approx(wanted, abs=1e-5)
    assert loudness(wav * 100, rate) == pytest.approx(wanted + 40, abs=1e-5)


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


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("semitones", [-24.0, -5.0, -0.5, 0.5, 3.0, 24.0])
def test_pitch_is_by_torchaudios_vocoder_in_float64(functional: Any, rate: int, semitones: float) -> None:
    """In float32, that one adds up phases of thousands of turns, and differs from itself in float64 by 1e-4 to 1e-3."""
    ratio, wav = Fraction(2 ** (semitones / 12)).limit_denominator(100), sound()
    size = 1 << round(math.log2(0.032 * rate))
    hop, window = size // 4, torch.hann_window(size, dtype=torch.float64)
    padded = fit_length(wav, wav.shape[1] + size).double()
    spectra = torch.stft(padded, size, hop, window=window, pad_mode="constant", return_complex=True)
    advance = torch.linspace(0, math.pi * hop, size // 2 + 1, dtype=torch.float64)[:, None]
    factor = (1 + 1e-12) / ratio  # no step is rounded to just below a window's number
    longer = torch.istft(functional.phase_vocoder(spectra, float(factor), advance), size, hop, window=window).float()
    wanted = fit_length(resample(longer, ratio.numerator, ratio.denominator), wav.shape[1])
    torch.testing.assert_close(pitch_shift(wav, rate, semitones), with_power_of(wav, wanted), atol=3e-5, rtol=0)


def test_pitch_stays_exact_over_a_long_recording() -> None:
    """A phase error would grow from window to window: after two minutes, a tone is still as loud and as high."""
    shifted = pitch_shift(sine(440, 120, 8000, 0.3), 8000, 12.0)[0, -16_000:-8000]
    wanted = sine(880, 1, 8000, 0.3)[0]
    assert rms(shifted) == pytest.approx(rms(wanted), rel=1e-3)
    spectrum = np.abs(np.fft.rfft(shifted.numpy() * np.hanning(8000)))
    assert int(np.argmax(spectrum)) == 880
    assert spectrum[880 - 5 : 880 + 6].sum() > 0.99 * spectrum.sum()


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
