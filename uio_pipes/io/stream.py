"""Byte sources that the tar reader reads forward: local files, where skipping is free, and streams.

All are read by position (bytes in the uncompressed stream) and return fewer bytes than asked for only at the end. A
stream that breaks ends there, too: ``failure`` then says why.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import BinaryIO, Protocol
from weakref import ref

from uio_pipes.base.clock import READING, timed
from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import FILES, remembers
from uio_pipes.io.access import Access
from uio_pipes.io.compression import Decompressed, detect
from uio_pipes.io.local import os_failure
from uio_pipes.io.opening import Opened, file_object, open_ahead
from uio_pipes.io.readahead import ReadAhead
from uio_pipes.io.references import Payload, RandomFile, Ref

SMALL = 1024  # payloads up to this size are read at once
WINDOW = 4096  # txt header + text + wav header + first bytes of the wav, in one read
HEAD = 256
CHUNK = 1 << 18
MAX_STREAMS = 128  # open at once in a thread
_BROKEN = frozenset(["corrupt_stream", "truncated"])  # failures of the compressed stream itself


class ByteSource(Protocol):
    """The source of a tar reader. It is read at offsets that never decrease."""

    failure: DataError | None

    @property
    def sound(self) -> int | None:
        """The number of sound bytes of a compressed stream that is damaged; None if it is not."""

    @property
    def unchecked(self) -> bool:
        """True if compressed data without a checksum was read."""

    def read_upto(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only at the end of what can be read (see ``failure``)."""

    def payload(self, offset: int, size: int) -> Payload | None:
        """Return the same bytes or a reference to them; None if the source ends before."""

    def close(self) -> None: ...


class _Uncompressed:
    """An uncompressed file: it has no checksums, and no part of it depends on another."""

    sound: int | None = None
    unchecked = False


class LocalBytes(_Uncompressed):
    """A plain local file. Payloads over 1 KB are references, with their first bytes if those were read already."""

    def __init__(self, file: RandomFile) -> None:
        self.failure: DataError | None = None
        self._file, self._size = file, file.size
        self._window, self._start = b"", 0

    def read_upto(self, offset: int, size: int) -> bytes:
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._window):
            self._window, self._start, begin = self._file.read_upto(offset, max(size, WINDOW)), offset, 0
        return self._window[begin : begin + size]

    def payload(self, offset: int, size: int) -> Payload | None:
        if offset + size > self._size:
            return None
        if size <= SMALL:
            data = self.read_upto(offset, size)
            return data if len(data) == size else None
        begin = offset - self._start
        return Ref(self._file, offset, size, self._window[begin : begin + HEAD] if begin >= 0 else b"")

    def close(self) -> None:
        """Do nothing: descriptors are shared, and their number is limited."""


class RemoteBytes(_Uncompressed):
    """A plain remote file, read ahead from the first offset on. Payloads are bytes."""

    def __init__(self, ahead: ReadAhead) -> None:
        self.failure: DataError | None = None
        self._ahead = ahead

    def read_upto(self, offset: int, size: int) -> bytes:
        return self._ahead.read_upto(offset, size)

    def payload(self, offset: int, size: int) -> Payload | None:
        data = self.read_upto(offset, size)
        return data if len(data) == size else None

    def close(self) -> None:
        self._ahead.close()


