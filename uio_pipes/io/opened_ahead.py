"""Local files on a disk that is slow to open them, as NFS, Lustre and JuiceFS are: threads open and read them ahead.

A thread takes a run of files, so that it hands over once for all of them. What fails there is done again by whoever
wants the file, at its turn and with its own error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import READ, remembers
from uio_pipes.io.background import Job, submit
from uio_pipes.io.local import is_slow, opened_regular, pread

RUN = 4  # files that a thread reads one after the other
THREADS = 64  # 20 ms for a file, and a millisecond of work on it, need 20 and more
WHOLE = 4 << 20  # bytes: of a longer file, of which only a segment may be wanted, only the header is read
HEADER = 4096  # bytes
BUDGET = 512 << 20  # bytes of whole files that wait in the buffers of a process; of others only the header is kept

_held = 0
_lock = threading.RLock()  # a path may be collected while it is held


class LocalPath(str):
    """The path of a local file, with what was read of it ahead: ``data`` from its beginning, of ``size`` bytes."""

    __slots__ = ("_data", "_job", "_size")

    def __new__(cls, path: str) -> LocalPath:
        self = super().__new__(cls, path)
        self._data, self._size, self._job = b"", -1, None
        return self

    _data: bytes
    _size: int
    _job: Job[None] | None

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def is_wanted(self) -> bool:
        """Whether it is worth while to read it ahead."""
        return self._job is None and is_slow(self.removeprefix("file://"))

    @property
    def is_partial(self) -> bool:
        """Whether only its header was kept, although it is not long."""
        return self._job is not None and self._job.over and len(self._data) < self._size <= WHOLE

    @property
    def nbytes(self) -> int:
        """The number of bytes in memory."""
        return len(self._data)

    def begun(self) -> tuple[bytes, int]:
        """Return what was read ahead, and the size of the file; nothing if nothing was, or the file is empty."""
        if self._job is not None:
            self._job.wait()
        return self._data, self._size

    def read(self, needed: bool) -> None:
        """Read the file, or only its header if too much is held already. Raises: DataError, OSError."""
        global _held
        number, status = opened_regular(self.removeprefix("file://"))
        data, size = b"", status.st_size
        with _lock:
            fits = needed or _held + size <= BUDGET
            count = size if size <= WHOLE and fits else HEADER
            _held += count - len(self._data)
        try:
            data = pread(number, count, 0)
            READ[0] += len(data)
        finally:
            os.close(number)
            with _lock:
                _held += len(data) - count
                self._data, self._size = data, size

    def __del__(self) -> None:
        global _held
        if self._data:
            with _lock:
                _held -= len(self._data)


def whole(path: str) -> bytes | None:
    """Return the content of a file if it was read ahead, else None."""
    data, size = path.begun() if isinstance(path, LocalPath) else (b"", -1)
    return data if len(data) == size > 0 else None


def read_ahead(paths: Sequence[LocalPath], needed: bool) -> None:
    """Begin to read files; ``needed``: at once, so that their bytes are not too much, however many are held."""
    for at in range(0, len(paths), RUN):
        run = paths[at : at + RUN]
        job = submit(lambda _, run=run: _read(run, needed), THREADS)  # type: ignore[misc]
        for path in run:
            path._job = job


def _read(paths: Iterable[LocalPath], needed: bool) -> None:
    for path in paths:
        with suppress(DataError, OSError):
            path.read(needed)


remembers("files read ahead", lambda: _held, BUDGET)
