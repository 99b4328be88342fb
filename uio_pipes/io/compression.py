"""Compressed streams: detecting the format, decompressing with every cut or corruption noticed, and reading compressed
files at random from seek points.

A stream of gzip can only be inflated from its beginning, unless one knows a place where a deflate block begins, and the
32 KiB of content before it. A frame (a gzip member, a frame of zstd) needs no such window.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import zstandard

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import remembers
from uio_pipes.base.urls import is_named
from uio_pipes.io.references import RandomFile, read_exactly

fast_zlib: ModuleType = zlib
with contextlib.suppress(ImportError):
    from isal import isal_zlib as fast_zlib  # the same, faster

FEED = 1 << 16  # compressed bytes at a time: fixed, so that an error is always found at the same place
PIECE = 1 << 20  # bytes decompressed at a time, roughly
HELD = 1 << 18  # bytes of a frame held back until its checksum is known to be right
BOMB_RATIO, BOMB_SIZE = 500, 64 << 20  # no speech compresses so well; checked after so many decompressed bytes


class Decompressor(Protocol):
    """The common interface of all five libraries, for one frame: ``eof`` at its end, ``unused_data`` after it."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


# Feeds data to a frame. Returns about PIECE bytes of output, the data left over, and whether more output is waiting.
DecompressStep = Callable[[Any, bytes], tuple[bytes, bytes, bool]]


def zlib_step(frame: Any, data: bytes) -> tuple[bytes, bytes, bool]:
    """Feed ``data`` to zlib's decompressor: the step of gzip."""
    piece = frame.decompress(data, PIECE)
    rest = b"" if frame.eof else frame.unconsumed_tail
    return piece, rest, not frame.eof and (bool(rest) or len(piece) >= PIECE)


def _library_step(frame: Any, data: bytes) -> tuple[bytes, bytes, bool]:
    piece = frame.decompress(data, PIECE)
    return piece, b"", not frame.eof and not frame.needs_input


MEMORY = 1 << 27  # bytes that a stream may make its reader keep: as `zstd --long`, and more than any preset of xz
_ZSTD = b"\x28\xb5\x2f\xfd"
_NO_CHECK = (lzma.CHECK_NONE, lzma.CHECK_UNKNOWN)


