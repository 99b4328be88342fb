"""Audio containers: formats by the first bytes, lengths from the headers of wav, AIFF, AU and NIST SPHERE files, and
limits for what headers claim.

Beyond the bounds a header is damaged, and buffers made for it would fill the memory; so would the samples of a
recording of many hours, of which half a megabyte of FLAC can hold three.

libsndfile decodes what is left of a file that was cut off, and says nothing. Ogg files are checked in ``lossy.py``.
Formats: Microsoft's RIFF/WAVE (mmreg.h), EBU Tech 3306 (RF64), Sony's Wave64, Apple's AIFF, Sun's AU, NIST SPHERE,
RFC 9639 (FLAC), RFC 3533 and 7845 (Ogg, Opus), ISO/IEC 14496-12 (MP4) and 14496-3 (ADTS), ISO/IEC 11172-3 (MP3),
Microsoft's ASF, ID3 2.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from math import inf
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError
from uio_pipes.io.local import FileData, open_data

_FIRST_FOUR = {
    b"RIFF": "wav",
    b"RIFX": "wav",
    b"RF64": "wav",
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"\x1aE\xdf\xa3": "webm",
}
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_NAMES = {"opus": "ogg", "oga": "ogg", "mp4": "m4a", "mka": "webm", "mkv": "webm", "weba": "webm"}


def sniff(data: FileData) -> str | None:
    """Return the format as a suffix ("wav", "flac", "mp3", …) by a file's first bytes, or by its path; None if unknown.

    An ID3 tag stands before mp3, and sometimes before aac: what follows the tag decides, if it is there.
    """
    with open_data(data) as file:
        head = file.read(16)
        if head[:3] != b"ID3" or len(head) < 10:
            return _sniff(head)
        file.seek(id3_size(head))
        form = _sniff(file.read(16))
    return form if form in ("m4a", "aac", "wma") else "mp3"


def sniff_codec(data: bytes) -> str | None:
    """Return the format as :func:`sniff` does, but "opus" for Ogg files that contain Opus."""
    form = sniff(data)
    return "opus" if form == "ogg" and b"OpusHead" in data[:64] else form


def belies(suffix: str, head: bytes) -> str | None:
    """Return the format that the first bytes show if it contradicts ``suffix``, else None."""
    form = sniff(head)
    named = _NAMES.get(suffix, suffix)
    same = form == named or {form, named} == {"mp3", "aac"}  # a tag longer than ``head`` may stand before both
    return None if form is None or same else form


def id3_size(head: bytes) -> int:
    """Return the length in bytes of the ID3 tag that begins with ``head``: four times 7 bits give it."""
    return 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])


def _sniff(head: bytes) -> str | None:
    if (form := _FIRST_FOUR.get(head[:4])) is not None:
        return form
    if head[4:8] == b"ftyp":
        return "m4a"
    if head.startswith(_ASF):
        return "wma"
    if head.startswith(b"ID3"):
        return "mp3"
    if head[:1] != b"\xff" or head[1:2] in (b"", b"\xfe"):  # the latter: a byte order mark of UTF-16
        return None
    if head[1] & 0xF6 == 0xF0:
        return "aac"
    return "mp3" if head[1] & 0xE0 == 0xE0 else None


HEAD = 4096  # bytes of a file read for its header
_CHUNK = Struct("<4sI").unpack_from  # id, bytes
_FMT = Struct("<HHIIHH").unpack_from  # tag, channels, sample rate, bytes a second, bytes a frame, bits
_U16 = Struct("<H").unpack_from
_U32_BIG = Struct(">I").unpack_from
_U64 = Struct("<Q").unpack_from
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE  # format tags
_STREAMED = (0, 0xFFFFFFFF)  # sizes written by a program that could not seek back
_SOX_STREAMED = 0x7FFFF000  # the same by SoX, rounded down to whole frames
_W64 = b"riff\x2e\x91\xcf\x11"
_NIST = re.compile(rb"\n(sample_count|sample_n_bytes|channel_count) -i (\d{1,15})(?=\n)")


class Wav(NamedTuple):
    """The header of a wav file of PCM or float samples."""

    tag: int
    channels: int
    sample_rate: int
    align: int  # bytes of a frame
    offset: int  # of the data
    size: int  # of the data, in bytes

    @property
    def is_pcm16(self) -> bool:
        return self.tag == _PCM and self.align == 2 * self.channels


def wav_header(head: bytes, size: int) -> Wav | None:
    """Walk the chunks of a RIFF header to its data; return None if it is not RIFF or does not end within ``head``.

    Raises: DataError ``truncated_audio`` if the data is shorter than the header says, ``bad_audio`` for absurd claims.
    """
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    fmt, at, end = None, 12, len(head)
    while at + 8 <= end:
        name, length = _CHUNK(head, at)
        at += 8
        if name == b"data":
            return None if fmt is None else _data(fmt, at, length, size)
        if name == b"fmt ":
            if length < 16 or at + 26 > end:
                return None
            fmt = _FMT(head, at)
            if fmt[0] == _EXTENSIBLE:
                fmt = (*_U16(head, at + 24), *fmt[1:])  # the sub-format's first two bytes are the tag
        at += length + (length & 1)
    return None


def check_length(head: bytes, size: int) -> None:
    """Raise DataError ``truncated_audio`` if a file of ``size`` bytes is shorter than its header says, or ``bad_audio``
    for one that no decoder here knows."""
    wav_header(head, size)
    declared = declared_size(head)
    if declared > size:
        raise _cut(declared, size, "bytes")


def with_size(data: bytes) -> bytes:
    """Return a wav whose header claims 0 bytes, with its true length. Programs that cannot seek back write such
    headers, and libsndfile believes them. Others are returned unchanged."""
    at = data.find(b"data\0\0\0\0", 12, HEAD) if data[:4] == b"RIFF" else -1
    rest = min(len(data) - at - 8, 0xFFFFFFFF)
    return b"".join((data[: at + 4], rest.to_bytes(4, "little"), data[at + 8 :])) if at >= 0 and rest else data


def declared_size(head: bytes) -> int:
    """Return the size of the file by its header; 0 if the header does not hold it."""
    magic = head[:4]
    if magic == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        length = _U32_BIG(head, 4)[0]
        return 0 if length in _STREAMED else 8 + length
    if magic == b".snd" and len(head) >= 12:
        offset, length = _U32_BIG(head, 4)[0], _U32_BIG(head, 8)[0]
        return 0 if length in _STREAMED else offset + length
    if magic in (b"RF64", b"BW64") and head[12:16] == b"ds64" and len(head) >= 28:
        return 8 + int(_U64(head, 20)[0])
    if head[:8] == _W64 and len(head) >= 24:
        return int(_U64(head, 16)[0])
    if magic == b"NIST" and head[8:15].strip().isdigit():
        fields = {name: int(number) for name, number in _NIST.findall(head[: int(head[8:15])])}
        if b"shorten" in head[: int(head[8:15])]:
            message = "the NIST sphere is compressed by shorten: unpack it (sph2pipe -f wav FILE OUT)"
            raise DataError("bad_audio", message)
        frame = fields.get(b"sample_n_bytes", 0) * fields.get(b"channel_count", 1)
        return int(head[8:15]) + fields.get(b"sample_count", 0) * frame
    return 0


def _data(fmt: tuple[int, ...], offset: int, length: int, size: int) -> Wav | None:
    tag, channels, sample_rate, _, align, bits = fmt
    if length in _STREAMED or (align and length == _SOX_STREAMED - _SOX_STREAMED % align):
        length = size - offset
    elif offset + length > size:
        raise _cut(length, max(0, size - offset), "bytes of samples")
    if tag not in (_PCM, _FLOAT) or not align or align != channels * ((bits + 7) // 8):
        return None
    check_claims(sample_rate, channels)
    return tuple.__new__(Wav, (tag, channels, sample_rate, align, offset, length))  # quicker than ``Wav(…)``


def _cut(declared: int, there: int, what: str) -> DataError:
    return DataError(
        "truncated_audio", f"the header declares {declared} {what}, but the file contains {there}; copy it again"
    )


LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz
MOST_CHANNELS = 1_024  # libsndfile's own bound
LONGEST = 3600.0  # seconds that are decoded for one utterance, unless its stage says otherwise
DECLARED, TRIMMED = "declared", "trimmed"  # the field with a Declared, and that with the seconds that were cut off


class Declared(NamedTuple):
    """How far the audio of an utterance may differ from what its list declares.

    ``tolerance``: seconds by which it may be longer, or end before a segment does; None: as many as are usual there.
    ``trim``: what lies beyond is cut off, which :data:`TRIMMED` says, and is no failure.
    """

    tolerance: float | None = None
    trim: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Declared:
        """Return what the fields of an utterance say; a column of that name is something else."""
        found = fields.get(DECLARED)
        return found if type(found) is cls else _USUAL

    def seconds(self, usual: float) -> float:
        return usual if self.tolerance is None else self.tolerance


_USUAL = Declared()


class Pcm16(np.ndarray[Any, np.dtype[np.int16]]):
    """16-bit samples as stored, (1, S), to be divided by 32768."""


class decoding:
    """Within it, at most ``longest`` seconds are decoded for one utterance (None: any number); ``as_stored``: one
    channel of 16-bit PCM stays a :class:`Pcm16`; ``declared``: how long the audio may be. ``trimmed``: the seconds that
    were cut off. (A generator would take three times as long.)"""

    __slots__ = ("_before", "as_stored", "declared", "longest", "trimmed")

    def __init__(self, longest: float | None, as_stored: bool = False, declared: Declared = _USUAL) -> None:
        self.longest, self.as_stored, self.declared = inf if longest is None else longest, as_stored, declared
        self.trimmed = 0.0

    def __enter__(self) -> decoding:
        self._before = _bounds.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _bounds.reset(self._before)


_bounds = ContextVar("bounds", default=decoding(LONGEST))  # noqa: B039  without trimming it stays as it is


def stays_as_stored() -> bool:
    """Return whether 16-bit PCM is to stay as stored."""
    return _bounds.get().as_stored


def tolerated(usual: float) -> float:
    """Return the seconds by which audio may differ from what is declared; ``usual``: unless something else is said."""
    return _bounds.get().declared.seconds(usual)


def is_trimmed(seconds: float) -> bool:
    """Return whether audio that differs more, by so many seconds, is no failure; it is noted then."""
    within = _bounds.get()
    within.trimmed = seconds if within.declared.trim else 0.0
    return within.declared.trim


def check_longest(samples: int, sample_rate: int) -> None:
    """Raise DataError ``too_long_to_decode`` if an utterance has more samples than may be decoded."""
    longest = _bounds.get().longest
    if samples > longest * sample_rate:
        raise DataError(
            "too_long_to_decode",
            f"one utterance has {samples / sample_rate:,.0f} s of audio to decode, above the limit of {longest:,.0f} "
            "s: cut it into segments, drop it with .filter(max_frames=…), or raise the limit with "
            ".decode_audio(longest=…)",
        )


def check_claims(sample_rate: int, channels: int = 1) -> None:
    """Raise DataError ``bad_audio`` if no audio has this sample rate in Hz, or so many channels."""
    if not LOWEST_RATE <= sample_rate <= HIGHEST_RATE:
        raise DataError(
            "bad_audio",
            f"it claims a sample rate of {sample_rate:,} Hz, which must be {LOWEST_RATE:,} to {HIGHEST_RATE:,}: "
            "its header or entry is damaged; create it again",
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise DataError(
            "bad_audio",
            f"it claims {channels:,} channels, which must be 1 to {MOST_CHANNELS:,}: its header is damaged; "
            "create it again",
        )


def check_finite(samples: npt.NDArray[Any]) -> None:
    """Raise DataError ``nan_audio`` if some samples are NaN or infinite, as only floats can be."""
    if not np.isfinite(samples).all():
        raise DataError("nan_audio", "some samples are NaN or infinite: create the audio again")


def check_channel(channel: int | None, channels: int) -> None:
    """Raises: DataError ``no_such_channel``."""
    if channel is not None and not 0 <= channel < channels:
        there = "number 0" if channels == 1 else f"numbers 0 to {channels - 1}"
        raise DataError(
            "no_such_channel",
            f"there is no channel {channel}: the audio has {channels}, {there}. Correct the channel in the stage or "
            "segment that sets it, or omit it there",
        )
