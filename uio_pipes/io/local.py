"""Local files, read by position, and references to bytes in them. They are never mapped: a file that is truncated
meanwhile must not end in SIGBUS."""

from __future__ import annotations

import errno
import io
import os
import resource
import stat
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import BinaryIO, cast

from uio_pipes.base import clock
from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import FILES, READ, remembers
from uio_pipes.base.urls import suffix_of
from uio_pipes.io.references import read_exactly

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: str | os.PathLike[str], url: str = "") -> BinaryIO:
    """Open a regular file as ``open(path, "rb")`` does. Errors call it ``url``, if that is given.

    Raises: DataError ``missing_file`` or ``unreadable_file``.
    """
    return open(regular(path, url), "rb")


FileData = bytes | str | os.PathLike[str] | io.RawIOBase  # the bytes of a file, a local file, or one that is open


def open_data(data: FileData) -> AbstractContextManager[BinaryIO]:
    """Open the bytes of a file, or a local file as ``open_regular`` does. A file that is open already is read from its
    beginning again, and stays open."""
    if isinstance(data, io.RawIOBase):
        data.seek(0)
        return nullcontext(cast(BinaryIO, data))
    return io.BytesIO(data) if isinstance(data, bytes) else open_regular(data)


@contextmanager
def opened_raw(path: str | os.PathLike[str]) -> Iterator[io.FileIO]:
    """Open a regular file without a buffer. Raises: DataError as ``open_regular``, and ``unreadable_file``."""
    with open(regular(path), "rb", buffering=0) as file:
        try:
            yield file
        except OSError as error:
            raise os_failure(error, os.fspath(path)) from error


def regular(path: str | os.PathLike[str], url: str = "") -> int:
    """Open a regular file without waiting, and return its descriptor. Raises: DataError as ``open_regular``.

    The kind is that of the descriptor, not of the path, which may lead elsewhere meanwhile.
    """
    number, _ = opened_regular(os.fspath(path), url)
    os.set_blocking(number, True)
    return number


pread = clock.timed(clock.READING)(os.pread)


@clock.timed(clock.READING)
def opened_regular(path: str, url: str = "") -> tuple[int, os.stat_result]:
    """Like :func:`regular`, with what the system says of the file, for those who only read by position."""
    url, began = url or path, perf_counter()
    try:
        number = _opened(path)
    except FileNotFoundError as error:
        raise os_failure(error, url) from error
    except OSError as error:
        raise _kind(path, url) or os_failure(error, url) from error
    except ValueError as error:
        message = "no such file: its name holds a NUL byte; correct the list"
        raise DataError("missing_file", message, url=url) from error
    finally:
        _openings[_place(path)].append(perf_counter() - began)
    status = os.fstat(number)
    if (found := _not_regular(status.st_mode, url)) is not None:
        os.close(number)
        raise found
    return number, status


