"""Records under 128-bit keys, which many processes and machines add to one folder and find there: a shelf.

Each process appends the bytes of records to a file of its own, ``HOST-PID-RANDOM.data``. For each it then appends a row
of 64 bytes to the ``.index`` beside it: where the record is, its CRC32, and a planned length. A row that is not
complete or whose own sum is wrong is no row, so whatever a kill leaves is not found. The next record is written over
what Ctrl-C or a full disk has cut off; nothing that a row tells of is ever changed: many read while others write.
Object stores cannot append, so there both files are uploaded when they are complete, the index last.
"""

from __future__ import annotations

import logging
import os
import posixpath
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from weakref import finalize

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import FILES, remembers
from uio_pipes.base.urls import redact
from uio_pipes.io.compression import fast_zlib
from uio_pipes.io.files import plain
from uio_pipes.io.folders import Folder
from uio_pipes.io.opening import is_local, open_file

logger = logging.getLogger("uio_pipes")
DATA, INDEX, ABOUT = ".data", ".index", "stages.txt"
LARGEST = 1 << 30  # bytes of a data file
UPLOADED = 1 << 26  # the same where files are uploaded: a worker that ends has 5 s for the last one
MEASURED = 1 << 24  # bytes of many that a process writes before it measures again what others have written
_ROW, ROW_BYTES = 8, 64  # numbers of 64 bits: two of the key, offset, size, CRC32, two of the plan, and their sum
_ODD = np.array([0x9E3779B97F4A7C15 * (2 * i + 1) & 0xFFFFFFFFFFFFFFFF | 1 for i in range(_ROW - 1)], np.uint64)
IndexRows = npt.NDArray[np.uint64]
RecordKey = tuple[int, int]
PlanNumbers = tuple[int, int, int]  # three numbers kept with a record: below 2^64, below 2^32, below 2^32


class Entry(NamedTuple):
    """The place of a record. ``lengths``: the numbers that were kept with it."""

    path: str
    offset: int
    size: int
    crc: int
    lengths: PlanNumbers


class _File:
    """The data and the index that this process is writing. ``path``: where the data can be read. ``size`` and ``rows``:
    what is complete of them, which is where the next record goes, however the one before it ended."""

    def __init__(self, folder: Folder) -> None:
        machine = socket.gethostname()[:32]
        self.folder, self.name, self.size = folder, f"{now()}-{machine}-{os.getpid()}-{secrets.token_hex(4)}", 0
        self.rows = 0
        self.scratch = None if folder.path else tempfile.TemporaryDirectory(prefix="uio-cache-")
        place = folder.path or Path(self.scratch.name if self.scratch else "")
        place.mkdir(parents=True, exist_ok=True)
        self.places = [place / (self.name + suffix) for suffix in (DATA, INDEX)]
        self.path = str(self.places[0])
        self.data, self.index = (path.open("xb", buffering=0) for path in self.places)
        for file in (self.data, self.index):
            finalize(self, file.close)

    def add(self, key: RecordKey, data: bytes, lengths: PlanNumbers) -> Entry:
        """Append a record. Raises: OSError."""
        entry = Entry(self.path, self.size, len(data), fast_zlib.crc32(data), lengths)
        _write(self.data, data, self.size)
        row = np.array([*key, *entry[1:4], lengths[0], lengths[1] << 32 | lengths[2], 0], np.uint64)
        row[-1] = _sums(row[None])[0]
        self.size += len(data)  # before the row: what one tells of is not written over
        _write(self.index, row.tobytes(), self.rows * ROW_BYTES)
        self.rows += 1
        return entry

    def close(self) -> None:
        """Close both files, and upload what is not local."""
        self.data.close()
        self.index.close()
        if self.scratch is not None:
            for place in self.places:
                self.folder.write(place.name, place.read_bytes())
            self.path = self.folder.join(self.places[0].name)
            self.scratch.cleanup()