class _ZstdFrame:
    """A zstd frame, fed in small steps where it swells: zstd's output has no bound, 4 bytes may stand for 128 KiB."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=MEMORY).decompressobj()
        self._feed = 1 << 13
        self._passed = b""  # data after the end of the frame, which it was not fed
        self._head = b""

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + self._passed

    @property
    def checks(self) -> bool:
        """True if the frame ends with a checksum of its content. (Skippable frames have no content.)"""
        return self._head[:4] != _ZSTD or bool(self._head[4] & 4)

    def step(self, data: bytes) -> tuple[bytes, bytes, bool]:
        pieces, made = [], 0
        self._head += data[: 5 - len(self._head)]
        while data and made < PIECE:
            fed, data = data[: self._feed], data[self._feed :]
            pieces.append(self._frame.decompress(fed))
            made += len(pieces[-1])
            self._feed = 1 << 7 if len(pieces[-1]) > 64 * len(fed) else 1 << 13
            if self._frame.eof:
                self._passed, data = data, b""
        return b"".join(pieces), data, bool(data)


class Compression(NamedTuple):
    """A compression format; a frame begins with one of ``magics``."""

    name: str
    magics: tuple[bytes, ...]
    suffixes: tuple[str, ...]
    decompressor: Callable[[], Decompressor]
    step: DecompressStep
    checks: Callable[[Any], bool] = lambda frame: True  # whether a frame, read to its end, had a checksum

    def begins(self, data: bytes) -> bool:
        """Return whether a frame may begin with ``data``, which is not empty, but may be shorter than the magic."""
        return any(data[: len(magic)] == magic[: len(data)] for magic in self.magics)


_SKIPPABLE = tuple(bytes([byte]) + b"\x2a\x4d\x18" for byte in range(0x50, 0x60))  # pzstd writes such frames
_FORMATS = (
    Compression("gzip", (b"\x1f\x8b",), (".gz", ".tgz"), lambda: fast_zlib.decompressobj(wbits=31), zlib_step),
    Compression("zstd", (_ZSTD, *_SKIPPABLE), (".zst",), _ZstdFrame, _ZstdFrame.step, lambda frame: bool(frame.checks)),
    Compression("bzip2", (b"BZh",), (".bz2",), bz2.BZ2Decompressor, _library_step),
    Compression(
        "xz",
        (b"\xfd7zXZ\0",),
        (".xz",),
        lambda: lzma.LZMADecompressor(memlimit=2 * MEMORY),
        _library_step,
        lambda frame: frame.check not in _NO_CHECK,
    ),
)
_ERRORS: tuple[type[Exception], ...] = (
    zlib.error,
    fast_zlib.error,
    zstandard.ZstdError,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
)


def detect(head: bytes, url: str) -> Compression | None:
    """Return the compression of a file by its first bytes (about 512), None if it is not compressed.

    Raises: DataError ``corrupt_stream`` if only the name says that it is compressed.
    """
    if head[257:262] == b"ustar":  # checked first: the name of a member may begin with BZh
        return None
    if found := next((each for each in _FORMATS if head and each.begins(head)), None):
        return found
    if named := next((each for each in _FORMATS if is_named(url, each.suffixes)), None):
        message = f"named like {named.name}, but it begins with {head[:16]!r}: fetch or pack the file again"
        raise DataError("corrupt_stream", message, url=url, offset=0)
    return None


class Decompressed(Iterator[bytes]):
    """The content of a compressed stream in non-empty pieces. ``raw(n)`` returns its next n bytes, fewer at the end.

    A frame of up to ``HELD`` bytes is given out only after its checksum, which stands at its end, was found right; a
    larger one as it is read. Raises ``DataError``: ``corrupt_stream``, ``truncated`` if the stream ends within a frame,
    or ``bomb``.

    Attributes:
        sound: bytes that came from frames that ended well.
        unchecked: whether a frame had no checksum of its content.
        frame: where the frame begins that is being read, in the file and in the content.
    """

    def __init__(self, raw: Callable[[int], bytes], form: Compression, url: str) -> None:
        self.sound, self.unchecked, self.frame = 0, False, (0, 0)
        self._raw, self._form, self._url = raw, form, url
        self._fed = self._made = 0
        self._data = b""  # compressed data not yet used
        self._pieces = self._frames()

    def __next__(self) -> bytes:
        return next(self._pieces)

    def _frames(self) -> Iterator[bytes]:
        while self._feed():
            self._data = self._data.lstrip(b"\0")  # zeros may follow a frame
            if self._data:
                yield from self._frame()

    def _feed(self) -> bytes:
        """Return the data to decompress next; b"" at the end."""
        if not self._data:
            self._data = self._raw(FEED)
            self._fed += len(self._data)
        return self._data

    def _frame(self) -> Iterator[bytes]:
        if not self._form.begins(self._data):
            raise self._corrupt(f"{self._data[:8]!r} follows the end of a frame")
        frame, held, size = self._form.decompressor(), list[bytes](), 0
        self.frame = self._fed - len(self._data), self._made
        while not frame.eof:
            for piece in self._step(frame):
                held.append(piece)
                size += len(piece)
                if size > HELD:
                    yield from held
                    held.clear()
        self._data = frame.unused_data
        self.unchecked |= not self._form.checks(frame)
        self.sound = self._made
        yield from held

    def _step(self, frame: Decompressor) -> Iterator[bytes]:
        """Feed the frame, and give its output in pieces."""
        if not self._feed():
            message = f"the {self._form.name} stream is cut off after {self._fed} bytes: fetch the file again"
            raise DataError("truncated", message, url=self._url)
        more = True
        while more:
            try:
                piece, self._data, more = self._form.step(frame, self._data)
            except _ERRORS as error:
                raise self._corrupt(str(error)) from error
            self._made += len(piece)
            if self._made > BOMB_SIZE and self._made > BOMB_RATIO * self._fed:
                if sound := piece[: max(0, BOMB_SIZE + len(piece) - self._made)]:
                    yield sound
                message = f"{self._fed} bytes of {self._form.name} swell to more than {self._made}: pack the file again"
                raise DataError("bomb", message, url=self._url)
            if piece:
                yield piece

    def _corrupt(self, what: str) -> DataError:
        message = f"the {self._form.name} stream is corrupt within its first {self._fed} bytes ({what})"
        return DataError("corrupt_stream", f"{message}: fetch the file again", url=self._url)


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
    """The content of a compressed ``file``, read by position: see :class:`~uio_pipes.io.references.RandomFile`.

    The content between two points is inflated as far as it is wanted, and that of a few stretches is kept, so that
    neighbours cost nothing more.
    """

    def __init__(self, file: RandomFile, form: Compression, points: SeekPoints) -> None:
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
remembers("inflated stretches", lambda: sum(len(one.data) for one in list(_spans.values())), SPANS * SPACING)


def _shifted(data: bytes, bits: int) -> bytes:
    """Return the bytes that begin with the last ``bits`` bits of the first byte (deflate counts from the lowest)."""
    codes = np.frombuffer(data, np.uint8)
    shifted: npt.NDArray[np.uint8] = (codes[:-1] >> np.uint8(8 - bits)) | (codes[1:] << np.uint8(bits))
    return shifted.tobytes()
