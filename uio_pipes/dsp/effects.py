"""Clipping, filters, loudness, pitch and lossy codecs. All keep the shape (C, S) of their input.

torchaudio's filters clip what leaves [-1, 1]. So they get the waveform scaled down, and the result is scaled up again.
"""

from __future__ import annotations

import io
import math
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import soundfile
import torch

from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.dsp.noise import with_power_of
from uio_pipes.dsp.resample import fit_length, resample


def clip(waveform: torch.Tensor, gain_db: float, hard: bool) -> torch.Tensor:
    """Clip (C, S) as if its peak were ``gain_db`` above full scale, and give the result the input's level.

    Hard: what is above is cut off. Soft: it saturates, full scale · tanh(sample / full scale).
    """
    limit = float(waveform.abs().max()) * 10 ** (-gain_db / 20)
    if not limit:
        return waveform
    return waveform.clamp(-limit, limit) if hard else torch.tanh(waveform / limit) * limit


def require_torchaudio(stage: str) -> None:
    """Raises: PipelineError with the remedy if torchaudio is not installed. It is not imported."""
    if find_spec("torchaudio") is None:
        raise PipelineError(f"{stage} needs the package torchaudio: pip install 'uio_pipes[augment]'")


def functional(stage: str) -> Any:
    """Import ``torchaudio.functional``. Raises: PipelineError with the remedy if that fails."""
    try:
        return import_module("torchaudio.functional")
    except (ImportError, OSError, RuntimeError) as error:  # its libraries do not fit PyTorch, or are for another CUDA
        raise PipelineError(
            f"{stage} needs torchaudio, which cannot be imported ({error}): install the version that fits your "
            "PyTorch, pip install 'uio_pipes[augment]'"
        ) from error


SECTIONS = 4  # second-order sections of the low-pass filter
GATE = 0.4  # seconds of the blocks whose loudness is measured
_MOST_CHANNELS = 5  # BS.1770 has weights for so many
_HEADROOM = 16.0  # above what a section may add to a peak
_WINDOW = 0.032  # seconds of the phase vocoder's windows
_MAX_DENOMINATOR = 100  # of a pitch as a fraction


def lowpass(waveform: torch.Tensor, sample_rate: int, cutoff: float) -> torch.Tensor:
    """Filter by an eighth-order Butterworth low-pass: -3 dB at ``cutoff`` Hz, 48 dB per octave above.

    It is a cascade of second-order sections whose poles lie on a circle (Butterworth 1930). A cutoff at or above half
    the sample rate changes nothing.
    """
    peak = float(waveform.abs().max())
    if cutoff >= sample_rate / 2 or not peak:
        return waveform
    scale = _HEADROOM * peak
    filtered = waveform / scale
    for i in range(SECTIONS):
        q = 0.5 / math.cos(math.pi * (2 * i + 1) / (4 * SECTIONS))
        filtered = functional("lowpass").lowpass_biquad(filtered, sample_rate, cutoff, q)
    return filtered * scale


def loudness(waveform: torch.Tensor, sample_rate: int) -> float:
    """Return the integrated loudness in LUFS (ITU-R BS.1770-4). It is not finite for silence, or below 0.4 s.

    Of more than five channels, the first five are measured.
    """
    if waveform.shape[-1] < round(GATE * sample_rate):
        return -math.inf
    peak = float(waveform.abs().max())
    scale = max(1.0, 2 * peak)
    measured = float(functional("loudness").loudness(waveform[:_MOST_CHANNELS] / scale, sample_rate))
    return measured + 20 * math.log10(scale)


def pitch_shift(waveform: torch.Tensor, sample_rate: int, semitones: float) -> torch.Tensor:
    """Shift the pitch, keeping length and power: a phase vocoder stretches the time, resampling undoes that.

    The factor 2 ^ (``semitones`` / 12) is rounded to a fraction whose denominator is at most 100, for which resampling
    is fast: by less than a tenth of a semitone next to 0, and by far less elsewhere.
    """
    ratio = Fraction(2 ** (semitones / 12)).limit_denominator(_MAX_DENOMINATOR)
    if ratio == 1:
        return waveform
    samples = waveform.shape[-1]
    size = 1 << max(4, round(math.log2(_WINDOW * sample_rate)))
    hop = size // 4
    window = torch.hann_window(size)
    padded = fit_length(waveform, samples + size)  # the last window is a whole one
    frames = torch.stft(padded, size, hop, window=window, pad_mode="constant", return_complex=True)
    advance = torch.linspace(0, math.pi * hop, size // 2 + 1)[:, None]
    stretched = functional("pitch_shift").phase_vocoder(frames, float(1 / ratio), advance)
    longer = torch.istft(stretched, size, hop, window=window)
    shifted = [resample(one[None], ratio.numerator, ratio.denominator) for one in longer]
    return with_power_of(waveform, fit_length(torch.cat(shifted), samples))


_BLOCK = 1 << 16  # samples: libsndfile's Vorbis encoder can crash with some millions at once
_MP3_LEVEL = 0.99  # LAME refuses 1
_MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)


class _Codec(NamedTuple):
    format: str
    subtype: str
    rates: tuple[int, ...]  # that it knows, lowest first
    levels: bool = True  # it has levels of compression


CODECS = {
    "opus": _Codec("OGG", "OPUS", (8_000, 12_000, 16_000, 24_000, 48_000)),
    "mp3": _Codec("MP3", "MPEG_LAYER_III", _MPEG_RATES),
    "vorbis": _Codec("OGG", "VORBIS", _MPEG_RATES),
    "gsm": _Codec("WAV", "GSM610", (8_000,), levels=False),
    "mulaw": _Codec("WAV", "ULAW", (8_000,), levels=False),
    "alaw": _Codec("WAV", "ALAW", (8_000,), levels=False),
}


def transcode(waveform: torch.Tensor, sample_rate: int, codec: str, level: float) -> torch.Tensor:
    """Encode (C, S) float32 by ``codec`` and decode it. Shape, timing and rate stay; each channel is coded by itself.

    A rate that the codec does not know is resampled to the next higher one, or its highest; telephone codecs know
    only 8 kHz. What is above full scale is scaled down before, and up again after. ``level``: compression from 0 to 1.
    Raises: DataError ``bad_audio`` for samples that are not finite numbers, for which encoders are not made.
    """
    peak = float(waveform.abs().max())
    if not peak < float("inf"):
        raise DataError("bad_audio", "some samples are not finite numbers, which cannot be encoded")
    form = CODECS[codec]
    rate = next((known for known in form.rates if known >= sample_rate), form.rates[-1])
    scale = max(1.0, peak)
    coded = [_coded(resample(one[None] / scale, sample_rate, rate), rate, codec, level) for one in waveform]
    back = [resample(one, rate, sample_rate) for one in coded]
    return fit_length(torch.cat(back), waveform.shape[1]) * scale


def _coded(waveform: torch.Tensor, rate: int, codec: str, level: float) -> torch.Tensor:
    form, samples = CODECS[codec], waveform.shape[1]
    known = {"compression_level": min(level, _MP3_LEVEL)} if form.levels else {}
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, form.subtype, format=form.format, **known) as encoder:
        for first in range(0, samples, _BLOCK):
            encoder.write(waveform[0, first : first + _BLOCK].numpy())
    file.seek(0)
    # The decoders take out delay and padding: Ogg tells them, and LAME's header, which every MP3 of variable rate has.
    decoded = torch.from_numpy(soundfile.read(file, dtype="float32")[0])
    return fit_length(decoded[None], samples)
