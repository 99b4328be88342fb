"""Noise, reverberation, clipping and lossy codecs. All keep length and timing of their input.

The impulse responses of rooms are by the method of Lehmann and Johansson ("Diffuse reverberation model for efficient
image-source simulation of room impulse responses", IEEE TASLP 18, 2010): early reflections are image sources in a box
(Allen and Berkley 1979), the late ones are noise that decays exponentially. All walls reflect alike, by Eyring's
formula for the reverberation time.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile
import torch

from uio_pipes.base.errors import DataError
from uio_pipes.dsp.resample import fit_length, resample

SILENCE = 1e-20  # mean square that counts as silence: -200 dB of full scale


def add_noise(
    waveform: torch.Tensor, noise: torch.Tensor, snr: float, first: int = 0, speech: torch.Tensor | None = None
) -> torch.Tensor:
    """Add ``noise`` (N,) to ``waveform`` (…, S) from sample ``first`` on, so that the ratio of powers is ``snr`` dB.

    Power is the mean square over the whole length, that of ``speech`` where it is not the waveform itself. If either
    is silent there is no such ratio, and nothing is added.
    """
    speech_power, noise_power = _power(waveform if speech is None else speech), _power(noise)
    if min(speech_power, noise_power) < SILENCE:
        return waveform
    noisy = waveform.clone()
    noisy[..., first : first + len(noise)].add_(noise, alpha=(speech_power / noise_power * 10 ** (-snr / 10)) ** 0.5)
    return noisy


def reverberate(waveform: torch.Tensor, response: torch.Tensor, direct: int | None = None) -> torch.Tensor:
    """Convolve ``waveform`` (…, S) with ``response`` (N,), keeping its shape, its timing and its loudness.

    As with Kaldi's ``wav-reverberate --shift-output --normalize-output``: the response's highest peak (the
    direct sound) is at time 0, and the result is scaled to the power of ``waveform``. Silence stays silence.
    ``direct``: the number of the response's sample that is the direct sound, where that is known.
    """
    samples = waveform.shape[-1]
    peak = int(response.abs().argmax()) if direct is None else direct
    response = response[: peak + samples]  # the rest would be heard only after the end
    size = fast_length(samples + len(response) - 1)
    spectrum = np.fft.rfft(waveform.numpy(), size)  # pocketfft: twice as fast as torch's on one thread
    spectrum *= np.fft.rfft(response.numpy(), size)
    wet = torch.from_numpy(np.fft.irfft(spectrum, size)[..., peak : peak + samples].astype(np.float32, copy=False))
    return with_power_of(waveform, wet)


def with_power_of(waveform: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Scale ``changed`` to the power of ``waveform``, of the same shape. Zeros if either is silent."""
    before, after = _power(waveform), _power(changed)
    return changed * (before / after) ** 0.5 if min(before, after) >= SILENCE else torch.zeros_like(waveform)


def fast_length(least: int) -> int:
    """Return the smallest 2^a · 3^b · 5^c that is not below ``least``: at such lengths the FFT is fast."""
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-least // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


def _power(waveform: torch.Tensor) -> float:
    flat = waveform.reshape(-1)
    return float(torch.dot(flat, flat)) / max(1, len(flat))


SPEED = 343.0  # of sound, m/s
EARLY = 0.05  # seconds after the direct sound for which reflections are computed one by one
NEAREST = 0.3  # metres between source and microphone at least
REACH = 8  # samples on each side of a reflection: it comes between two samples, as a windowed sinc

Floats = npt.NDArray[np.float64]
Point = Sequence[float]


def room_response(
    sample_rate: int, rt60: float, size: Point, source: Point, microphone: Point, noise: torch.Tensor
) -> torch.Tensor:
    """Return a response (N,) float32 from its direct sound, which is 1 at sample ``REACH``, to 60 dB of decay.

    ``rt60``: seconds in which reverberation decays by 60 dB; ``size``, ``source``, ``microphone``: the room's
    length, width and height and the two places in it, in metres; ``noise``: ``rt60 * sample_rate`` standard normals.
    """
    samples, early = len(noise), min(EARLY, rt60)
    reach = max(math.dist(source, microphone), NEAREST) + (SPEED * early)
    (x, i), (y, j), (z, k) = map(_axis, size, source, microphone, [reach] * 3)
    distance = np.sqrt((x**2)[:, None, None] + (y**2)[:, None] + z**2)
    near = distance <= reach
    distance, bounces = np.maximum(distance[near], NEAREST), (i[:, None, None] + j[:, None] + k)[near]
    volume, surface = math.prod(size), 2 * (size[0] * size[1] + size[1] * size[2] + size[2] * size[0])
    log_reflection = -12 * math.log(10) * volume / (SPEED * surface * rt60)
    direct = float(distance.min())
    # Reflections alternate in sign, or they would add up to an offset (Lehmann and Johansson 2008).
    level = np.where(bounces % 2, -1.0, 1.0) * np.exp(log_reflection * bounces) * direct / distance
    response = _pulses((distance - direct) / SPEED * sample_rate, level, samples + REACH)
    first = round(early * sample_rate)
    seconds = direct / SPEED + np.arange(first, samples) / sample_rate
    # As many image sources as there are by then, each with its share of energy.
    power = 4 * math.pi * SPEED * direct**2 / (volume * sample_rate) * 10 ** (-6 * seconds / rt60)
    response[REACH + first :] += np.sqrt(power) * noise.numpy()[first:]
    return torch.from_numpy(response.astype(np.float32))


def _axis(length: float, source: float, microphone: float, reach: float) -> tuple[Floats, Floats]:
    """Return, in one dimension, the places of all images from the microphone, and their numbers of reflections."""
    rooms = math.ceil(reach / (2 * length)) + 1
    n = np.arange(-rooms, rooms + 1)
    places = np.concatenate([2 * n * length + source, 2 * n * length - source]) - microphone
    return places, np.abs(np.concatenate([2 * n, 2 * n - 1])).astype(np.float64)


def _pulses(delays: Floats, levels: Floats, samples: int) -> Floats:
    """Return (``samples``,) with pulses at ``REACH`` + ``delays``, each a sinc with a Hann window."""
    whole = np.floor(delays).astype(np.int64)
    taps = np.arange(1 - REACH, REACH + 1)
    phase = taps - (delays - whole)[:, None]
    pulses = levels[:, None] * np.sinc(phase) * np.cos(phase * (math.pi / 2 / REACH)) ** 2
    out = np.zeros(max(samples, int(whole.max()) + 2 * REACH + 1))
    np.add.at(out, whole[:, None] + (taps + REACH), pulses)
    return out[:samples]


def clip(waveform: torch.Tensor, gain_db: float, hard: bool) -> torch.Tensor:
    """Clip (C, S) as if its peak were ``gain_db`` above full scale, and give the result the input's level.

    Hard: what is above is cut off. Soft: it saturates, full scale · tanh(sample / full scale).
    """
    low, high = torch.aminmax(waveform)
    limit = max(-float(low), float(high)) * 10 ** (-gain_db / 20)
    if not limit:
        return waveform
    if hard:
        return waveform.clamp(-limit, limit)
    scaled = waveform / limit
    np.tanh(scaled.numpy(), out=scaled.numpy())  # in four fifths of torch's time, with AVX-512 in a fifth
    return scaled.mul_(limit)


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
        raise DataError("bad_audio", "some samples are NaN or infinite and cannot be encoded")
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
