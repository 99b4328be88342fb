"""Files that are written completely or not at all, or by one process for several."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from uio_pipes.base.urls import unsigned

T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name ``path`` in the error of a full disk: the system's own error names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in FULL:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def atomic_path(path: Path, name: str | None = None) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it becomes ``path`` when the block ends without an error, and is removed
    otherwise. ``name``: of the temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(name or f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file, one line for each item."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def plain(path: str, flags: int) -> int:
    """Open a file for ``open(path, opener=plain)``. Raises: OSError also for what is none, as a named pipe, which would
    be waited for, or a device, which has no end."""
    number = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "not a plain file", path)
    return number


def read_bytes(path: Path) -> bytes:
    """Return the content of a plain file. Raises: OSError."""
    with open(path, "rb", opener=plain) as file:
        return file.read()


def kept_path(names: Sequence[str], cache: str | None, suffix: str) -> Path:
    """Return the path of the file that keeps what is known of the files ``names`` from one start to the next.

    It lies in the folder ``cache``, or else in ``uio_pipes`` of the user's cache (``XDG_CACHE_HOME``).
    """
    start = "" if all(name.startswith("/") or "://" in name for name in names) else os.getcwd()
    text = "\n".join([start, *(unsigned(name) if "?" in name else name for name in names)])
    key = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    own = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return (Path(cache, "uio-catalogues") if cache else Path(own, "uio_pipes")) / f"{key}{suffix}"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``, which other processes wait for. Its folder is made. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb", opener=plain) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(path: Path, read: Callable[[], T | None], make: Callable[[], T]) -> T:
    """Return what ``read`` finds in the file ``path``, or else what the first process makes and writes, for which
    others wait. Raises: OSError."""
    if (found := read()) is None:
        with locked(path.with_suffix(".lock")):
            found = read()
            return make() if found is None else found
    return found
