"""The indexes of a list of shards: what an epoch asks of all of them before it begins, and each one when its shard is
reached. Of a long list, the former is kept in one file.

Of a list of 1,000 shards and more, ``uio index`` writes the file, or else the first process of a machine that opens all
indexes, while others wait for it. As long as no folder has changed in which the indexes are, or else no index has
another size or time, the file is used, and an index is read when its shard is reached. Of indexes on a server, ETag or
size of a few are compared. If the content of an index is another one when it is reached, that is an error, and the next
start makes the file anew. It lies in the folder of ``cache=``, or else in ``uio_pipes`` of the user's cache
(``XDG_CACHE_HOME``).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.memory import Lru
from uio_pipes.formats.tar.checks import AT_ONCE, NO_UTTERANCE, open_sidecar, sidecar_path
from uio_pipes.formats.tar.index import ArchiveIndex, framed, read_framed
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.files import kept_path, made_once, write_bytes
from uio_pipes.io.local import LAST, is_slow
from uio_pipes.io.opening import identity, is_local

logger = logging.getLogger("uio_pipes")
MANY = 1_000  # shards from which on a catalogue is kept
MAGIC, VERSION = b"UIOCATLG", 4
PROBED = 16  # indexes on a server that are asked for
KEPT = 512 << 20  # bytes of indexes that a process keeps of those that it has reached
RATE = 16_000  # Hz at which lengths are counted

FACTS = np.dtype(  # what is known of a shard without its index
    [
        ("utterances", "<i8"),
        ("errors", "<i8"),  # damaged spots that the index knows of
        ("seen", "<i8"),  # utterances, those among the damaged spots included
        ("size", "<i8"),  # of the shard, in bytes
        ("crc32", "<i8"),  # of the shard
        ("digest", "V16"),  # of the index
    ]
)
_Facts = npt.NDArray[np.void]
_Lengths = npt.NDArray[np.integer[Any]]
_Identities = npt.NDArray[np.int64]  # (shards, 2): size and time of each index
_Places = list[list[Any]]  # time and inode of each folder of indexes; size and tag of some of those on a server


class IndexedShards:
    """Shards in the order of their list, each with an index, which is read when it is asked for if the rest is known.

    Attributes:
        urls: where the shards are.
        facts: what is known of each without its index, of the type ``FACTS``.
    """

    def __init__(
        self,
        urls: Sequence[str],
        facts: _Facts,
        indexes: dict[int, ArchiveIndex],
        opened: Callable[[str, bytes], ArchiveIndex] | None = None,
        lengths: _Lengths | None = None,
    ) -> None:
        self.urls, self.facts, self._indexes, self._opened = urls, facts, indexes, opened
        self._kept = Lru("indexes of shards", KEPT)  # of those read from now on, which may be reached again
        if lengths is not None:
            self.lengths = lengths

    @classmethod
    def of(cls, urls: Sequence[str], indexes: Sequence[ArchiveIndex]) -> IndexedShards:
        """Return shards all of whose indexes are open."""
        return cls(urls, np.array(list(map(_facts_of, indexes)), FACTS), dict(enumerate(indexes)))

    def __len__(self) -> int:
        return len(self.urls)

    def __getitem__(self, number: int) -> ArchiveIndex:
        """Return the index of a shard. Raises: DataError ``changed_file`` if it is another one by now, or cannot be
        read any more."""
        if (index := self._indexes.get(number)) is not None:
            return index
        assert self._opened is not None
        make = partial(self._opened, self.urls[number], self.facts["digest"][number].tobytes())
        return self._kept.get(number, make, _bytes_of)

    def __iter__(self) -> Iterator[ArchiveIndex]:
        return map(self.__getitem__, range(len(self)))

    def add(self, number: int, error: DataError) -> None:
        """Add a damaged place that is not in the index of a shard."""
        index = self._indexes[number] = self[number]
        index.errors.append(error)
        self.facts["errors"][number] += 1

    @property
    def compressed(self) -> Iterator[tuple[str, str]]:
        """The shards that are compressed, and how. None of a catalogue is."""
        found = ((self.urls[number], index.shard.compression) for number, index in self._indexes.items())
        return ((url, form) for url, form in found if form)

    @cached_property
    def lengths(self) -> _Lengths:
        """Lengths of all utterances in samples at 16 kHz; where only decoding shows them, estimated at 64 kbit/s."""
        return np.concatenate([np.zeros(0, np.int64), *map(_lengths_of, self)])


def _facts_of(index: ArchiveIndex) -> tuple[Any, ...]:
    failed = sum(error.reason not in NO_UTTERANCE for error in index.errors)
    shard = index.shard
    counts = len(index), len(index.errors), len(index) + failed
    return *counts, shard.size, shard.crc32, bytes.fromhex(index.digest)


def _bytes_of(index: ArchiveIndex) -> int:
    return 2_000 + len(index.keys) + len(index.txts) + sum(column.nbytes for column in index.columns.values())


def _lengths_of(index: ArchiveIndex) -> _Lengths:
    lengths = index.lengths(RATE)
    if lengths.all():
        return lengths
    total = np.concatenate([[0], np.cumsum(index.columns["size"].astype(np.int64))])
    ends = np.concatenate([[0], index.columns["member_ends"].astype(np.int64)])
    group = index.columns["group"].astype(np.int64)
    sizes = total[ends[group + 1]] - total[ends[group]]
    return np.where(lengths > 0, lengths, sizes * 2)


def open_shards(urls: Sequence[str], access: Access = PLAIN, folder: str | None = None) -> IndexedShards:
    """Open the indexes of all shards, or what a catalogue has of them, in order.

    Raises: ListError for the first that cannot be used.
    """
    if len(urls) < MANY:
        return _opened(urls, access, folder)
    catalogue = Catalogue(urls, access, folder)
    try:
        return made_once(catalogue.path, catalogue.read, catalogue.make)
    except OSError as error:
        logger.info("the catalogue of the indexes cannot be cached (%s)", error)
        return _opened(urls, access, folder)


def keep_catalogue(urls: Sequence[str], access: Access = PLAIN, folder: str | None = None) -> None:
    """Write the catalogue of shards, if there are enough of them to keep one. Raises: ListError."""
    if len(urls) >= MANY:
        open_shards(urls, access, folder)


def _opened(urls: Sequence[str], access: Access, folder: str | None) -> IndexedShards:
    def opened(url: str) -> ArchiveIndex:
        return open_sidecar(url, access, folder)

    near = all(is_local(sidecar_path(url, folder)) is not None and is_local(url) is not None for url in urls)
    first = list(map(opened, urls[: LAST // 2 if near else 0]))
    if near and not is_slow(is_local(sidecar_path(urls[0], folder)) or ""):
        return IndexedShards.of(urls, first + list(map(opened, urls[len(first) :])))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return IndexedShards.of(urls, first + list(pool.map(opened, urls[len(first) :])))


class Catalogue:
    """The file for some shards whose indexes are beside them, or under ``folder``."""

    def __init__(self, urls: Sequence[str], access: Access, folder: str | None) -> None:
        self._urls, self._access, self._folder = urls, access, folder
        self.path = kept_path([*urls, sidecar_path(urls[0], folder)], access.cache, ".catalogue")

    def make(self) -> IndexedShards:
        """Open all indexes and write the file. Raises: OSError."""
        places, identities = self._places(), self._identities()
        shards = _opened(self._urls, self._access, self._folder)
        if not any(shards.compressed):
            write_bytes(self.path, _dumps(shards, places, identities))
        return shards

    def read(self) -> IndexedShards | None:
        """Return the contents of the file; None if there is none that fits the current indexes."""
        try:
            places, facts, identities, lengths = _loads(self.path, len(self._urls))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        found = IndexedShards(self._urls, facts, {}, self._open, lengths)
        if places != (now := self._places()):  # something else may have come into a folder
            if places[-1] != now[-1] or not np.array_equal(identities, self._identities()):
                return None
            with contextlib.suppress(OSError):  # it is looked at again next time
                write_bytes(self.path, _dumps(found, now, identities))
        return found

    def _open(self, url: str, digest: bytes) -> ArchiveIndex:
        try:
            index = open_sidecar(url, self._access, self._folder)
            if bytes.fromhex(index.digest) != digest:
                raise ListError("the index is newer than the catalogue")
        except ListError as error:
            cause = error.__cause__
            if isinstance(cause, DataError) and cause.reason != "missing_file":  # a server's fault, which may pass
                raise DataError(cause.reason, str(error), url=url) from error
            self.path.unlink(missing_ok=True)
            raise DataError("changed_file", f"{error}; then start again", url=url) from error
        return index

    def _places(self) -> _Places:
        """Return time and inode of the local folders of indexes, 0 for others: an index that is put there changes the
        time, but not one that is written over in its place. At the end comes what a server says of some indexes."""
        one_of_each = {url.rpartition("/")[0]: url for url in self._urls}.values()
        paths = (is_local(sidecar_path(url, self._folder)) for url in one_of_each)
        statuses = (_status(None if path is None else os.path.dirname(path) or ".") for path in paths)
        folders = [[0, 0] if status is None else [status.st_mtime_ns, status.st_ino] for status in statuses]
        return [*folders, self._far()]

    def _far(self) -> list[Any]:
        """Return size and tag of some of the indexes that are on a server; nothing if there are none."""
        names = (sidecar_path(url, self._folder) for url in self._urls[:: -(-len(self._urls) // PROBED)])
        far = [name for name in names if is_local(name) is None]
        if not far:
            return []
        with ThreadPoolExecutor(len(far)) as pool:
            return list(pool.map(self._said_of, far))

    def _said_of(self, name: str) -> list[Any] | None:
        with contextlib.suppress(DataError):  # opening it says why
            return list(identity(name, self._access))
        return None

    def _identities(self) -> _Identities:
        """Return size and time of the local indexes, 0 for others and those that are missing."""
        out = np.zeros((len(self._urls), 2), np.int64)
        for number, url in enumerate(self._urls):
            if (status := _status(is_local(sidecar_path(url, self._folder)))) is not None:
                out[number] = status.st_size, status.st_mtime_ns
        return out


def _status(path: str | None) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return None if path is None else os.stat(path)
    return None


def _dumps(shards: IndexedShards, places: _Places, identities: _Identities) -> bytes:
    lengths = shards.lengths.astype("<u4")
    columns: dict[str, Any] = {"facts": shards.facts.tobytes(), "identities": identities.ravel(), "lengths": lengths}
    return framed(MAGIC, VERSION, {"places": places}, columns)


def _loads(path: Path, count: int) -> tuple[_Places, _Facts, _Identities, _Lengths]:
    """Return what ``_dumps`` was given. Raises: OSError, ValueError, KeyError, TypeError, AttributeError."""
    header, columns = read_framed(path, MAGIC, VERSION)
    facts, lengths = np.frombuffer(columns["facts"], FACTS).copy(), columns["lengths"]
    if len(facts) != count or facts["utterances"].sum() != len(lengths):
        raise ValueError("it belongs to other shards, or its columns differ in length")
    return header["places"], facts, columns["identities"].reshape(count, 2), lengths
