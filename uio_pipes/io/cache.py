"""Copies of remote files in a local folder of bounded size, shared by all processes of a machine.

An entry is a file ``NAME-SIZE-CRC32`` in ``FOLDER/uio-cache``; ``NAME`` is a hash of URL, size and ETag. It is written
as ``.part-NAME-SIZE`` under a lock that ends with its process, and renamed when it is complete, flushed and its CRC32
known. kill -9 leaves a part that nobody takes for an entry; the next process that needs room removes it. The least
recently used entries are removed first. Nothing else in the folder is ever touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from uio_pipes.base.memory import remembers
from uio_pipes.base.urls import redact, unsigned
from uio_pipes.io.compression import fast_zlib
from uio_pipes.io.files import plain
from uio_pipes.io.retry import Identity

logger = logging.getLogger("uio_pipes")
_ENTRY = re.compile(r"([0-9a-f]{32})-(\d+)-([0-9a-f]{8})")
_PART = re.compile(r"\.part-([0-9a-f]{32})-(\d+)")
_PIECE = 1 << 18  # stays in the processor's cache
_off: set[str] = set()  # folders that this process has given up
_verified: dict[str, int] = {}  # entries whose CRC32 this process has checked → their time of change
remembers("checked copies", lambda: len(_verified), None, "copies")


class FileCache:
    """The cache in ``folder``, of at most ``limit`` bytes. Its methods raise nothing: we go on without it."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = Path(folder) / "uio-cache", limit

    def find(self, url: str, identity: Identity) -> str | None:
        """Return the path of an intact copy and mark it as used; a damaged one is removed."""
        name = _name(url, identity)
        with contextlib.suppress(OSError):
            for path in self._shelf(name).iterdir():
                found = _ENTRY.fullmatch(path.name)
                if found and found[1] == name:
                    if _is_sound(path, int(found[2]), int(found[3], 16)):
                        status = path.stat()
                        os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))  # disks may be mounted "noatime"
                        return str(path)
                    logger.warning("the cached copy of %s is damaged and is fetched again", redact(url))
                    self._remove(path)
        return None

    def begin(self, url: str, identity: Identity) -> Filling | None:
        """Return an entry to fill; None if another process fills it, it does not fit, or the folder cannot be used."""
        size = identity.size
        if str(self.folder) in _off or not size or size > self.limit:
            return None
        name = _name(url, identity)
        part = self._shelf(name) / f".part-{name}-{size}"
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(part).st_ino != os.fstat(descriptor).st_ino:
                    raise BlockingIOError  # it was removed or renamed meanwhile
                os.ftruncate(descriptor, 0)
                with self._locked() as total:
                    used = _read(total)
                    if used is None or used + size > self.limit:
                        used = self._make_room(size)
                    _write(total, used + size)
            except BaseException:
                os.close(descriptor)
                raise
        except (BlockingIOError, FileNotFoundError):
            return None
        except OSError as error:
            self.give_up(error)
            return None
        return Filling(self, part, descriptor, size)

    def give_up(self, error: OSError) -> None:
        """Continue without the cache in this process."""
        if str(self.folder) not in _off:
            _off.add(str(self.folder))
            logger.warning("the cache %s cannot be written (%s): continuing without it", self.folder, error)

    def _shelf(self, name: str) -> Path:
        return self.folder / name[:2]

    def release(self, size: int) -> None:
        with contextlib.suppress(OSError), self._locked() as total:
            _write(total, max(0, (_read(total) or 0) - size))

    def _make_room(self, size: int) -> int:
        """Remove entries until ``size`` more bytes fit. Return the bytes that remain, counted anew."""
        used, entries = 0, []
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            with contextlib.suppress(OSError):
                if part := _PART.fullmatch(path.name):
                    used += int(part[2]) if _is_locked(path) else 0
                elif entry := _ENTRY.fullmatch(path.name):
                    status = path.stat()
                    used += int(entry[2])
                    entries.append((status.st_atime_ns, path, int(entry[2])))
        used -= size if used >= size else 0  # our own part is among them
        for _, path, bytes_ in sorted(entries):
            if used + size <= self.limit:
                break
            self._remove(path)
            used -= bytes_
        return used

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the file that holds the number of bytes used, and give its descriptor."""
        descriptor = os.open(self.folder / "taken", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


class Filling:
    """An entry that several threads fill. It can be found once its last byte has been written."""

    def __init__(self, cache: FileCache, part: Path, descriptor: int, size: int) -> None:
        self._cache, self._part, self._descriptor, self._size = cache, part, descriptor, size
        self._lock = threading.Lock()
        self._ranges: list[tuple[int, int]] = []
        self._process = os.getpid()
        self._open = True
        self._unwanted = False

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes that were fetched. Raises nothing."""
        with self._lock:
            if not self._open or self._unwanted:
                return
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(self._descriptor, data[written:], offset + written)
                self._ranges.append((offset, offset + len(data)))
                if self._complete():
                    self._commit()
            except OSError as error:
                self._discard()
                self._cache.give_up(error)
        if self._unwanted:
            self.discard()

    def discard(self) -> None:
        """Remove the entry if it is not complete; while it is being written to, that is left to the writer. Nobody
        waits: garbage collection, in which this may be called, happens anywhere."""
        self._unwanted = True
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._discard()
            finally:
                self._lock.release()

    def _complete(self) -> bool:
        reached = 0
        for first, last in sorted(self._ranges):
            if first > reached:
                return False
            reached = max(reached, last)
        return reached >= self._size

    def _commit(self) -> None:
        crc = _sum(self._descriptor)
        os.fsync(self._descriptor)
        path = self._part.with_name(f"{self._part.name.removeprefix('.part-')}-{crc:08x}")
        os.rename(self._part, path)
        _verified[str(path)] = os.fstat(self._descriptor).st_mtime_ns
        self._open = False
        os.close(self._descriptor)

    def _discard(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                self._part.unlink()
            os.close(self._descriptor)
            self._cache.release(self._size)


def _name(url: str, identity: Identity) -> str:
    return blake2b(f"{unsigned(url)}\0{identity.size}\0{identity.tag}".encode(), digest_size=16).hexdigest()


def _is_sound(path: Path, size: int, crc: int) -> bool:
    with open(path, "rb", buffering=0, opener=plain) as file:
        status = os.fstat(file.fileno())
        if status.st_size != size:
            return False
        if _verified.get(str(path)) != status.st_mtime_ns:
            if _sum(file.fileno()) != crc:
                return False
            _verified[str(path)] = status.st_mtime_ns
    return True


def _sum(descriptor: int) -> int:
    view, crc, at = memoryview(bytearray(_PIECE)), 0, 0
    while count := os.preadv(descriptor, [view], at):
        crc = fast_zlib.crc32(view[:count], crc)
        at += count
    return crc


def _is_locked(part: Path) -> bool:
    """Return whether a process is filling this part; remove it if its process is gone."""
    descriptor = plain(str(part), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.unlink()
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0)
    return int(text) if text.isdigit() else None


def _write(descriptor: int, number: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(number).encode(), 0)