def now() -> str:
    """Return the text with which the names of files begin that are made now: later ones sort behind it."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%f")


def _write(file: IO[bytes], data: bytes, offset: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(file.fileno(), memoryview(data)[written:], offset + written)


class Shelf:
    """The records in one folder of a cache, for one process. Its methods raise nothing: we go on without it.

    Args:
        cache: path or URL of the cache, which ``limit`` bounds.
        name: of the folder in it.
        limit: bytes of the whole cache from which on nothing is added.
        about: text for people, kept in the folder.
        writes: False if nothing is to be added.
        before: if not "", only files that were begun before it are read, see :func:`now`.
    """

    def __init__(self, cache: str, name: str, limit: int, about: str, writes: bool, before: str = "") -> None:
        self.cache, self.folder = Folder(cache), Folder(posixpath.join(cache, name))
        self.limit, self.about, self.before = limit, about, before
        self.writes = self._wanted = writes  # what is wanted; False as well from a fault until the next refresh
        self._lock = threading.Lock()
        self._read: dict[str, int] = {}  # rows of each index that are known
        self._paths: list[str] = []
        self._known = np.empty((0, _ROW), np.uint64), np.empty(0, np.int32)  # rows by their keys, and their files
        self._own: dict[RecordKey, tuple[_File, Entry]] = {}  # since the last time
        self._file: _File | None = None
        self._room = 0  # bytes that may be written before the cache is measured again

    def refresh(self) -> None:
        """Read what has been added since the last call."""
        with self._lock:
            self.writes = self._wanted  # there may be room again
            try:
                new = self._news()
            except Exception as error:  # whatever a server answers, the training goes on
                logger.warning("the cache %s cannot be read (%s): continuing without it", redact(self.cache.url), error)
                return
            first, counts = len(self._paths), [len(rows) for _, _, rows in new]
            self._paths += [self.folder.join(name.removesuffix(INDEX) + DATA) for name, _, _ in new]
            rows = np.concatenate([self._known[0], *(rows for _, _, rows in new)])
            numbers = np.repeat(np.arange(first, len(self._paths), dtype=np.int32), counts)
            order = np.argsort(rows[:, 0], kind="stable")
            self._known = rows[order], np.concatenate([self._known[1], numbers])[order]
            self._read |= {name: count for name, count, _ in new}
            if self._file is not None and self._file.scratch is None and not self._file.places[0].exists():
                self._end()  # pruned, or removed by hand: what comes goes to another file
            self._own = {key: own for key, own in self._own.items() if own[0] is self._file and own[0].scratch}

    def _news(self) -> list[tuple[str, int, IndexRows]]:
        """Return the names of indexes with new rows, how many rows they have now, and the new ones."""
        found = []
        for name, size in sorted(self.folder.sizes().items()):
            known, there = self._read.get(name, 0), size // ROW_BYTES
            if name.endswith(INDEX) and there > known and (not self.before or name < self.before):
                with suppress(FileNotFoundError):  # it has been pruned
                    found.append((name, there, rows_of(self.folder.read([name])[0], known, there)))
        return found

    @property
    def index_bytes(self) -> int:
        """Bytes of the rows that are known: 68 a record."""
        return self._known[0].nbytes + self._known[1].nbytes

    @property
    def is_empty(self) -> bool:
        """Whether no record is known."""
        return not (len(self._known[0]) or self._own)

    def find(self, key: RecordKey) -> Iterator[Entry]:
        """Yield the places of records with this key, newest first; usually one or none."""
        if (own := self._own.get(key)) is not None:
            yield own[1]._replace(path=own[0].path)
        rows, file_of = self._known
        at = int(np.searchsorted(rows[:, 0], np.uint64(key[0]), "right"))
        while at and (row := rows[at - 1].tolist())[0] == key[0]:
            at -= 1
            if row[1] == key[1]:
                yield entry_of(row, self._paths[file_of[at]])

    def add(self, key: RecordKey, data: bytes, lengths: PlanNumbers) -> None:
        """Store a record, unless the cache is full, cannot be written, or is only read."""
        with self._lock:
            if not self.writes:
                return
            try:
                if self._room < len(data) and not self._has_room(len(data)):
                    return
                file = self._file or self._begin()
                self._own[key] = file, file.add(key, data, lengths)
                self._room -= len(data)
                if file.size > (LARGEST if file.scratch is None else UPLOADED):
                    self._end()
            except Exception as error:  # of the disk, or of what uploads
                self._stop(f"cannot be written ({error})")

    def close(self) -> None:
        """Upload stored records, unless the cache is on a disk."""
        with self._lock:
            if self._file is not None and self._file.scratch is not None:
                try:
                    self._end()
                except Exception as error:
                    self._stop(f"cannot be written ({error})")

    def _begin(self) -> _File:
        self.folder.write(ABOUT, self.about.encode())
        self._file = _File(self.folder)
        if self._file.scratch is not None:
            Finalize(self, self.close, exitpriority=10)  # at the end of a worker, too
        return self._file

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _has_room(self, size: int) -> bool:
        left = self.limit - sum(self.cache.sizes().values())
        self._room = min(left, max(self.limit >> 12, min(MEASURED, self.limit >> 6), size))
        if left < size:
            self._stop("has reached its size; give it more, or see uio cache prune")
        return left >= size

    def _stop(self, why: str) -> None:
        self.writes = False
        logger.warning("the cache %s %s: nothing more is cached", redact(self.cache.url), why)


def rows_of(index: bytes, first: int = 0, last: int | None = None) -> IndexRows:
    """Return the valid rows among rows ``first`` to ``last`` of an index."""
    rows: IndexRows = np.frombuffer(index, np.uint64, len(index) // 8 // _ROW * _ROW).reshape(-1, _ROW)[first:last]
    return cast(IndexRows, rows[_sums(rows) == rows[:, -1]])


def entry_of(row: list[int], path: str) -> Entry:
    """Return the entry in a row for a record in the file ``path``."""
    return Entry(path, row[2], row[3], row[4], (row[5], row[6] >> 32, row[6] & 0xFFFFFFFF))


def _sums(rows: IndexRows) -> npt.NDArray[np.uint64]:
    total: npt.NDArray[np.uint64] = (rows[:, :-1] * _ODD).sum(axis=1, dtype=np.uint64) + _ODD[0]
    return total


def read_record(entry: Entry) -> bytearray | None:
    """Return the bytes of a record; None if its file is gone. Raises: DataError ``damaged_cache``."""
    try:
        if is_local(entry.path) is not None:
            number = _opened(entry.path).fileno()
            data = bytearray(entry.size if entry.offset + entry.size <= os.fstat(number).st_size else 0)
            count = os.preadv(number, [data], entry.offset) if data else 0
        else:
            file = _remote(entry.path)
            data = bytearray(
                file.read_upto(entry.offset, entry.size) if entry.offset + entry.size <= file.size else b""
            )
            count = len(data)
    except (OSError, DataError):
        return None
    if count < entry.size or fast_zlib.crc32(data) != entry.crc:
        why = "its file ends before" if count < entry.size else "its CRC32 differs"
        message = f"a record of the cache is damaged ({why}): it is not used"
        raise DataError("damaged_cache", message, url=entry.path, offset=entry.offset)
    return data


@lru_cache(maxsize=128)
def _opened(path: str) -> IO[bytes]:
    return open(path, "rb", buffering=0, opener=plain)


@lru_cache(maxsize=128)
def _remote(path: str) -> Any:
    return open_file(path)


_shelves: dict[tuple[Any, ...], Shelf] = {}


def shelf(cache: str, name: str, limit: int, about: str, writes: bool, before: str = "") -> Shelf:
    """Return the shelf of this process, with what other processes have added until now."""
    key = cache, name, limit, writes, before
    found = _shelves.get(key) or _shelves.setdefault(key, Shelf(cache, name, limit, about, writes, before))
    found.close()
    found.refresh()
    return found


def close_shelves() -> None:
    """Upload the stored records of this process, for caches that are not on a disk."""
    for one in list(_shelves.values()):
        one.close()


def _forget() -> None:
    """Begin files of its own in a forked process."""
    _shelves.clear()
    _opened.cache_clear()


os.register_at_fork(after_in_child=_forget)
remembers("files of .cache", lambda: _opened.cache_info().currsize + _remote.cache_info().currsize, 256, FILES)
remembers("places in .cache", lambda: sum(one.index_bytes for one in list(_shelves.values())), None)
