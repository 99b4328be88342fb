"""Decoding of audio files: 16-bit PCM wav by ourselves, m4a, aac and wma by FFmpeg, FLAC by dr_flac where it is
installed, all others by libsndfile.

torch is imported with the first waveform: commands that read headers only start without it.
Every function raises DataError for bad audio, and leaves ``url`` and ``member`` for the caller to fill.
Formats: Microsoft's RIFF/WAVE (mmreg.h) and RFC 9639 (FLAC).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from uio_pipes.audio.codecs import CODED, decode_coded
from uio_pipes.audio.containers import (
    HEAD,
    Pcm16,
    Wav,
    check_channel,
    check_claims,
    check_finite,
    check_length,
    check_longest,
    is_trimmed,
    sniff,
    stays_as_stored,
    tolerated,
    wav_header,
    with_size,
)
from uio_pipes.audio.flac import check_flac, check_single, decode_flac, stream_info
from uio_pipes.audio.lossy import check_ogg, check_ogg_segment, with_length
from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import READ, Lru, kept
from uio_pipes.io.local import FileData, open_data, opened_raw, pread
from uio_pipes.io.references import AudioInfo

if TYPE_CHECKING:
    import torch


MOST_HELD = 1 << 27  # bytes of recordings held by a process: four hours of Opus, or one of MP3
# Of most formats a segment needs all bytes of a recording in an archive or far away: neighbours take them from here.
HELD = Lru("recordings", MOST_HELD)
_LONG_HEAD = 1 << 20  # bytes read if the header is long: pictures, cues
_UNKNOWN = 2**63 - 1  # libsndfile's number of frames for a file whose length is unknown
_MOST_SAMPLES = 1 << 30  # decoded at once, in all channels: 4 GiB, six hours at 48 kHz
_BEFORE = 16 * 1152  # samples of MP3: 16 frames or more
TOLERANCE = 0.05  # seconds by which a segment may end after the audio, and a declared duration be too short


def probe(head: bytes, size: int) -> AudioInfo | None:
    """Return the length of a PCM or float wav or of a flac file by its first bytes; ``size``: bytes of the whole file.

    None if these bytes do not hold it. Raises: DataError ``truncated_audio`` if a wav is shorter than its header says,
    ``bad_audio``.
    """
    if (wav := wav_header(head, size)) is not None:
        return tuple.__new__(AudioInfo, (wav.size // wav.align, wav.sample_rate, wav.channels))
    if sniff(head) != "flac" or (info := stream_info(head)) is None or not info.samples:
        return None
    check_claims(info.sample_rate)
    return AudioInfo(info.samples, info.sample_rate, info.channels)


def probe_file(data: FileData) -> AudioInfo | None:
    """Return the length by libsndfile, of bytes or of a file: for Ogg, Opus and all else that ``probe`` does not know.

    None for MP3, M4A, AAC, WMA and wherever only decoding shows the length. Raises: DataError ``bad_audio`` if it is
    not audio.
    """
    if (form := sniff(data)) in CODED:
        return None
    try:
        with (
            open_data(data) as file,
            soundfile.SoundFile(file if isinstance(data, bytes) else file.fileno(), closefd=False) as audio,
        ):
            check_claims(audio.samplerate, audio.channels)
            known = audio.format not in ("MP3", "MPEG") and 0 < audio.frames < _UNKNOWN
            return AudioInfo(audio.frames, audio.samplerate, audio.channels) if known else None
    except (soundfile.SoundFileError, TypeError) as error:
        with open_data(data) as file:
            content = file.read()
        check_length(content[:HEAD], len(content))
        raise _bad(error, _Ogg.of(content, form)) from error


def decode(
    data: bytes, channel: int | None, start: float | None = None, end: float | None = None
) -> tuple[torch.Tensor, int]:
    """Decode the bytes of a file to a float32 waveform in [-1, 1]; return it with its sample rate.

    The waveform is (1, S) for one ``channel`` and (C, S) for None. ``start`` and ``end`` are seconds; the samples
    round(start · rate) … round(end · rate) are cut out, and an end up to 50 ms after the audio counts as its end.
    A segment has the same samples as in the whole, except for MP3 (1e-6) and Opus (1e-2 at first, after a seek).
    Raises: DataError ``empty_audio``, ``bad_audio``, ``truncated_audio``, ``nan_audio``, ``bomb``,
    ``no_such_channel``, ``bad_segment`` or ``missing_codec``.
    """
    if not data:
        raise DataError("empty_audio", "the file is empty (0 bytes); create it again")
    wav = wav_header(data, len(data))
    if wav is not None and wav.is_pcm16:
        offset, count = _wanted(wav, channel, start, end)
        return _pcm16(wav, channel, data, offset, count)
    form = sniff(data)
    whole = start is None and end is None
    if form == "flac":
        if whole:
            check_single(data)
        check_flac(lambda offset, count: data[offset : offset + count], len(data))
        if whole and (found := _flac(data, channel)):
            return found
    if form in CODED:
        return _by_ffmpeg(data, form, channel, start, end)
    check_length(data[:HEAD], len(data))
    data = with_size(with_length(data) if whole else _of_segments(data))
    return _by_library(io.BytesIO(data), channel, start, end, _Ogg.of(data, form))


_of_segments = kept("recordings with lengths", 2, len)(with_length)  # all frames of a recording are passed once


def decode_at(
    read: Callable[[int, int], bytes],
    size: int,
    key: Hashable,
    channel: int | None,
    start: float | None,
    end: float | None,
) -> tuple[torch.Tensor, int]:
    """Decode a segment of ``size`` bytes of which ``read(offset, count)`` returns any: of 16-bit PCM wav only the range
    is read, of others all, once for neighbouring segments of the recording ``key``."""
    wav = wav_header(read(0, HEAD), size)
    if wav is None or not wav.is_pcm16:
        return decode(HELD.get(key, lambda: read(0, size), len), channel, start, end)
    return _read_pcm16(wav, channel, start, end, read)


def decode_file(
    path: str | os.PathLike[str], channel: int | None, start: float | None = None, end: float | None = None
) -> tuple[torch.Tensor, int]:
    """Decode a local file; of a segment only the header and the range are read.

    Raises: DataError also as ``open_regular``.
    """
    with opened_raw(path) as file:
        size = os.fstat(file.fileno()).st_size

        def read(offset: int, count: int) -> bytes:
            data = pread(file.fileno(), count, offset)
            READ[0] += len(data)
            return data

        head = read(0, HEAD)
        if not head:
            raise DataError("empty_audio", "the file is empty (0 bytes); create it again")

        wav = wav_header(head, size)
        form = sniff(file) if wav is None else "wav"
        if wav is None and form == "wav":
            wav = wav_header(read(0, _LONG_HEAD), size)
        if wav is not None and wav.is_pcm16:
            return _read_pcm16(wav, channel, start, end, read)
        if form == "wav" and with_size(head) is not head:
            return decode(read(0, size), channel, start, end)
        if form in CODED:
            READ[0] += size
            return _by_ffmpeg(file, form, channel, start, end)
        if form == "flac" and start is None and end is None:
            return decode(read(0, size), channel)
        if form == "flac":
            check_flac(read, size)
        check_length(head, size)
        ogg = _Ogg(read, size) if form == "ogg" else None
        if form == "mp3" and start is None and end is None:
            return _by_library(io.BytesIO(with_length(read(0, size))), channel, start, end)
        if form == "mp3":
            data = HELD.get((path, size, os.fstat(file.fileno()).st_mtime_ns), lambda: read(0, size), len)
            return _by_library(io.BytesIO(_of_segments(data)), channel, start, end)
        file.seek(0)
        try:
            return _by_library(file.fileno(), channel, start, end, ogg)
        finally:
            READ[0] += file.tell()


def _wanted(wav: Wav, channel: int | None, start: float | None, end: float | None) -> tuple[int, int]:
    """Return where the wanted samples begin in the file, in bytes, and how many there are of a channel."""
    first, last = sample_range(wav.size // wav.align, wav.sample_rate, start, end)
    check_longest(last - first, wav.sample_rate)
    check_channel(channel, wav.channels)
    return wav.offset + first * wav.align, last - first


def _read_pcm16(
    wav: Wav, channel: int | None, start: float | None, end: float | None, read: Callable[[int, int], bytes]
) -> tuple[torch.Tensor, int]:
    """Decode 16-bit PCM; ``read(offset, size)`` returns bytes of the file, of which only the wanted ones are read."""
    offset, count = _wanted(wav, channel, start, end)
    data = read(offset, count * wav.align)
    if len(data) < count * wav.align:
        raise DataError("truncated_audio", "the file became shorter while it was read; read it again")
    return _pcm16(wav, channel, data, 0, count)


def _pcm16(wav: Wav, channel: int | None, data: bytes, offset: int, count: int) -> tuple[torch.Tensor, int]:
    """Decode ``count`` samples of 16-bit PCM from byte ``offset`` of ``data`` on."""
    samples = np.ndarray((wav.channels, count), "<i2", data, offset, (2, wav.align))
    samples = samples if channel is None or wav.channels == 1 else samples[channel : channel + 1]
    if len(samples) == 1 and stays_as_stored():
        stored: Any = samples.view(Pcm16)
        return stored, wav.sample_rate
    picked = samples.astype(np.float32, order="C")
    picked *= np.float32(1 / 32768)
    return _tensor(picked), wav.sample_rate


class _Ogg(NamedTuple):
    """An Ogg file to be checked, since libsndfile passes over what is damaged or missing."""

    read: Callable[[int, int], bytes]
    size: int

    @classmethod
    def of(cls, data: bytes, form: str | None) -> _Ogg | None:
        """None if ``form`` is another format."""
        return cls(lambda offset, size: data[offset : offset + size], len(data)) if form == "ogg" else None

    def check(self) -> None:
        """Check the whole file. Raises: DataError."""
        check_ogg(self.read, self.size)

    def check_segment(self, audio: soundfile.SoundFile, start: float | None, end: float | None) -> None:
        """Check the pages of a segment in seconds. Raises: DataError."""
        rate, total = audio.samplerate, audio.frames
        first, last = round((start or 0) * rate), total if end is None else round(end * rate)
        check_ogg_segment(self.read, self.size, rate, total, first, last)


def _by_library(
    source: io.BytesIO | int, channel: int | None, start: float | None, end: float | None, ogg: _Ogg | None = None
) -> tuple[torch.Tensor, int]:
    """Decode by libsndfile from bytes in memory or from the descriptor of an open file."""
    whole = start is None and end is None
    if ogg is not None and whole:
        ogg.check()
    try:
        with soundfile.SoundFile(source, closefd=False) as audio:
            check_claims(audio.samplerate, audio.channels)
            if ogg is not None and not whole:
                ogg.check_segment(audio, start, end)
            if audio.frames >= _UNKNOWN:
                raise DataError("bad_audio", "the header does not contain the number of samples; encode the file again")
            first, last = sample_range(audio.frames, audio.samplerate, start, end)
            check_channel(channel, audio.channels)
            if (last - first) * audio.channels > _MOST_SAMPLES:
                raise DataError(
                    "bomb",
                    f"its header says {last - first} samples of {audio.channels} channels, more than can be decoded "
                    "at once: cut it into segments",
                )
            check_longest(last - first, audio.samplerate)
            samples = samples_of(audio, first, last - first)
            if audio.subtype in ("FLOAT", "DOUBLE"):
                check_finite(samples)
            if len(samples) < last - first:
                raise DataError(
                    "truncated_audio",
                    f"samples {first} to {last} were wanted, {len(samples)} could be decoded; copy the file again",
                )
            sample_rate = int(audio.samplerate)
    except (soundfile.SoundFileError, TypeError, MemoryError) as error:  # MemoryError: a header's absurd claim
        raise _bad(error, ogg) from error
    return _picked(samples, channel), sample_rate


def samples_of(audio: soundfile.SoundFile, first: int, count: int, dtype: str = "float32") -> npt.NDArray[Any]:
    """Read ``count`` samples from ``first`` on, fewer at the end of the file: (S, C).

    Of MP3 what comes before them is decoded, too: frames use bits of earlier ones, which libsndfile does not read after
    a seek, and soundfile seeks after each ``read``. Where nothing can be sought (GSM 6.10, G.721, …), this is the first
    read of a file: all comes from its beginning.
    """
    before = min(first, _BEFORE) if audio.format in ("MP3", "MPEG") else 0
    if not audio.seekable():
        before = first
    elif audio.tell() != first - before:
        audio.seek(first - before)
    read: npt.NDArray[Any] = audio.read(before + count, dtype=dtype, always_2d=True)
    return read[before:]


def _flac(data: bytes, channel: int | None) -> tuple[torch.Tensor, int] | None:
    if (info := stream_info(data)) is None or not info.samples:
        return None
    check_claims(info.sample_rate)
    check_longest(info.samples, info.sample_rate)
    stored = (channel is not None or info.channels == 1) and stays_as_stored() and info.bits <= 16
    if (samples := decode_flac(data, info.samples, info.channels, stored)) is None:
        return None
    check_channel(channel, info.channels)
    if stored:
        pcm: Any = samples.T[channel or 0 : (channel or 0) + 1].view(Pcm16)
        return pcm, info.sample_rate
    return _picked(samples, channel), info.sample_rate


def _picked(samples: npt.NDArray[np.float32], channel: int | None) -> torch.Tensor:
    """Turn (S, C) into (C, S), or into (1, S) for one channel."""
    picked = samples.T if channel is None else samples.T[channel : channel + 1]
    return _tensor(np.ascontiguousarray(picked))


def _by_ffmpeg(
    source: FileData, form: str, channel: int | None, start: float | None, end: float | None
) -> tuple[torch.Tensor, int]:
    audio = decode_coded(source, form, start, end)
    check_claims(audio.sample_rate, len(audio.samples))
    first, last = (at - audio.first for at in sample_range(audio.total, audio.sample_rate, start, end))
    check_longest(last - first, audio.sample_rate)
    check_channel(channel, len(audio.samples))
    picked = audio.samples if channel is None else audio.samples[channel : channel + 1]
    return _tensor(np.ascontiguousarray(picked[:, first:last])), audio.sample_rate


def sample_range(total: int, sample_rate: int, start: float | None, end: float | None) -> tuple[int, int]:
    """Return the first and the last + 1 sample of a segment in seconds."""
    if total <= 0:
        raise DataError("empty_audio", "the audio has 0 samples; remove it from the list")
    if start is None and end is None:
        return 0, total
    low = 0.0 if start is None else start * sample_rate
    high = float(total) if end is None else end * sample_rate
    inside = high <= total + tolerated(TOLERANCE) * sample_rate or is_trimmed((high - total) / sample_rate)
    if not 0 <= low < high or not inside or round(low) >= min(round(high), total):
        message = f"the segment {start} to {end} s does not lie inside the {total / sample_rate:.3f} s of audio"
        raise DataError("bad_segment", f'{message}; correct it, or give its source tolerance=… or longer="trim"')
    return round(low), total if end is None else min(round(high), total)


def _bad(error: Exception, ogg: _Ogg | None) -> DataError:
    """Return the error with libsndfile's own words (soundfile puts an address before them). Ogg pages may say more."""
    if ogg is not None:
        ogg.check()
    return DataError("bad_audio", f"cannot be decoded: {getattr(error, 'error_string', error)}")


def _tensor(samples: npt.NDArray[np.float32]) -> torch.Tensor:
    import torch

    return torch.from_numpy(samples)