class StreamBytes:
    """A stream read once from its beginning, decompressed if its first bytes say so, and closed at its end.

    With ``reopen`` it may be closed while many others are read, and is then read again up to where it was. The
    constructor raises ``DataError``: ``empty_file``, ``corrupt_stream``, ``unreadable_file``.
    """

    def __init__(self, fileobj: BinaryIO, url: str, reopen: Callable[[], BinaryIO] | None = None) -> None:
        self.failure: DataError | None = None
        self._frames: Decompressed | None = None
        self._url, self._reopen = url, reopen
        self._buffer, self._start, self._ended = b"", 0, False
        self._begin(fileobj)

    def _begin(self, fileobj: BinaryIO) -> None:
        self._fileobj, self._open = fileobj, True
        self._unread = b""  # bytes of the file that were read to detect its format
        try:
            self._unread = self._raw(CHUNK)
            _refuse_empty(len(self._unread), self._url)
            form = detect(self._unread[:512], self._url)
        except DataError:
            self.close()
            raise
        self._frames = Decompressed(self._raw, form, self._url) if form else None
        self._pieces = self._frames or iter(lambda: self._raw(CHUNK), b"")

    @property
    def sound(self) -> int | None:
        broken = self.failure is not None and self.failure.reason in _BROKEN
        return self._frames.sound if broken and self._frames is not None else None

    @property
    def unchecked(self) -> bool:
        return self._frames is not None and self._frames.unchecked

    def _suspend(self) -> None:
        self._fileobj.close()
        self._open, self._buffer, self._unread, self._pieces = False, b"", b"", iter(())

    def _resume(self) -> None:
        """Open the stream again, and skip what has been read."""
        assert self._reopen is not None
        try:
            self._begin(self._reopen())
        except DataError as error:
            self.failure, self._ended = error, True
            return
        passed = 0
        while passed < self._start and (piece := self._next()):
            passed += len(piece)
            self._buffer = piece[len(piece) - max(0, passed - self._start) :]

    def _use(self) -> None:
        """Become the most recently read stream, and close the oldest if there are too many."""
        if self._reopen is None:
            return
        streams = _open_streams()
        streams[id(self)] = ref(self)
        streams.move_to_end(id(self))
        while len(streams) > MAX_STREAMS:
            oldest = streams.popitem(last=False)[1]()
            if oldest is not None and not oldest._ended:
                oldest._suspend()
        if not self._open:
            self._resume()

    def read_upto(self, offset: int, size: int) -> bytes:
        begin = offset - self._start
        if begin + size > len(self._buffer):
            self._fill(offset, size)
            begin = offset - self._start
        if begin < 0:
            raise ValueError(f"{self._url}: a stream cannot go back from byte {self._start} to {offset}")
        return self._buffer[begin : begin + size]

    def payload(self, offset: int, size: int) -> Payload | None:
        data = self.read_upto(offset, size)
        return data if len(data) == size else None

    def close(self) -> None:
        self._ended = True
        self._fileobj.close()
        _open_streams().pop(id(self), None)

    def _fill(self, offset: int, size: int) -> None:
        """Read on until the buffer holds ``size`` bytes at ``offset``; discard what lies before."""
        if not self._ended:
            self._use()
        keep = max(0, offset - self._start)
        pieces, held = [self._buffer[keep:]], max(0, len(self._buffer) - keep)
        start = self._start + len(self._buffer) - held
        while start + held < offset + size and not self._ended:
            piece = self._next()
            unwanted = min(len(piece), max(0, offset - start - held))
            start += unwanted
            held += len(piece) - unwanted
            pieces.append(piece[unwanted:])
        self._buffer, self._start = b"".join(pieces), start

    def _next(self) -> bytes:
        piece = b""
        try:
            piece = next(self._pieces, b"")
        except DataError as error:
            self.failure = error
        if not piece:
            self.close()
        return piece

    @timed(READING)
    def _raw(self, size: int) -> bytes:
        """Return ``size`` bytes of the file, fewer only at its end. (Network files return what has just come in.)"""
        data, self._unread = self._unread[:size], self._unread[size:]
        while len(data) < size:
            try:
                piece = self._fileobj.read(size - len(data))
            except DataError:
                raise
            except Exception as error:  # each fsspec backend raises classes of its own
                raise os_failure(error if isinstance(error, OSError) else OSError(repr(error)), self._url) from error
            if not piece:
                break
            data += piece
        return data


_local = threading.local()


def _open_streams() -> OrderedDict[int, ref[StreamBytes]]:
    """Return the open streams of this thread, the least recently read first."""
    if not hasattr(_local, "streams"):
        _local.streams = OrderedDict()
    streams: OrderedDict[int, ref[StreamBytes]] = _local.streams
    return streams


remembers("open streams of this thread", lambda: len(_open_streams()), MAX_STREAMS, FILES)


def open_source(url: str, access: Access | None = None, opened: Opened | None = None) -> ByteSource:
    """Open a path or URL as a source: ``LocalBytes`` for a plain local or cached file, ``RemoteBytes`` for a plain
    remote one, otherwise ``StreamBytes``. ``opened``: the result of ``open_ahead``, if there is one already.

    Raises ``DataError`` as ``open_binary``, ``LocalFile`` and ``StreamBytes``.
    """
    found = opened or open_ahead(url, access)
    head = found.head() if isinstance(found, ReadAhead) else found.read_upto(0, 512)
    _refuse_empty(len(head), url)
    if not detect(head, url):
        return RemoteBytes(found) if isinstance(found, ReadAhead) else LocalBytes(found)

    return StreamBytes(file_object(found), url, lambda: file_object(open_ahead(url, access)))


def _refuse_empty(size: int, url: str) -> None:
    if size == 0:
        raise DataError("empty_file", "the file has 0 bytes: fetch or pack it again, or remove its line", url=url)
