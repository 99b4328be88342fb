"""Audio files to waveforms. 16-bit PCM wav by our own RIFF walk, everything else by libsndfile."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

import numpy as np
import soundfile
import torch

from uio_pipes.errors import DataError
from uio_pipes.io.local import LocalFile

__all__ = ["AudioInfo", "decode", "decode_file", "probe", "probe_file"]

HEAD = 4096
SLACK = 0.01  # seconds: a segment may end this much behind the audio
STREAMED = (0, 0xFFFFFFFF)  # data sizes of wavs written to a pipe
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


class AudioInfo(NamedTuple):
    """``samples`` per channel, ``sample_rate`` in Hz."""

    samples: int
    sample_rate: int
    channels: int


class _Wav(NamedTuple):
    info: AudioInfo
    code: int
    width: int  # bytes a sample
    data: int  # offset of the first sample


def probe(head: bytes, size: int) -> AudioInfo | None:
    """What the first bytes of a file of ``size`` bytes tell: wav and FLAC. None if they do not tell the length.

    Raises: DataError ``truncated_audio`` if the header promises more bytes than the file has; ``bad_audio``.
    """
    if head[:4] == b"fLaC":
        return _flac(head)
    wav = _wav(head, size)
    return wav.info if wav is not None else None


def _flac(head: bytes) -> AudioInfo | None:
    if len(head) < 26:
        return None
    bits = int.from_bytes(head[18:26], "big")
    rate, channels, samples = bits >> 44, (bits >> 41 & 7) + 1, bits & 0xFFFFFFFFF
    return AudioInfo(samples, rate, channels) if samples and rate else None


def _wav(head: bytes, size: int) -> _Wav | None:
    """Walk the chunks up to the data; None if this is no wav or its head ends before."""
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    at, form = 12, None
    while at + 8 <= len(head):
        name, length = head[at : at + 4], int.from_bytes(head[at + 4 : at + 8], "little")
        at += 8
        if name == b"fmt " and at + 16 <= len(head):
            form = _format(head[at : at + min(length, 40)])
        elif name == b"data":
            return None if form is None else _data(form, at, length, size)
        at += length + (length & 1)
    return None


def _format(chunk: bytes) -> tuple[int, int, int, int] | None:
    code, channels, rate, _, align, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == EXTENSIBLE and len(chunk) >= 26:
        code = int.from_bytes(chunk[24:26], "little")
    width = bits // 8
    usual = code in (PCM, FLOAT) and channels and rate and width and align == width * channels
    return (code, channels, rate, width) if usual else None


def _data(form: tuple[int, int, int, int], at: int, length: int, size: int) -> _Wav:
    code, channels, rate, width = form
    there = size - at
    if length in STREAMED and there:
        length = there
    if length > there:
        raise DataError("truncated_audio", f"the wav header promises {length} bytes of audio, {there} are there")
    return _Wav(AudioInfo(length // (width * channels), rate, channels), code, width, at)


def probe_file(data: bytes | str) -> AudioInfo | None:
    """By libsndfile, from a file's bytes or its path. None for mp3, whose length only decoding tells.

    Raises: DataError ``bad_audio`` or ``empty_audio``.
    """
    try:
        info = soundfile.info(io.BytesIO(data) if isinstance(data, bytes) else data)
    except (soundfile.SoundFileError, OSError, TypeError) as error:
        raise _bad(error, len(data) if isinstance(data, bytes) else -1) from error
    if info.format in ("MP3", "MPEG"):
        return None
    return AudioInfo(int(info.frames), int(info.samplerate), int(info.channels))


def decode(
    data: bytes, channel: int | None = 0, start: float | None = None, end: float | None = None
) -> tuple[torch.Tensor, int]:
    """A file's bytes as a float32 waveform (1, S) in [-1, 1] ((C, S) for ``channel=None``) and its rate in Hz.

    ``start`` and ``end`` (seconds) cut a segment.

    Raises: DataError ``empty_audio``, ``bad_audio``, ``truncated_audio``, ``no_such_channel``, ``bad_segment``.
    """
    wav = _wav(data[:HEAD], len(data))
    if wav is None or wav.code != PCM or wav.width != 2:
        return _by_library(io.BytesIO(data), len(data), channel, start, end)
    first, count = _cut(wav.info, start, end)
    offset = wav.data + first * 2 * wav.info.channels
    return _pcm16(data, offset, count, wav.info, channel), wav.info.sample_rate


def decode_file(
    path: str, channel: int | None = 0, start: float | None = None, end: float | None = None
) -> tuple[torch.Tensor, int]:
    """As :func:`decode`, from a local file, of which only the segment is read."""
    file = LocalFile(path)
    wav = _wav(file.read_upto(0, HEAD), file.size)
    if wav is None or wav.code != PCM or wav.width != 2:
        return _by_library(path, file.size, channel, start, end)
    first, count = _cut(wav.info, start, end)
    align = 2 * wav.info.channels
    data = file.read(wav.data + first * align, count * align)
    return _pcm16(data, 0, count, wav.info, channel), wav.info.sample_rate


def _cut(info: AudioInfo, start: float | None, end: float | None) -> tuple[int, int]:
    """First sample and number of samples of the segment."""
    first = 0 if start is None else round(start * info.sample_rate)
    last = info.samples if end is None else round(end * info.sample_rate)
    if info.samples < last <= info.samples + SLACK * info.sample_rate:
        last = info.samples
    if not info.samples:
        raise DataError("empty_audio", "the file has no audio")
    if not 0 <= first < last <= info.samples:
        length = info.samples / info.sample_rate
        raise DataError("bad_segment", f"the segment from {start} to {end} s is not within the audio of {length:.3f} s")
    return first, last - first


def _pcm16(data: bytes, offset: int, count: int, info: AudioInfo, channel: int | None) -> torch.Tensor:
    pcm = np.frombuffer(data, "<i2", count * info.channels, offset)
    if info.channels > 1:
        pcm = _channel(pcm.reshape(count, info.channels).T, channel)
    elif channel not in (None, 0):
        raise _no_channel(channel, 1)
    out = torch.empty(pcm.shape if pcm.ndim == 2 else (1, count))
    np.multiply(pcm, np.float32(1 / 32768), out=out.numpy(), dtype=np.float32)
    return out


def _by_library(
    source: io.BytesIO | str, size: int, channel: int | None, start: float | None, end: float | None
) -> tuple[torch.Tensor, int]:
    try:
        with soundfile.SoundFile(source) as file:
            rate, first, count = int(file.samplerate), 0, -1
            if start is not None or end is not None:
                first, count = _cut(AudioInfo(int(file.frames), rate, file.channels), start, end)
                file.seek(first)
            audio = file.read(count, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, TypeError) as error:
        raise _bad(error, size) from error
    if not len(audio):
        raise DataError("empty_audio", "the file has no audio")
    if count > len(audio):
        raise DataError("truncated_audio", f"{len(audio)} of {count} samples could be decoded")
    return torch.from_numpy(np.ascontiguousarray(_channel(audio.T, channel))), rate


def _channel(audio: np.ndarray, channel: int | None) -> np.ndarray:  # type: ignore[type-arg]
    """(C, S) to the channel's (1, S)."""
    if channel is None:
        return audio
    if channel >= len(audio):
        raise _no_channel(channel, len(audio))
    return audio[channel : channel + 1]


def _no_channel(channel: int | None, channels: int) -> DataError:
    return DataError("no_such_channel", f"channel {channel} was asked for, the audio has {channels} (counted from 0)")


def _bad(error: Exception, size: int) -> DataError:
    if size == 0:
        return DataError("empty_audio", "the file has 0 bytes")
    return DataError("bad_audio", f"cannot be decoded: {error}")
