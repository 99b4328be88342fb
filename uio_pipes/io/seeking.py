"""Compressed files read at random, from seek points: places in them from which decompression can begin.

A stream of gzip can only be inflated from its beginning, unless one knows a place where a deflate block begins, and the
32 KiB of content before it. A frame (a gzip member, a frame of zstd) needs no such window.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError
from uio_pipes.io.compression import FEED, Decompressed, Format, fast_zlib, zlib_step
from uio_pipes.io.local import RandomFile, read_exactly

SPACING = 2 << 20  # bytes of content between two points
WINDOW = 1 << 15  # bytes of content before a point within a frame
FRAME = 255  # in place of the bits: a frame begins at the point
SPANS = 8  # between two points, of which the content is kept in a process


class SeekPoints(NamedTuple):
    """Points in their order; the first one is the beginning of the file.

    Attributes:
        compressed: offset of each in the file.
        content: offset of each in the content.
        bits: how many bits of the byte before ``compressed`` belong to it, or FRAME.
        size: bytes of the content.
        window: returns the content before a point that is no frame, by its number among these.
    """

    compressed: npt.NDArray[np.unsignedinteger[Any]]
    content: npt.NDArray[np.unsignedinteger[Any]]
    bits: npt.NDArray[np.unsignedinteger[Any]]
    size: int
    window: Callable[[int], bytes]


class SeekableFile:
    """The content of a compressed ``file``, read by position: see :class:`~uio_pipes.io.local.RandomFile`.

    The content between two points is inflated as far as it is wanted, and that of a few stretches is kept, so that
    neighbours cost nothing more.
    """

    def __init__(self, file: RandomFile, form: Format, points: SeekPoints) -> None:
        self._file, self._form, self._points = file, form, points
        self._starts: list[int] = points.content.tolist()
        self._windows = np.cumsum(points.bits != FRAME)
        self._token = object()  # its own keys among the spans of all files

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        """Bytes of the content."""
        return self._points.size

    @property
    def stamp(self) -> str:
        return self._file.stamp

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes of the content. Raises: DataError ``corrupt_stream`` or ``truncated``, and others."""
        return read_exactly(self, offset, size)

    def read_upto(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes of the content, fewer only at its end."""
        end, pieces = min(self.size, offset + size), list[bytes]()
        while offset < end:
            number = bisect_right(self._starts, offset) - 1
            start = self._starts[number]
            last = min(end, self._starts[number + 1] if number + 1 < len(self._starts) else self.size)
            pieces.append(self._of_span(number, offset - start, last - start))
            offset = last
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _of_span(self, number: int, begin: int, end: int) -> bytes:
        key = (self._token, number)
        span = _spans.pop(key, None) or _Span(self._pieces(number))  # nobody else inflates it meanwhile
        span.inflate(end)
        _spans[key] = span
        while len(_spans) > SPANS:
            _spans.popitem(last=False)
        if len(span.data) < end:
            message = f"its content ends {end - len(span.data)} bytes early: index it again, or fetch it again"
            raise DataError("truncated", message, url=self.path, offset=self._starts[number] + begin)
        return bytes(memoryview(span.data)[begin:end])

    def _pieces(self, number: int) -> Iterator[bytes]:
        """Yield the content from a point on."""
        at, bits = int(self._points.compressed[number]), int(self._points.bits[number])
        if bits != FRAME:
            return self._inflated(at, bits, self._points.window(int(self._windows[number]) - 1))

        def raw(size: int) -> bytes:
            nonlocal at
            data = self._file.read_upto(at, size)
            at += len(data)
            return data

        return Decompressed(raw, self._form, self.path)

    def _inflated(self, at: int, bits: int, window: bytes) -> Iterator[bytes]:
        """Inflate from a point within a frame, to the end of that."""
        deflated = fast_zlib.decompressobj(wbits=-15, zdict=window)
        before = self._file.read(at - 1, 1) if bits else b""
        while not deflated.eof:
            data = self._file.read_upto(at, FEED)
            if not data:
                return
            at += len(data)
            fed = _shifted(before + data, bits) if bits else data
            before = data[-1:]
            more = True
            try:
                while more:
                    piece, fed, more = zlib_step(deflated, fed)
                    if piece:
                        yield piece
            except (zlib.error, fast_zlib.error) as error:
                message = f"the {self._form.name} stream is corrupt before byte {at} ({error}): fetch the file again"
                raise DataError("corrupt_stream", message, url=self.path) from error


class _Span:
    """The content from a point on, as far as it was wanted until now."""

    __slots__ = ("_pieces", "data")

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.data, self._pieces = bytearray(), pieces

    def inflate(self, end: int) -> None:
        while len(self.data) < end and (piece := next(self._pieces, b"")):
            self.data += piece


_spans: OrderedDict[tuple[object, int], _Span] = OrderedDict()


def _shifted(data: bytes, bits: int) -> bytes:
    """Return the bytes that begin with the last ``bits`` bits of the first byte (deflate counts from the lowest)."""
    codes = np.frombuffer(data, np.uint8)
    shifted: npt.NDArray[np.uint8] = (codes[:-1] >> np.uint8(8 - bits)) | (codes[1:] << np.uint8(bits))
    return shifted.tobytes()