def is_slow(path: str) -> bool:
    """Return whether it takes long to open files that lie where ``path`` does, by the last ones that were opened."""
    return is_known(path) and sorted(took := _openings[_place(path)])[len(took) // 2] > SLOW


def is_known(path: str) -> bool:
    """Return whether enough files were opened there to tell."""
    return len(_openings.get(_place(path), ())) >= LAST // 2


def _place(path: str) -> str:
    """Return the beginning of a path, by which mounts are told from each other: ``/mnt/corpora``."""
    folder = path.rpartition("/")[0]
    return "/".join(folder.split("/", 3)[:3]) if folder[:1] == "/" else ""


LAST, SLOW = 8, 5e-4  # openings; seconds: one of a local disk takes 5 to 100 µs
_openings = defaultdict[str, deque[float]](lambda: deque(maxlen=LAST))


def _opened(path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:  # another process holds a lease, which it gives up if we wait
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise
        return os.open(path, flags)
    except OSError as error:
        if error.errno not in _TOO_MANY or not _descriptors:
            raise
        with _lock:
            _descriptors.clear()
        return _opened(path)


def _kind(path: str, url: str) -> DataError | None:
    """Return the error for what cannot even be opened since it is not a file (a socket), None for a file."""
    try:
        return _not_regular(os.stat(path).st_mode, url)
    except OSError:
        return None


def _not_regular(mode: int, url: str) -> DataError | None:
    if stat.S_ISREG(mode) or url == os.devnull:  # /dev/null ends at once: many use it as an empty file
        return None
    kind = next((name for fits, name in _KINDS if fits(mode)), "not a file")
    return DataError("unreadable_file", f"it is {kind}, where a file is needed: correct the list, or copy it", url=url)


def os_failure(error: OSError, url: str) -> DataError:
    """Return the ``DataError`` for an error of the operating system, or of fsspec, which raises the same classes."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if len(words := url.split()) > 1 and suffix_of(url) and len(set(map(suffix_of, words))) == 1:
            message = (
                f"no such file. The line names {len(words)} files, as ESPnet's wav.scp of several channels does, and "
                f"of each line one is read: join them first (sox -M {' '.join(words)} joined.wav), or name the channel "
                "that is wanted"
            )
            return DataError("missing_file", message, url=url)
        start = " (relative paths start at the working directory, those of a list at its folder first)"
        near = "" if "://" in url or os.path.isabs(url) else start
        return DataError("missing_file", f"no such file: correct the list{near} or fetch the file", url=url)
    if isinstance(error, PermissionError):
        message = "permission denied: make the file and its folders readable for this user, or check the credentials"
        return DataError("unreadable_file", message, url=url)
    remedy = "check the disk or the connection"
    if error.errno in _TOO_MANY:
        remedy = "allow more with `ulimit -n 4096`, or close what the program itself keeps open"
    return DataError("unreadable_file", f"reading failed ({error}): {remedy}", url=url)


_TOO_MANY = (errno.EMFILE, errno.ENFILE)
MAX_OPEN = 128  # or half of what `ulimit -n` allows: others open files, too
LOOK = 50_000_000  # nanoseconds after which it is asked again whether a file has changed


class LocalFile:
    """A local file, opened when first read; any number of these share at most 128 open descriptors in a process
    (fewer where `ulimit -n` allows less than 256).

    Every method raises ``DataError``: ``missing_file``, ``unreadable_file``, or ``changed_file`` if the file's size,
    mtime or inode is not what it was at first: this is asked on re-opening, where the file ends, and every 50 ms. (For
    each read it would cost more than the read.) Picklable; safe to use from threads and after a fork.
    """

    __slots__ = ("_key", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._key: _Key = path, None

    def __getstate__(self) -> _Key:
        return self._key

    def __setstate__(self, state: _Key) -> None:
        self.path, self._key = state[0], state

    @property
    def size(self) -> int:
        """Size in bytes at the first opening."""
        if self._key[1] is None:
            self._opened()
        assert self._key[1] is not None
        return self._key[1][0]

    @property
    def identity(self) -> tuple[int, str]:
        """Its size and ``mtime:ns`` at the first opening."""
        return self.size, f"mtime:{self._key[1][1] if self._key[1] else 0}"

    @property
    def stamp(self) -> str:
        """A text by which a saved state recognizes the file: ``size:N``."""
        return f"size:{self.size}"

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly ``size`` bytes at ``offset``; ``DataError("truncated")`` if the file ends earlier."""
        return read_exactly(self, offset, size)

    def read_upto(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only where the file ends."""
        descriptor = _descriptors.get(self._key) or self._opened()  # open as long as we hold it
        began = 0 if clock.running is None else clock.now()
        try:
            data = os.pread(descriptor.number, size, offset)
            while len(data) < size and (more := os.pread(descriptor.number, size - len(data), offset + len(data))):
                data += more  # the kernel returns at most 2 GiB at once
        except OSError as error:
            raise os_failure(error, self.path) from error
        ended, running = clock.now(), clock.running
        if began and running is not None and ended - began >= running.reads:
            running.keep(clock.READING, began, ended)
        READ[0] += len(data)
        if len(data) < size or ended - descriptor.seen > LOOK:
            self._check(os.fstat(descriptor.number))
            descriptor.seen = ended
        return data

    def _check(self, status: os.stat_result) -> tuple[int, int, int]:
        """Return the file's size, mtime and inode. Raises: DataError ``changed_file``."""
        identity = (status.st_size, status.st_mtime_ns, status.st_ino)
        if (first := self._key[1] or identity) == identity:
            return identity
        changes = zip(("size", "mtime_ns", "inode"), first, identity, strict=True)
        changed = ", ".join(f"{name} {old} -> {new}" for name, old, new in changes if old != new)
        touched = "; touch counts, as a file written to in place keeps its size" if first[::2] == identity[::2] else ""
        message = f"the file was replaced or overwritten while it was in use ({changed}{touched})"
        raise DataError("changed_file", f"{message}: start again when the files no longer change", url=self.path)

    def _opened(self) -> _Descriptor:
        """Open the file, as one of the 128 that were opened last. Raises: DataError ``changed_file``."""
        number, status = opened_regular(self.path)
        descriptor = _Descriptor(number)
        with _lock:
            self._key = self.path, self._check(status)
            _descriptors[self._key] = descriptor
            allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            most = MAX_OPEN if allowed == resource.RLIM_INFINITY else min(MAX_OPEN, allowed // 2)
            while len(_descriptors) > most:
                _descriptors.popitem(last=False)
        return descriptor

    def look(self) -> None:
        """Raises: DataError ``changed_file`` if the file is not what it was at first."""
        self._check(os.fstat((_descriptors.get(self._key) or self._opened()).number))


class _Descriptor:
    """An open descriptor, closed by whoever holds it last. No weak reference to it can be made: one would hand it out
    to another thread while it is being closed."""

    __slots__ = ("number", "seen")

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, clock.now()  # when the file was last known to be as at first

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at the end of the process, os is gone
        close(self.number)


_Key = tuple[str, tuple[int, int, int] | None]  # the path; size, mtime_ns and inode at the first opening
_descriptors: OrderedDict[_Key, _Descriptor] = OrderedDict()
_lock = threading.RLock()  # a signal's handler may save a state at any time


def _forget() -> None:
    """Start without open files in a forked child: another thread of its parent may have held the lock."""
    global _lock
    _lock = threading.RLock()
    _descriptors.clear()


os.register_at_fork(after_in_child=_forget)
remembers("local files", lambda: len(_descriptors), MAX_OPEN, FILES)


class Positioned(io.RawIOBase):
    """A file object for libraries that need one: each read is one of ``read``, of an offset and a number of bytes."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + (0, self._at, self._size)[whence]
        if at < 0:
            raise OSError(
                errno.EINVAL, "before the beginning"
            )  # as files do: by this zipfile sees that one is too short
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = self._read(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data
