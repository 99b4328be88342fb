"""Checks of MP3 and Ogg files, because libsndfile decodes damaged ones without an error.

Most encoders begin a file with a frame without audio that holds the number of the others ("Xing", or "Info" if the
bitrate is constant). Streams have none (``ffmpeg … -f mp3 - > a.mp3``, radio), and neither have files of old encoders.
There libsndfile guesses the length from the size and the first bitrate. If the guess is too long, the file looks as if
it was cut off; if it is too short, the rest of the recording would be lost without notice.

Format: ISO/IEC 11172-3 and 13818-3, layer III; the Xing header as LAME, FFmpeg and libsndfile write and read it.

In an Ogg file, every page has a CRC-32 and a number, and the last page of a stream is marked as the last. A page holds
about 4 kB, or a second of audio. So the pages show these faults:

- the last page or packet is incomplete: the file was cut off. If they are whole, but not marked as the last, it may
  have been cut off between two pages; but some recorders of Vorbis never mark the end, though RFC 3533 asks them to;
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

from uio_pipes.audio.containers import id3_size
from uio_pipes.base.errors import DataError

_KBITS = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG 2 and 2.5
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG 1
)
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}  # by MPEG version
_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"3DI")  # tags that may follow the last frame


def with_length(data: bytes, complete: bool = False) -> bytes:
    """Return an MP3 file with its length in the header, as libsndfile needs it. Other files are returned as they are.

    Raises: DataError ``truncated_audio`` if it was cut off inside a frame, or is to be ``complete`` and has fewer
    frames than its header says (decoding finds that, too); ``bad_audio`` if it holds several recordings or is damaged
    between two frames.
    """
    begin = _after_tags(data, 0)
    kind = _kind(data, begin)
    if kind is None or not data[begin + 2] >> 4:  # 0: of no standard bitrate
        return data
    first = kind.length(data, begin)
    at = begin + kind.side + (4 if data[begin + 1] & 1 else 6)
    named = data[at : at + 4] in (b"Xing", b"Info")
    if named and data[at + 7] & 1:
        declared = int.from_bytes(data[at + 8 : at + 12], "big")
        frames, end = _walk_frames(data, begin + first, kind)
        if declared and frames > declared + 1:  # some encoders count the header as well
            raise DataError(
                "bad_audio",
                f"the MP3 file contains {frames} frames, but its header declares {declared}, and only these would be "
                "decoded. If it is several recordings joined, split it, or re-encode it as one file: "
                "ffmpeg -i FILE OUT.flac",
            )
        if complete and frames + 1 < declared:
            _check_end(data, end, kind)
            raise _short(declared, frames)
        if declared:
            return data
    has_vbri = data[begin + 36 : begin + 40] == b"VBRI"
    frames, end = _walk_frames(data, start := begin + first if has_vbri or named else begin, kind)
    _check_end(data, end, kind)
    if has_vbri and frames + 1 < (declared := int.from_bytes(data[begin + 50 : begin + 54], "big")):
        raise _short(declared, frames)
    return kind.header(data[begin : begin + 4], frames) + data[start:]


class _Kind(NamedTuple):
    """The properties that all frames of a file share."""

    version: int
    rate: int
    side: int  # bytes between a frame's 4 of header and its audio

    def length(self, data: bytes, at: int) -> int:
        """Return the length in bytes of the frame at ``at``; 0 if no frame of this kind begins there."""
        if len(data) - at < 4 or data[at] != 0xFF or data[at + 1] >> 1 != 0x71 | self.version << 2:
            return 0
        word = data[at + 2]
        kbits = _KBITS[self.version == 3][word >> 4] if word >> 4 < 15 else 0
        if not kbits or (word >> 2 & 3 == 3) or _RATES[self.version][word >> 2 & 3] != self.rate:
            return 0
        return (144_000 if self.version == 3 else 72_000) * kbits // self.rate + (word >> 1 & 1)

    def header(self, first: bytes, frames: int) -> bytes:
        """Make a frame without audio that holds the number of ``frames`` and is otherwise as the ``first`` of them."""
        head = bytes([0xFF, first[1] | 1, 0x90 | first[2] & 0x0C, first[3]])
        body = bytes(self.side) + b"Info" + bytes([0, 0, 0, 1]) + frames.to_bytes(4, "big")
        return (head + body).ljust(self.length(head, 0), b"\0")


def _short(declared: int, frames: int) -> DataError:
    message = f"the MP3 file was cut off: its header declares {declared} frames, but it has {frames}; copy it again"
    return DataError("truncated_audio", message)


def _kind(data: bytes, at: int) -> _Kind | None:
    """Return the kind of the frame of layer III that begins at ``at``, None if there is none."""
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return None
    version, rate = head[1] >> 3 & 3, head[2] >> 2 & 3
    if version == 1 or rate == 3 or head[2] >> 4 == 15:
        return None
    mono = head[3] >> 6 == 3
    return _Kind(version, _RATES[version][rate], (17 if mono else 32) if version == 3 else (9 if mono else 17))


def _walk_frames(data: bytes, at: int, kind: _Kind) -> tuple[int, int]:
    """Count the frames from ``at`` on. Return their number and the end of the last whole one."""
    frames = 0
    while True:
        length = kind.length(data, at)
        if length and at + length <= len(data):
            frames += 1
            at += length
        elif (after := _after_tags(data, at)) == at:
            return frames, at
        else:
            at = after


def _check_end(data: bytes, at: int, kind: _Kind) -> None:
    """Raise DataError if anything but the end of the file, padding or tags follows its last whole frame, at ``at``."""
    rest = data[at:]
    if rest.startswith(_TAGS) or not rest.strip(b"\0"):
        return
    if kind.length(data, at) or (len(rest) < 4 and rest[0] == 0xFF):
        what = f"its last frame, from byte {at} on, is incomplete"
        raise DataError("truncated_audio", f"the MP3 file was cut off: {what}; copy it again")
    there = at
    while (there := data.find(b"\xff", there + 1)) >= 0:
        length = kind.length(data, there)
        if length > 0 and kind.length(data, there + length) > 0:  # two frames, one after the other
            what = f"there is no frame at byte {at}, where one is expected"
            raise DataError("bad_audio", f"the MP3 file is damaged: {what}; copy it again")


def _after_tags(data: bytes, at: int) -> int:
    """Return where the ID3 tags that begin at ``at`` end."""
    while data[at : at + 3] == b"ID3" and len(data) >= at + 10:
        at += id3_size(data[at : at + 10])
    return at


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


def check_ogg(read: ReadAt, size: int) -> bool:
    """Check a whole file of ``size`` bytes, of which ``read(offset, count)`` returns any; return whether its end is
    marked as such. Raises: DataError ``truncated_audio`` or ``bad_audio``.
    """
    return _walk_pages(_Pages(read, size), 0, None)


def check_ogg_segment(read: ReadAt, size: int, sample_rate: int, samples: int, first: int, last: int) -> None:
    """Check the pages with samples ``first`` to ``last`` of a recording of ``samples``, and the end if they reach it.

    These are a few pages even of an hour; a search by position finds them. Raises: DataError as ``check_ogg``.
    """
    pages = _Pages(read, size)
    rate = _OPUS_RATE if pages.is_opus else sample_rate
    stream, end = _last_position(pages)
    if end is None:
        _walk_pages(pages, 0, None)
        return
    start = end - (samples - first) * rate // sample_rate - int(_BEFORE * rate)
    until = None if last >= samples else end - (samples - last) * rate // sample_rate
    _walk_pages(pages, _search(pages, stream, start), until)


class _Page(NamedTuple):
    at: int
    end: int  # of its bytes in the file
    flags: int
    position: int  # of the last sample completed on this page; -1 if there is none
    stream: int
    number: int
    goes_on: bool  # its last packet does, on the next page


class _Pages:
    """Reads the pages of a file in blocks."""

    def __init__(self, read: ReadAt, size: int) -> None:
        self.size, self.is_opus = size, b"OpusHead" in bytes(read(0, 512))
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
        return _Page(at, at + length, flags, position, stream, number, table.endswith(b"\xff"))

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


def _walk_pages(pages: _Pages, at: int, until: int | None) -> bool:
    """Check page by page up to the position ``until``, or to the end of all streams; return whether it is marked."""
    numbers: dict[int, int] = {}
    going, begun = dict[int, _Page](), False  # the last page of each stream that has not ended
    while at < pages.size:
        page = pages.page(at)
        if page is None:
            if not going and pages.after(at, pages.size) is None:
                return True  # something else follows the end
            raise _damaged(f"no page begins at byte {at}, where one should")
        if page.flags & _BEGIN and begun:
            raise DataError(
                "bad_audio",
                f"the Ogg file contains several recordings (the second starts at byte {at}), but only the first would "
                "be decoded; split it there, or re-encode it as one file: ffmpeg -i FILE OUT.flac",
            )
        begun = not page.flags & _BEGIN
        expected = numbers.get(page.stream, page.number)
        if page.number != expected:
            raise _damaged(f"page {expected} is missing before byte {at}")
        numbers[page.stream] = (page.number + 1) & 0xFFFFFFFF
        if page.flags & _END:
            going.pop(page.stream, None)
        else:
            going[page.stream] = page
        if until is not None and page.position >= until:
            return True
        at = page.end
    is_cut = until is not None or any(page.goes_on or page.position <= 0 for page in going.values())
    if is_cut or (going and pages.is_opus):  # of which libsndfile reads no end that is not marked
        raise _cut(pages.size)
    return not going


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
