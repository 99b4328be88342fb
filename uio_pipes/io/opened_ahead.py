"""Local files on a disk that is slow to open them, as NFS, Lustre and JuiceFS are: threads open and read them ahead.

A thread takes a run of files, so that it hands over once for all of them. What fails there, or was not begun yet
because another file of the run hangs, is done by whoever wants the file, at its turn and with its own error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import READ, remembers
from uio_pipes.io.background import submit
from uio_pipes.io.local import is_known, is_slow, opened_regular, pread

RUN = 4  # files that a thread reads one after the other
THREADS = 64  # 20 ms for a file, and a millisecond of work on it, need 20 and more
WHOLE = 4 << 20  # bytes: of a longer file, of which only a segment may be wanted, only the header is read
HEADER = 4096  # bytes
BUDGET = 512 << 20  # bytes of whole files that wait in the buffers of a process; of others only the header is kept

_held = 0
_lock = threading.RLock()  # a path may be collected while it is held
remembers("files read ahead", lambda: _held, BUDGET)


class LocalPath(str):
    """The path of a local file, with what was read of it ahead. ``others``: where the file is instead if it is not
    here, until that is known; ``missing``: the path that errors name if it is nowhere."""

    __slots__ = ("data", "due", "found", "lock", "missing", "needed", "others", "size")
    data: bytes  # from the beginning of the file
    size: int  # of the file; -1: not known
    due: bool  # a thread is to read it, and has not done so
    needed: bool  # for a batch that is being made
    lock: threading.Lock | None  # of who reads it ahead; None if nobody was to
    found: LocalPath | None  # where it is, if not here
    others: Sequence[str]
    missing: str

    def __new__(cls, path: str, others: Sequence[str] = (), missing: str = "") -> LocalPath:
        self = super().__new__(cls, path)
        self.data, self.size, self.due, self.needed, self.lock = b"", -1, False, False, None
        self.found, self.others, self.missing = None, others, missing
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(settled(self)),)

    @property
    def nbytes(self) -> int:
        """The number of bytes in memory."""
        return len((self.found or self).data)

    @property
    def local_paths(self) -> list[LocalPath]:
        """What fields that refer to local files have, too: the paths to be read ahead."""
        return [self]

    def wanted(self, needed: bool = False) -> bool:
        """Return whether to read it ahead; ``needed``: even if its header was read already. The first ones of a disk
        are read at once, to know whether it is slow."""
        if not is_known(self):
            with suppress(DataError, OSError):
                self.read(needed)
            return False
        path = self.found or self
        begun = self.lock is not None and not (needed and not self.due and len(path.data) < path.size <= WHOLE)
        return not begun and any(map(is_slow, (path, *self.others)))

    def wait(self) -> None:
        """Wait until it is read ahead, or do so if no thread has begun. Raises: DataError ``hung``."""
        if self.lock is not None:
            with self.lock:
                self.read_if_due()

    def read_if_due(self) -> None:
        """Read it if nobody has, and whoever does holds the lock. Raises: DataError ``hung``."""
        try:
            if self.due:
                self.read(self.needed)
        except OSError:
            pass
        except DataError as error:
            if error.reason == "hung":
                raise
        finally:
            self.due = False

    def read(self, needed: bool) -> None:
        """Read the file where it is, if anywhere, or only its header if too much is held already. Raises: DataError,
        OSError."""
        for place in (self.found or self, *map(LocalPath, self.others)):
            try:
                place._read(needed)
            except DataError as error:
                if error.reason != "missing_file":
                    raise
            else:
                self.found, self.others = None if place is self else place, ()
                break

    def _read(self, needed: bool) -> None:
        global _held
        number, status = opened_regular(self)
        data, size = b"", status.st_size
        with _lock:
            count = size if size <= WHOLE and (needed or _held + size <= BUDGET) else HEADER
            _held += count
        try:
            data = pread(number, count, 0)
            READ[0] += len(data)
        finally:
            os.close(number)
            with _lock:
                _held += len(data) - count - len(self.data)
                self.data, self.size = data, size

    def __del__(self) -> None:
        global _held
        if self.data and _lock is not None:  # at the end of the process, it is gone
            with _lock:
                _held -= len(self.data)


def settled(value: Any) -> Any:
    """Return the path where a file is, as it was found ahead, or else it is looked for now; another value as it is."""
    if not isinstance(value, LocalPath):
        return value
    if value.others:
        value.wait()
    if value.others:
        value.found = LocalPath(next(filter(os.path.exists, (value, *value.others)), value.missing))
        value.others = ()
    if value.found is not None:
        value.found.lock, value.found.due, value.found.needed = value.lock, value.due, value.needed
    return value.found or value


def begun(path: str) -> tuple[bytes, int]:
    """Return what was read ahead of a file, and its size; no bytes if nothing was, or if the file is empty."""
    if not isinstance(path, LocalPath):
        return b"", -1
    path.wait()
    found: LocalPath = settled(path)
    return found.data, found.size


def whole(path: str) -> bytes | None:
    """Return the content of a file if it was read ahead, else None."""
    data, size = begun(path)
    return data if len(data) == size > 0 else None


def read_ahead(paths: Sequence[LocalPath], needed: bool) -> None:
    """Begin to read files; ``needed``: at once, so that their bytes are not too much, however many are held."""

    def read(run: list[LocalPath]) -> None:
        while run:
            path = run.pop()
            lock = path.lock
            assert lock is not None
            if lock.acquire(blocking=False):  # else whoever wants it is at it
                try:
                    path.read_if_due()
                    del path  # or it would be kept for as long as this thread has to wait for its turn
                finally:
                    lock.release()

    for path in paths:
        path.lock, path.due, path.needed = threading.Lock(), True, needed
    for at in range(0, len(paths), RUN):
        submit(lambda _, run=[*paths[at : at + RUN]][::-1]: read(run), THREADS)  # type: ignore[misc]
