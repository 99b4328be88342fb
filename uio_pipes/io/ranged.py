"""Remote files, read by position, with retries."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from uio_pipes.base.clock import READING, timed
from uio_pipes.base.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.io.references import read_exactly
from uio_pipes.io.retry import Identity, Short, check_same, keep_trying
from uio_pipes.io.transport import Stream, Transport, transport

Wait = Callable[[float], object]


class RemoteFile:
    """A file read by ranges through HTTP or fsspec. Picklable; safe to use from threads and after a fork.

    Size and ETag are those of the first answer; if they differ later, that is ``DataError("changed_file")``. After a
    fault that may pass, reading goes on from the offset reached (see ``retry.py``). Other reasons: ``missing_file``,
    ``unreadable_file`` (also 401 and 403), ``unopenable``.
    """

    __slots__ = ("_access", "_identity", "_transport", "path")

    def __init__(self, url: str, access: Access | None = None) -> None:
        self.path = url
        self._access = access or Access()
        self._identity: Identity | None = None
        self._transport: Transport | None = None

    def __getstate__(self) -> tuple[str, Access, Identity | None]:
        return self.path, self._access, self._identity

    def __setstate__(self, state: tuple[str, Access, Identity | None]) -> None:
        self.path, self._access, self._identity = state
        self._transport = None

    @property
    def access(self) -> Access:
        return self._access

    @property
    def identity(self) -> Identity:
        """The file as the server first described it."""
        if self._identity is None:

            def step(_: int) -> int:
                self._identity = self.transport.identity()
                return 0

            _trying(self, step, 0, 0)
        assert self._identity is not None
        return self._identity

    @property
    def known(self) -> bool:
        """True if ``identity`` and ``size`` need no request."""
        return self._identity is not None

    @property
    def size(self) -> int:
        """Size in bytes."""
        size = self.identity.size
        if size is None:
            raise DataError("unreadable_file", "the server does not give the size of the file", url=self.path)
        return size

    @property
    def stamp(self) -> str:
        """A text by which a saved state recognizes the file: ``etag:…``, else ``size:N``, or ``""`` if unknown."""
        return self.identity.stamp

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly ``size`` bytes at ``offset``; ``DataError("truncated")`` if the file ends before."""
        return read_exactly(self, offset, size)

    def read_upto(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only where the file ends."""
        view = self.fetch(offset, size)
        data = bytes(view)
        give_back(view)
        return data

    def tail(self, size: int) -> bytes:
        """Return the last ``size`` bytes, or all of a shorter file, by a single request where the server can."""
        if not self.known and (found := self.transport.tail(size)) is not None:
            data, self._identity = found
            return data
        return self.read(max(0, self.size - size), min(size, self.size))

    @timed(READING)
    def fetch(self, offset: int, size: int, wait: Wait | None = None) -> memoryview:
        """Read as :meth:`read_upto` does, without a copy."""
        return _fetch(self, self._fill, offset, size, wait)

    def _fill(self, view: memoryview, offset: int) -> int:
        got, identity = self.transport.fill(view, offset, self._identity)
        if self._identity is None:
            self._identity = identity
        return got

    @property
    def transport(self) -> Transport:
        if self._transport is None:
            self._transport = transport(self.path, self._access)
        return self._transport

    def __repr__(self) -> str:
        return f"RemoteFile({self._access.redact(self.path)!r})"


class Sequential:
    """A remote file on a server without ranges, read by one request; after a fault, from the beginning again."""

    def __init__(self, file: RemoteFile) -> None:
        self.file = file
        self._stream: Stream | None = None
        self._lock = threading.Lock()

    def fetch(self, offset: int, size: int, wait: Wait | None = None) -> memoryview:
        """Read as :meth:`RemoteFile.fetch` does; cheap where ``offset`` is the end of the last read."""
        return _fetch(self.file, self._fill, offset, size, wait)

    def _fill(self, view: memoryview, offset: int) -> int:
        stream = self._take()  # put back only if all goes well
        if stream is not None and stream.at > offset:
            stream.close()
            stream = None
        stream = stream or self.file.transport.stream()
        try:
            check_same(self.file.identity, stream.identity)
            stream.pass_over(offset)
            got = stream.fill(view)
        except BaseException:
            stream.close()
            raise
        self._stream = stream
        return got

    def _take(self) -> Stream | None:
        with self._lock:
            stream, self._stream = self._stream, None
        return stream

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        if (stream := self._take()) is not None:
            stream.close()


_SMALLEST, _LARGEST = 1 << 16, 8 << 20  # bytes of a buffer that is used again
_spare: deque[bytearray] = deque(maxlen=16)


def give_back(view: memoryview) -> None:
    """Take back what ``fetch`` returned, once nobody reads it: the next fetch uses its memory, which is in place."""
    if isinstance(view.obj, bytearray) and len(view.obj) <= _LARGEST:
        _spare.append(view.obj)


def _buffer(size: int) -> memoryview:
    """Return ``size`` bytes of a buffer whose own size is a power of two, so that spare ones fit."""
    whole = max(_SMALLEST, 1 << (size - 1).bit_length()) if size <= _LARGEST else size
    for _ in range(len(_spare)):
        with contextlib.suppress(IndexError):  # another thread took it
            if len(spare := _spare.popleft()) == whole:
                return memoryview(spare)[:size]
            _spare.append(spare)
    return memoryview(bytearray(whole))[:size]


def _fetch(
    file: RemoteFile, fill: Callable[[memoryview, int], int], offset: int, size: int, wait: Wait | None
) -> memoryview:
    if file.known and file.identity.size is not None:
        size = min(size, max(0, file.identity.size - offset))
    if size == 0:
        return memoryview(b"")
    view = _buffer(size)

    def step(reached: int) -> int:
        got = fill(view[reached:], offset + reached)
        if not _is_all(file, offset + reached, size - reached, got):
            raise Short(got, size - reached)
        return got

    return view[: _trying(file, step, size, offset, wait)]


def _is_all(file: RemoteFile, offset: int, wanted: int, got: int) -> bool:
    """Return whether ``got`` bytes are all that were wanted, or all up to the end of the file."""
    total, ranges = file.identity.size, file.identity.ranges
    if total is None:  # then the end of the body is the end; with ranges, an empty answer is
        return got == wanted or not ranges or got == 0
    return got >= min(wanted, total - offset)


def _trying(file: RemoteFile, step: Callable[[int], int], size: int, offset: int, wait: Wait | None = None) -> int:
    try:
        return keep_trying(step, size, file.path, offset, wait)
    except DataError as error:  # without the cause: its traceback may show secrets
        url = error.url or file.path
        raise DataError(error.reason, file.access.redact(error.message), url=url, offset=error.offset) from None
