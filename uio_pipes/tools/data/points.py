"""The points from which a compressed archive can be read: where its frames begin and, in a gzip file, places within
them, which indexed_gzip finds."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from uio_pipes.base.errors import ListError
from uio_pipes.io.compression import FRAME, SPACING, WINDOW
from uio_pipes.io.local import Positioned
from uio_pipes.io.opening import open_file
from uio_pipes.io.stream import StreamBytes

FARTHEST = 1 << 26  # bytes of content between two points: an archive with more cannot be read at random


class SeekPoint(NamedTuple):
    """A place to begin at: offsets in the file and in the content, bits as in SeekPoints, and the content before."""

    compressed: int
    content: int
    bits: int = FRAME
    window: bytes = b""


class Framed(StreamBytes):
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


def seek_points(url: str, source: Framed) -> Iterator[SeekPoint]:
    """Yield the points of an archive that was read to its end; none if it is not compressed, or is damaged, or if parts
    of it are too far from all points. Raises: ListError if it needs a package that is missing."""
    if not source.form or source.failure is not None:
        return
    source.ended()
    found = [SeekPoint(*frame) for frame in source.frames]
    if source.long and source.form == "gzip":
        found += _within(_windowed(url), source.long)
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


def _windowed(url: str) -> Iterator[SeekPoint]:
    """Yield points within the frames of a gzip file, as indexed_gzip (zlib's zran) finds them."""
    try:
        from indexed_gzip import IndexedGzipFile
    except ImportError:
        remedy = "install it (pip install indexed_gzip), or read the archive in its order (stream=True)"
        what = "to read a gzip file of one frame in any order takes indexed_gzip"
        raise ListError(f"{url}: {what}: {remedy}") from None
    file, out = open_file(url), io.BytesIO()
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
