"""One pass over an archive: its member index, with the points from which a compressed one can be read."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.formats.archives.index import FARTHEST, MemberIndex, MemberPlace
from uio_pipes.formats.tar.index import ShardStamp
from uio_pipes.formats.tar.members import TarMembers
from uio_pipes.formats.tar.reader import UNREADABLE
from uio_pipes.io.access import Access
from uio_pipes.io.compression import FRAME, SPACING, WINDOW
from uio_pipes.io.local import Positioned
from uio_pipes.io.opening import identity, open_binary, open_file
from uio_pipes.io.stream import StreamBytes

MOST_ERRORS = 100  # that an index keeps


class SeekPoint(NamedTuple):
    """A place to begin at: offsets in the file and in the content, bits as in SeekPoints, and the content before."""

    compressed: int
    content: int
    bits: int = FRAME
    window: bytes = b""


def scan_members(url: str, access: Access | None = None) -> tuple[MemberIndex, list[bytes]]:
    """Read a tar once; return its index and the windows of its points. What is damaged is in the index, and a damaged
    compressed archive gets no points: it can only be read in its order.

    Raises: DataError if it cannot be read at all, or changes meanwhile; ListError if it needs a package that is
    missing.
    """
    before = identity(url, access)
    source = _Framed(open_binary(url, access), url)
    try:
        errors = list[DataError]()
        places = list(_members(url, source, errors))
        form, sound = source.form, source.failure is None
        points = list(_points(url, access, form, source)) if form and sound else []
    finally:
        source.close()
    if identity(url, access) != before:
        raise DataError("changed_file", "the archive changed while it was read: try again", url=url)
    names = [place.name.encode("utf-8", "surrogateescape") for place in places]
    columns: dict[str, Any] = {
        "ends": np.cumsum([len(name) for name in names] or [0])[: len(names)],
        "offset": [place.offset for place in places],
        "size": [place.size for place in places],
        "crc": [place.crc for place in places],
        "compressed": [point.compressed for point in points],
        "content": [point.content for point in points],
        "bits": [point.bits for point in points],
        "window_crc": [crc32(point.window) for point in points],
    }
    index = MemberIndex(
        ShardStamp(before[0], before[1], 0, form),
        b"".join(names),
        {name: np.array(values, np.uint64) for name, values in columns.items()},
        source.size,
        errors[:MOST_ERRORS],
    )
    return index, [point.window for point in points if point.bits != FRAME]


def _members(url: str, source: StreamBytes, errors: list[DataError]) -> Iterator[MemberPlace]:
    members = TarMembers(url, source, 0, False)
    while True:
        try:
            member = members.next()
            if member is None:
                continue
            payload = source.payload(member.offset, member.size)
            if payload is None:
                raise members.cut_short("a payload", member.start, member.offset + member.size)
        except StopIteration:
            return
        except DataError as error:
            if error.reason in UNREADABLE:
                raise
            errors += [] if error.reason in NOTES else [error]
            continue
        assert isinstance(payload, bytes)
        yield MemberPlace(member.name, member.offset, member.size, crc32(payload))


class _Framed(StreamBytes):
    """A stream that notes where frames begin, at least SPACING bytes apart, and which of them are longer than that."""

    def __init__(self, *args: Any) -> None:
        self.frames = [(0, 0)]
        self.long: list[tuple[int, int]] = []  # their content
        self._last = (0, 0)
        self.size = 0
        super().__init__(*args)

    @property
    def form(self) -> str:
        """The name of its compression, or ""."""
        return self._frames._form.name if self._frames else ""

    def _next(self) -> bytes:
        piece = super()._next()
        if self._frames is not None and self._frames.frame != self._last:
            self._begun(self._frames.frame)
        self.size += len(piece)
        return piece

    def _begun(self, frame: tuple[int, int]) -> None:
        if frame[1] - self._last[1] > SPACING:
            self.long.append((self._last[1], frame[1]))
            self.frames += [] if self.frames[-1] == self._last else [self._last]
        if frame[1] - self.frames[-1][1] >= SPACING:
            self.frames.append(frame)
        self._last = frame

    def ended(self) -> None:
        """Note the end of the last frame."""
        if self.size - self._last[1] > SPACING:
            self._begun((-1, self.size))
            self.frames.pop()


def _points(url: str, access: Access | None, form: str, source: _Framed) -> Iterator[SeekPoint]:
    """Yield the points of a sound archive; none if parts of it are too far from all of them."""
    source.ended()
    found = [SeekPoint(*frame) for frame in source.frames]
    if source.long and form == "gzip":
        found += _within(_windowed(url, access), source.long)
    found.sort(key=lambda point: point.content)
    ends = [*(point.content for point in found[1:]), source.size]
    if all(end - point.content <= FARTHEST for point, end in zip(found, ends, strict=True)):
        yield from found


def _within(points: Iterator[SeekPoint], frames: list[tuple[int, int]]) -> Iterator[SeekPoint]:
    """Yield the points that are within frames: a shorter frame has no point but its beginning."""
    at = 0
    for point in points:
        while at < len(frames) and frames[at][1] <= point.content:
            at += 1
        if at < len(frames) and frames[at][0] < point.content:
            yield point


_HEADER = struct.Struct("<5sBBQQIII")  # of indexed_gzip's file: magic, version, flags, sizes, spacing, window, points
_POINT = struct.Struct("<QQBB")  # compressed and content offset, bits, whether it has a window


def _windowed(url: str, access: Access | None) -> Iterator[SeekPoint]:
    """Yield points within the frames of a gzip file, as indexed_gzip (zlib's zran) finds them."""
    try:
        from indexed_gzip import IndexedGzipFile
    except ImportError:
        remedy = "install it (pip install indexed_gzip), or read the archive in its order (stream=True)"
        what = "to read a gzip file of one frame in any order takes indexed_gzip"
        raise ListError(f"{url}: {what}: {remedy}") from None
    file, out = open_file(url, access), io.BytesIO()
    with IndexedGzipFile(fileobj=Positioned(file.read_upto, file.size), spacing=SPACING, window_size=WINDOW) as opened:
        opened.build_full_index()
        opened.export_index(fileobj=out)
    data = out.getbuffer()
    magic, version, _, _, _, _, window, count = _HEADER.unpack_from(data)
    if magic != b"GZIDX" or version != 1 or window != WINDOW:
        raise ListError(
            f"indexed_gzip writes a format that is not read here (version {version}): install indexed_gzip 1.10"
        )
    at = _HEADER.size + count * _POINT.size
    for compressed, content, bits, has_window in _POINT.iter_unpack(data[_HEADER.size : at]):
        if has_window:
            yield SeekPoint(compressed, content, bits, bytes(data[at : at + WINDOW]))
            at += WINDOW
