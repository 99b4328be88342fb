"""Local files on a disk that is slow to open them, as NFS, Lustre and JuiceFS are: threads open and read them ahead.

A thread takes a run of files, so that it hands over once for all of them. What fails there is done again by whoever
wants the file, at its turn and with its own error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import READ, remembers
from uio_pipes.io.background import Job, submit
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

    __slots__ = ("data", "found", "job", "missing", "others", "size")
    data: bytes  # from the beginning of the file
    size: int  # of the file; -1: not known
    job: Job[None] | None
    found: LocalPath | None  # where it is, if not here
    others: Sequence[str]
    missing: str

    def __new__(cls, path: str, others: Sequence[str] = (), missing: str = "") -> LocalPath:
        self = super().__new__(cls, path)
        self.data, self.size, self.job, self.found = b"", -1, None, None
        self.others, self.missing = others, missing
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
        begun = self.job is not None and not (needed and self.job.over and len(path.data) < path.size <= WHOLE)
        return not begun and any(map(is_slow, (path, *self.others)))

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
    if value.others and value.job is not None:
        value.job.wait()
    if value.others:
        value.found = LocalPath(next(filter(os.path.exists, (value, *value.others)), value.missing))
        value.others = ()
    if value.found is not None:
        value.found.job = value.job
    return value.found or value


def begun(path: str) -> tuple[bytes, int]:
    """Return what was read ahead of a file, and its size; no bytes if nothing was, or if the file is empty."""
    if not isinstance(path, LocalPath):
        return b"", -1
    if path.job is not None:
        path.job.wait()
    found: LocalPath = settled(path)
    return found.data, found.size


def whole(path: str) -> bytes | None:
    """Return the content of a file if it was read ahead, else None."""
    data, size = begun(path)
    return data if len(data) == size > 0 else None


def read_ahead(paths: Sequence[LocalPath], needed: bool) -> None:
    """Begin to read files; ``needed``: at once, so that their bytes are not too much, however many are held."""

    def read(run: Sequence[LocalPath]) -> None:
        for path in run:
            with suppress(DataError, OSError):
                path.read(needed)

    for at in range(0, len(paths), RUN):
        run = paths[at : at + RUN]
        job = submit(lambda _, run=run: read(run), THREADS)  # type: ignore[misc]
        for path in run:
            path.job = job
