"""Codecs: what comes out has its place, its length, its band and about its noise."""

import numpy as np
import pytest
import torch
import torchaudio

import uio_pipes as uio
from uio_pipes.dsp.effects import CODECS, transcode
from uio_pipes.dsp.resample import resample

RATES = (4000, 8000, 11_025, 16_000, 44_100, 96_000)
# dB that the signal is above what was lost at a compression of 0.5
LEAST = {"opus": 12.0, "mp3": 15.0, "vorbis": 9.0, "gsm": 5.0, "mulaw": 30.0, "alaw": 30.0}


def voice(samples: int, rate: int, seed: int = 0) -> torch.Tensor:
    """Noise below 1.5 kHz that comes and goes as syllables do: every codec has something to keep, and a place."""
    generator = torch.Generator().manual_seed(seed)
    wav = resample(torch.randn(1, samples * 3000 // rate + 2, generator=generator), 3000, rate)[:, :samples]
    return 0.1 * wav * (torch.sin(torch.arange(samples) / rate * 12) ** 2)


def delay(before: torch.Tensor, after: torch.Tensor) -> int:
    """Samples by which ``after`` comes late, by cross-correlation."""
    size = 1 << (2 * len(before)).bit_length()
    spectra = np.fft.rfft(after.numpy(), size) * np.conj(np.fft.rfft(before.numpy(), size))
    at = int(np.argmax(np.fft.irfft(spectra, size)))
    return at if at < size // 2 else at - size


def ratio(before: torch.Tensor, after: torch.Tensor) -> float:
    return float(10 * torch.log10(before.square().sum() / (after - before).square().sum()))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("codec", CODECS)
def test_what_comes_out_is_in_its_place_and_like_what_went_in(codec: str, rate: int) -> None:
    wav = voice(2 * rate, rate)
    for level in (0.0, 0.6, 0.85, 0.99):
        out = transcode(wav, rate, codec, level)
        assert out.shape == wav.shape
        assert out.dtype == torch.float32
        assert abs(delay(wav[0], out[0])) <= (max(1, rate // 10_000) if codec == "opus" else 0)  # Opus moves phases
    assert ratio(wav, transcode(wav, rate, codec, 0.5)) > LEAST[codec]
    assert ratio(wav, out) < 60  # something was lost


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("samples", [1, 2, 7, 80, 160])
def test_short_audio_and_silence_keep_their_shape(codec: str, samples: int) -> None:
    for rate in (8000, 16_000, 44_100):
        assert transcode(torch.ones(2, samples) / 3, rate, codec, 0.9).shape == (2, samples)
        silence = transcode(torch.zeros(2, samples), rate, codec, 1.0)
        assert silence.shape == (2, samples)
        assert float(silence.abs().max()) < 0.001


@pytest.mark.parametrize("codec", CODECS)
def test_channels_do_not_mix_and_the_same_comes_out_again(codec: str) -> None:
    left, right = voice(8000, 16_000), voice(8000, 16_000, 1)
    both = torch.cat([left, right])
    before = both.clone()
    out = transcode(both, 16_000, codec, 0.9)
    assert torch.equal(out[:1], transcode(left, 16_000, codec, 0.9))
    assert torch.equal(out[1:], transcode(right, 16_000, codec, 0.9))
    assert torch.equal(out, transcode(both, 16_000, codec, 0.9))
    assert torch.equal(both, before)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_above_full_scale_is_not_clipped(codec: str) -> None:
    wav = voice(16_000, 16_000)
    loud = wav * (40 / wav.abs().max())
    assert float(transcode(loud, 16_000, codec, 0.3).abs().max()) > 25


@pytest.mark.parametrize("codec", ["gsm", "mulaw", "alaw"])
def test_a_telephone_has_nothing_above_4_khz(codec: str) -> None:
    wav = 0.1 * torch.randn(1, 32_000, generator=torch.Generator().manual_seed(0))
    power = np.abs(np.fft.rfft(transcode(wav, 16_000, codec, 0.5)[0].numpy())) ** 2
    assert power[int(len(power) * 4200 / 8000) :].sum() < 0.01 * power.sum()


def test_mulaw_is_g711() -> None:
    """Its 256 values lie where torchaudio's continuous law puts them, to the width of a step."""
    wav = torch.linspace(-0.98, 0.98, 5001)[None]
    out = transcode(wav, 8000, "mulaw", 0.5)
    functional = torchaudio.functional
    wanted = functional.mu_law_decoding(functional.mu_law_encoding(wav, 256), 256)
    assert len(out.unique()) <= 256
    assert float(((out - wanted).abs() / (wav.abs() + 0.02)).max()) < 0.06


def test_more_compression_leaves_less() -> None:
    wav = 0.1 * torch.randn(1, 32_000, generator=torch.Generator().manual_seed(0))
    for codec in ("opus", "mp3"):
        ratios = [ratio(wav, transcode(wav, 16_000, codec, level)) for level in (0.0, 0.8, 0.99)]
        assert ratios == sorted(ratios, reverse=True)
        assert ratios[0] > ratios[2] + 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_before_an_encoder_sees_it(value: float) -> None:
    wav = torch.zeros(1, 100)
    wav[0, 50] = value
    with pytest.raises(uio.DataError, match="NaN or infinite") as error:
        transcode(wav, 16_000, "mp3", 0.5)
    assert error.value.reason == "bad_audio"


def test_ten_minutes_of_vorbis_do_not_crash() -> None:
    wav = voice(10 * 60 * 8000, 8000)
    assert transcode(wav, 8000, "vorbis", 0.9).shape == wav.shape
