"""Lossy codecs: a waveform encoded and decoded again, in memory, by libsndfile."""

from __future__ import annotations

import io
from typing import NamedTuple

import soundfile
import torch

from uio_pipes.base.errors import DataError
from uio_pipes.dsp.resample import fit_length, resample

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
