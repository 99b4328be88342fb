"""FLAC: reading the header, checking it against the frames, and decoding whole files with dr_flac if it is installed.

Nothing protects the header (STREAMINFO) but that it is repeated: every frame begins with its sample rate, channels and
number, under a CRC-8, and an MD5 in the header is that of all samples. Decoders believe the header. So the first and
the last frame are always compared with it, at the cost of a few kilobytes; ``uio verify`` compares the MD5.

Format: RFC 9639.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import kept

_MOST = 1 << 26  # samples in all channels; longer files are left to libsndfile, which can seek
_U64_BIG = Struct(">Q").unpack_from
_RATES = (0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)
_BITS = (0, 8, 12, None, 16, 20, 24, 32)  # of a sample; 0: as the header says
_LONGEST = 16  # bytes of a frame's header
_TAILS = (1 << 15, 1 << 19, 1 << 24)  # bytes before the end in which the last two frames are looked for


class StreamInfo(NamedTuple):
    """The contents of the header. ``samples``: of a channel, 0 if it does not say."""

    sample_rate: int
    channels: int
    bits: int
    samples: int


def stream_info(head: bytes) -> StreamInfo | None:
    """Read STREAMINFO: 20 bits of sample rate, 3 of channels - 1, 5 of bits - 1, 36 of samples (0: unknown)."""
    if len(head) < 26 or head[4] & 0x7F:
        return None
    (word,) = _U64_BIG(head, 18)
    return StreamInfo(word >> 44, (word >> 41 & 7) + 1, (word >> 36 & 31) + 1, word & 0xFFFFFFFFF)


def check_flac(read: Callable[[int, int], bytes], size: int) -> None:
    """Compare the header of a file of ``size`` bytes, of which ``read(offset, count)`` returns any, with the first and
    the last frame. Where these cannot be found, it is left to decoders to say what is wrong.

    Raises: DataError ``bad_audio``, or ``truncated_audio`` if there are fewer samples than the header says.
    """
    info = stream_info(read(0, 26))
    at, is_last = 4, False
    while not is_last and at < size:
        block = read(at, 4)
        is_last = block[0] > 0x7F
        at += 4 + int.from_bytes(block[1:], "big")
    head = read(at, _LONGEST)
    if info is None or (first := _frame(head)) is None:
        return
    seen = first.sample_rate or info.sample_rate, first.channels, first.bits or info.bits
    if seen != info[:3]:
        declared, there = ("{:,} Hz, {} channels, {} bits".format(*each) for each in (info, seen))
        raise DataError(
            "bad_audio", f"its header declares {declared}, but its frames have {there}: it is damaged; copy it again"
        )
    samples = _samples(read, size, at, head[:2], first, info.samples) if info.samples else None
    if samples is not None and samples < info.samples:
        message = f"the header declares {info.samples:,} samples, but the frames contain {samples:,}; copy it again"
        raise DataError("truncated_audio", message)
    if samples is not None and samples > info.samples:
        raise _longer(f"the frames hold {samples:,} samples, the header says {info.samples:,}")


def check_single(data: bytes) -> None:
    """Raise DataError ``bad_audio`` if a file of the same encoder and length is joined to this one, as the last frame
    does not show."""
    if (at := data.rfind(data[:12])) > 0:
        raise _longer(f"another recording begins at byte {at}")


def _longer(what: str) -> DataError:
    message = (
        f"{what}, and only the first part would be decoded: copy the FLAC file again. If it is several recordings "
        "joined, split it, or re-encode it as one file: ffmpeg -i FILE OUT.flac"
    )
    return DataError("bad_audio", message)


class _Frame(NamedTuple):
    number: int  # of the frame, or of its first sample
    samples: int
    sample_rate: int  # 0: as the header says
    channels: int
    bits: int  # 0: as the header says


def _frame(data: bytes, at: int = 0) -> _Frame | None:
    """Read the header of the frame at ``at``, None if none begins there."""
    head = data[at : at + _LONGEST]
    if len(head) < 6 or head[0] != 0xFF or head[1] & 0xFE != 0xF8:
        return None
    size, rate, channels, bits = head[2] >> 4, head[2] & 15, head[3] >> 4, _BITS[head[3] >> 1 & 7]
    ones = 8 - (head[4] ^ 0xFF).bit_length()  # as in UTF-8: how many bytes the number has, 0 for one
    if not size or rate == 15 or channels > 10 or bits is None or ones in (1, 8):
        return None
    number, end = head[4] & 0x7F >> ones, 4 + max(1, ones)
    for byte in head[5:end]:
        number = number << 6 | byte & 0x3F
    samples = 192 if size == 1 else 576 << size - 2 if size < 6 else 256 << size - 8 if size > 7 else 0
    if size in (6, 7):
        samples, end = int.from_bytes(head[end : end + size - 5], "big") + 1, end + size - 5
    sample_rate = _RATES[rate] if rate < 12 else 0
    if rate >= 12:
        width, unit = ((1, 1_000), (2, 1), (2, 10))[rate - 12]
        sample_rate, end = int.from_bytes(head[end : end + width], "big") * unit, end + width
    crc = 0
    for byte in head[: end + 1]:
        crc = _CRC8[crc ^ byte]
    if crc or end >= len(head):
        return None
    return _Frame(number, samples, sample_rate, channels + 1 if channels < 8 else 2, bits)


def _samples(
    read: Callable[[int, int], bytes], size: int, begin: int, sync: bytes, first: _Frame, declared: int
) -> int | None:
    """Return the number of samples by the last frame; None if it is not found. ``begin``: where the first frame is.

    What looks like a frame is one if it ends the ``declared`` samples, or begins where another one ends.
    """
    unit = 1 if sync[1] & 1 else first.samples  # of a frame's number: samples where lengths vary, else frames
    for reach in _TAILS:
        base = max(begin, size - reach)
        tail, end, ends = read(base, size - base), None, set[int]()
        last = _frame(tail, max(0, tail.rfind(sync)))
        if last is not None and (last.number - first.number) * unit + last.samples == declared:
            return declared
        at = -1
        while (at := tail.find(sync, at + 1)) >= 0:
            if (frame := _frame(tail, at)) is None:
                continue
            start = frame.number * unit
            if start in ends or base + at == begin:
                end = start + frame.samples
            ends.add(start + frame.samples)
        if end is not None:
            return end - first.number * unit
        if base == begin:
            break
    return None


def _crc8() -> bytes:
    table = list(range(256))
    for _ in range(8):
        table = [byte << 1 ^ 0x107 if byte & 0x80 else byte << 1 for byte in table]
    return bytes(table)


_CRC8 = _crc8()


# Of a recording whose segments are looked at, all is decoded once.
@kept("decoded recordings", 2, lambda decoded: 0 if decoded is None else decoded.nbytes)
def decode_flac(data: bytes, samples: int, channels: int, stored: bool = False) -> npt.NDArray[Any] | None:
    """Decode ``data`` to (samples, channels), the numbers in its header: float32, or ``stored`` 16-bit samples.

    None without miniaudio, and if anything else comes out: then libsndfile decodes it, or says what is wrong.
    (dr_flac leaves out frames whose CRC is wrong, so a damaged file comes out shorter.)
    """
    library = _library()
    if library is None or not 0 < samples * channels <= _MOST:
        return None
    try:
        decoded = library.flac_read_s16(data) if stored else library.flac_read_f32(data)
    except library.DecodeError:
        return None
    if decoded.nchannels != channels or decoded.num_frames != samples:
        return None
    return np.frombuffer(decoded.samples, np.int16 if stored else np.float32).reshape(samples, channels)


@cache
def _library() -> ModuleType | None:
    try:
        import miniaudio
    except ImportError:
        return None
    found: ModuleType = miniaudio
    return found
