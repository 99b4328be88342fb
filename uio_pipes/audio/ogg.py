"""Integrity checks of Ogg files (Vorbis, Opus, FLAC): libsndfile decodes what is left and says nothing.

Every page has a CRC-32 and a number, and the last page of a stream is marked as the last. A page holds about 4 kB, or a
second of audio. So the pages show these faults:

- the last page is incomplete or not marked as the last: the file was cut off (RFC 3533 asks every writer to mark the
  end; libsndfile, FFmpeg, opusenc, oggenc and GStreamer do);
- a CRC-32 is wrong, a number is missing, or no page begins where one should: the file was damaged;
- a stream follows the end of another ("chained"): libsndfile would decode only the first.

Bytes after the end that hold no page, such as tags, are not damage. Of parallel streams (a video's) all are checked.
Format: RFC 3533; RFC 7845 for Opus, which always counts samples at 48 kHz.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from uio_pipes.base.errors import DataError

_MAGIC = b"OggS"
_HEADER = Struct("<4sBBqIIIB").unpack_from  # magic, version, flags, granule position, stream, number, CRC, segments
_HEADER_SIZE = 27
_LONGEST_HEADER = _HEADER_SIZE + 255
_LARGEST = _LONGEST_HEADER + 255 * 255  # bytes of a page
_BLOCK = 1 << 15  # bytes read at a time
_BEGIN, _END = 2, 4  # flags
_OPUS_RATE = 48_000
_BEFORE = 0.25  # seconds checked before a segment: decoders of Opus and Vorbis remember less
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

ReadAt = Callable[[int, int], bytes | memoryview]


def check_ogg(read: ReadAt, size: int) -> None:
    """Check a whole file of ``size`` bytes, of which ``read(offset, count)`` returns any.

    Raises: DataError ``truncated_audio`` or ``bad_audio``.
    """
    _walk(_Pages(read, size), 0, None)


def check_ogg_segment(read: ReadAt, size: int, sample_rate: int, samples: int, first: int, last: int) -> None:
    """Check the pages with samples ``first`` to ``last`` of a recording of ``samples``, and the end if they reach it.

    These are a few pages even of an hour; a search by position finds them. Raises: DataError as ``check_ogg``.
    """
    pages = _Pages(read, size)
    rate = _OPUS_RATE if b"OpusHead" in bytes(read(0, 512)) else sample_rate
    stream, end = _last_position(pages)
    if end is None:
        _walk(pages, 0, None)
        return
    start = end - (samples - first) * rate // sample_rate - int(_BEFORE * rate)
    until = None if last >= samples else end - (samples - last) * rate // sample_rate
    _walk(pages, _search(pages, stream, start), until)


class _Page(NamedTuple):
    at: int
    end: int  # of its bytes in the file
    flags: int
    position: int  # of the last sample completed on this page; -1 if there is none
    stream: int
    number: int


class _Pages:
    """Reads the pages of a file in blocks."""

    def __init__(self, read: ReadAt, size: int) -> None:
        self.size = size
        self._read, self._base, self._block = read, 0, b""

    def window(self, at: int, count: int) -> tuple[bytes, int]:
        """Return a block with ``count`` bytes from ``at`` on, fewer at the end, and the place of ``at`` in it."""
        have = self._base + len(self._block)
        if at < self._base or (at + count > have and have < self.size) or at >= have:
            self._base, self._block = at, bytes(self._read(at, min(max(_BLOCK, count), self.size - at)))
        return self._block, at - self._base

    def page(self, at: int) -> _Page | None:
        """Return the page at ``at``, None if none begins there. Raises: DataError if it is cut off or damaged."""
        block, i = self.window(at, _LONGEST_HEADER)
        if block[i : i + 4] != _MAGIC[: self.size - at]:
            return None
        if len(block) - i < _HEADER_SIZE:
            raise _cut(self.size)
        _, _, flags, position, stream, number, checksum, segments = _HEADER(block, i)
        table = block[i + _HEADER_SIZE : i + _HEADER_SIZE + segments]
        length = _HEADER_SIZE + segments + sum(table)
        if at + length > self.size:
            raise _cut(self.size)
        block, i = self.window(at, length)
        end = i + length
        if _checksum(block[i : i + 22] + b"\0\0\0\0" + block[i + 26 : end]) != checksum:
            raise _damaged(f"the CRC-32 of the page at byte {at} is wrong")
        return _Page(at, at + length, flags, position, stream, number)

    def sound(self, at: int) -> _Page | None:
        """Return the page at ``at`` if there is a sound one."""
        try:
            return self.page(at)
        except DataError:
            return None

    def after(self, at: int, before: int, stream: int | None = None) -> _Page | None:
        """Return the first sound page between ``at`` and ``before``, or the first of ``stream`` with a position."""
        while at < before:
            block, i = self.window(at, len(_MAGIC))
            found = block.find(_MAGIC, i)
            if found < 0:
                at += max(1, len(block) - i - len(_MAGIC) + 1)
                continue
            at += found - i
            page = self.sound(at) if at < before else None
            if page is not None and (stream is None or (page.stream == stream and page.position >= 0)):
                return page
            at = page.end if page is not None else at + 1
        return None


def _walk(pages: _Pages, at: int, until: int | None) -> None:
    """Check page by page up to the position ``until``, or to the end of all streams."""
    numbers: dict[int, int] = {}
    going, begun = set[int](), False
    while at < pages.size:
        page = pages.page(at)
        if page is None:
            if not going and pages.after(at, pages.size) is None:
                return  # something else follows the end
            raise _damaged(f"no page begins at byte {at}, where one should")
        if page.flags & _BEGIN and begun:
            raise DataError(
                "bad_audio",
                f"the Ogg file holds several recordings, the next one from byte {at} on, and only the first would be "
                "decoded; split it there, or re-encode it as one file: ffmpeg -i FILE OUT.flac",
            )
        begun = not page.flags & _BEGIN
        expected = numbers.get(page.stream, page.number)
        if page.number != expected:
            raise _damaged(f"page {expected} is missing before byte {at}")
        numbers[page.stream] = (page.number + 1) & 0xFFFFFFFF
        (going.discard if page.flags & _END else going.add)(page.stream)
        if until is not None and page.position >= until:
            return
        at = page.end
    if going or until is not None:
        raise _cut(pages.size)


def _last_position(pages: _Pages) -> tuple[int, int | None]:
    """Return the first stream of the file and its last position, None if no sound page near the end has one."""
    first = pages.sound(0)
    stream, found = (-1 if first is None else first.stream), None
    for reach in (1 << 13, 2 * _LARGEST):  # the last page is mostly small
        at = max(0, pages.size - reach)
        while (page := pages.after(at, pages.size, stream)) is not None:
            found, at = page.position, page.end
        if found is not None:
            break
    return stream, found


def _search(pages: _Pages, stream: int, position: int) -> int:
    """Return the beginning of the last sound page that ends before ``position``; 0 if there is none."""
    low, high = 0, pages.size
    while high - low > _BLOCK:
        middle = (low + high) // 2
        page = pages.after(middle, high, stream)
        if page is None or page.position >= position:
            high = middle
        else:
            low = page.at
    at = low
    while (page := pages.after(at, high, stream)) is not None and page.position < position:
        low, at = page.at, page.end
    return low


def _checksum(page: bytes) -> int:
    """Compute Ogg's CRC-32 by its mirror image: zlib's takes the lowest bit first, and begins and ends with ones."""
    mirrored = crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_MIRRORED), "big")


def _cut(size: int) -> DataError:
    return DataError(
        "truncated_audio",
        f"the Ogg file was cut off: it ends at byte {size} before the end of its stream; copy it again. (If a recorder "
        "never marked the end: ffmpeg -i FILE -c copy OUT does)",
    )


def _damaged(what: str) -> DataError:
    return DataError("bad_audio", f"the Ogg file is damaged: {what}; copy it again")
