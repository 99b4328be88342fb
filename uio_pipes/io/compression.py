"""Compressed streams: detection of the format, and decompression that notices every cut or corrupt stream."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import zstandard

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import is_named

fast_zlib: ModuleType = zlib
with contextlib.suppress(ImportError):
    from isal import isal_zlib as fast_zlib  # the same, faster

FEED = 1 << 16  # compressed bytes at a time: fixed, so that an error is always found at the same place
PIECE = 1 << 20  # bytes decompressed at a time, roughly
HELD = 1 << 18  # bytes of a frame held back until its checksum is known to be right
BOMB_RATIO, BOMB_SIZE = 500, 64 << 20  # no speech compresses so well; checked after so many decompressed bytes


class Decompressor(Protocol):
    """The interface of all five libraries for one frame: ``eof`` at its end, ``unused_data`` after it."""

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


WINDOW = 1 << 27  # bytes that a stream may make its reader keep: as `zstd --long`, and more than any preset of xz
_ZSTD = b"\x28\xb5\x2f\xfd"
_NO_CHECK = (lzma.CHECK_NONE, lzma.CHECK_UNKNOWN)


class _ZstdFrame:
    """A zstd frame, fed in small steps where it swells: zstd's output has no bound, 4 bytes may stand for 128 KiB."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()
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


class Format(NamedTuple):
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
    Format("gzip", (b"\x1f\x8b",), (".gz", ".tgz"), lambda: fast_zlib.decompressobj(wbits=31), zlib_step),
    Format("zstd", (_ZSTD, *_SKIPPABLE), (".zst",), _ZstdFrame, _ZstdFrame.step, lambda frame: bool(frame.checks)),
    Format("bzip2", (b"BZh",), (".bz2",), bz2.BZ2Decompressor, _library_step),
    Format(
        "xz",
        (b"\xfd7zXZ\0",),
        (".xz",),
        lambda: lzma.LZMADecompressor(memlimit=2 * WINDOW),
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


def detect(head: bytes, url: str) -> Format | None:
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

    def __init__(self, raw: Callable[[int], bytes], form: Format, url: str) -> None:
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
