"""The length of RIFF wav, RF64, W64, AIFF, AU and NIST SPHERE files by their headers, compared with the file's size.

libsndfile decodes what is left of a file that was cut off, and says nothing. Ogg files are checked in ``ogg.py``.
Formats: Microsoft's RIFF/WAVE (mmreg.h), EBU Tech 3306 (RF64), Sony's Wave64, Apple's AIFF, Sun's AU, NIST SPHERE.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from uio_pipes.audio.bounds import check_claims
from uio_pipes.base.errors import DataError

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
    fmt, at = None, 12
    while at + 8 <= len(head):
        name, length = _CHUNK(head, at)
        at += 8
        if name == b"data":
            return None if fmt is None else _data(fmt, at, length, size)
        if name == b"fmt ":
            if length < 16 or at + 26 > len(head):
                return None
            fmt = _FMT(head, at)
            if fmt[0] == _EXTENSIBLE:
                fmt = (*_U16(head, at + 24), *fmt[1:])  # the sub-format's first two bytes are the tag
        at += length + (length & 1)
    return None


def check_length(head: bytes, size: int) -> None:
    """Raise DataError ``truncated_audio`` if a file of ``size`` bytes is shorter than its header says."""
    wav_header(head, size)
    told = _told(head)
    if told > size:
        raise _cut(told, size, "bytes")


def _told(head: bytes) -> int:
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
        if b"shorten" not in head[: int(head[8:15])]:  # its samples are compressed
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
    return Wav(tag, channels, sample_rate, align, offset, length)


def _cut(told: int, there: int, what: str) -> DataError:
    return DataError("truncated_audio", f"the header says {told} {what}, the file holds {there}; copy it again")
