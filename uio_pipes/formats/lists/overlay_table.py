"""Metadata by key, read on demand: a JSONL file, plain or .gz, or the metainfo of a TouchDataset.

Only 16 bytes a key stay in memory: its 64-bit hash, and the position of its entry.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import beside, is_named
from uio_pipes.formats.lists.lines import IN_MEMORY, opened
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opening import is_local, open_binary

_BLOCK = 1 << 20
_LINE = 1 << 10  # bytes first read of a line
_LONGEST = 1 << 24  # bytes of a line
_KEY = re.compile(rb'\s*\{\s*"key"\s*:\s*"([^"\\]+)"\s*[,}]')


class _Entries(Protocol):
    """The entries of an overlay, by their positions."""

    def scan(self) -> Iterator[tuple[int, bytes]]: ...
    def read(self, position: int) -> bytes: ...
    def place(self, position: int) -> str: ...


class OverlayTable:
    """The entries of an overlay, by key. Raises: ListError if the file cannot be used, or has a key twice."""

    def __init__(self, path: str, access: Access = PLAIN) -> None:
        self.path = path
        try:
            self._entries: _Entries = _Metainfo(path, access) if _is_metainfo(path, access) else _Lines(path, access)
            self._index()
        except DataError as error:
            raise ListError(f"cannot read the overlay {path}: {error.message}") from error

    def __len__(self) -> int:
        return len(self._hashes)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the entry of a key, None if there is none. Raises: DataError."""
        hashed = np.uint64(_hash(key))
        at = int(np.searchsorted(self._hashes, hashed))
        while at < len(self._hashes) and self._hashes[at] == hashed:
            position = int(self._positions[at])
            entry = _parse(self._entries.read(position), self._entries, position)
            if entry["key"] == key:
                taken = _OF_ITS_AUDIO if isinstance(self._entries, _Metainfo) else ()
                return {name: value for name, value in entry.items() if name not in taken}
            at += 1
        return None

    def _index(self) -> None:
        hashes, positions = array("Q"), array("q")
        for position, data in self._entries.scan():
            found = _KEY.match(data)
            if found is None and not data.strip():
                continue
            key = found[1].decode("utf-8", "replace") if found else None
            hashes.append(_hash(_key(data, self._entries, position) if key is None else key))
            positions.append(position)
        unsorted = np.frombuffer(hashes, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._hashes, self._positions = unsorted[order], np.frombuffer(positions, np.int64)[order]
        self._check_unique()

    def _check_unique(self) -> None:
        for at in np.flatnonzero(self._hashes[1:] == self._hashes[:-1]):
            second = int(self._positions[at + 1])
            key = self._key_at(second)
            before = int(np.searchsorted(self._hashes, self._hashes[at]))
            for first in self._positions[before : at + 1].tolist():
                if self._key_at(first) == key:
                    places = " and ".join(map(self._entries.place, (first, second)))
                    raise ListError(f"the overlay has the key {key!r} twice: {places}; take one of them out")

    def _key_at(self, position: int) -> str:
        return _key(self._entries.read(position), self._entries, position)


def content_of(path: str, access: Access = PLAIN) -> str:
    """Return a hash of all bytes of an overlay. Raises: ListError."""
    digest = blake2b(digest_size=16)
    name = beside(path, ".bin") if _is_metainfo(path, access) else path
    try:
        with open_binary(name, access) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except DataError as error:
        raise ListError(f"cannot read the overlay {path}: {error.message}") from error
    return digest.hexdigest()


class _Lines:
    """The lines of a file; a large one that is compressed or remote is first copied to an unnamed temporary file."""

    def __init__(self, path: str, access: Access) -> None:
        self.path = path
        self._read = opened(path, "the overlay", IN_MEMORY, access).read

    def scan(self) -> Iterator[tuple[int, bytes]]:
        position, rest = 0, b""
        while block := self._read(position + len(rest), _BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield position, line
                position += len(line) + 1
            if len(rest) > _LONGEST:
                raise ListError(f"the overlay {self.path} is not JSONL: a line at byte {position} does not end")
        if rest:
            yield position, rest

    def read(self, position: int) -> bytes:
        size = _LINE
        while True:
            data = self._read(position, size)
            end = data.find(b"\n")
            if end >= 0 or len(data) < size:
                return data if end < 0 else data[:end]
            size *= 8

    def place(self, position: int) -> str:
        before = sum(1 for at, _ in self.scan() if at < position)
        return f"{self.path}, line {before + 1}"


class _Metainfo:
    """An overlay stored as ``PREFIX.bin`` and ``PREFIX.idx``."""

    def __init__(self, path: str, access: Access) -> None:
        self.path, self._file = path, IndexedFile(path, access)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return ((number, self._file.read(number)) for number in range(len(self._file)))

    def read(self, position: int) -> bytes:
        return self._file.read(position)

    def place(self, position: int) -> str:
        return f"{self.path}, utterance {position}"


# These fields of a TouchDataset's metadata describe its own audio, not that of the utterance that they are laid over.
_OF_ITS_AUDIO = frozenset(["wav", "feat", "sample_rate", "start", "end", "duration"])


def _is_metainfo(path: str, access: Access) -> bool:
    """Return whether ``path`` is the prefix of a ``.bin`` and an ``.idx``, and not a file itself."""
    local = is_local(path)
    if local is not None:
        return os.path.isfile(f"{local}.idx")
    return not is_named(path, (".jsonl", ".json", ".gz", ".list", ".txt"))


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _parse(data: bytes, entries: _Entries, position: int) -> dict[str, Any]:
    try:
        entry = parse_json(data)
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            raise ValueError('not a JSON object with a "key"')
    except ValueError as error:
        message = f"{entries.place(position)}: {error}: {data[:80]!r}; correct it"
        raise DataError("bad_overlay", message) from error
    return entry


def _key(data: bytes, entries: _Entries, position: int) -> str:
    """Raises: ListError."""
    try:
        return str(_parse(data, entries, position)["key"])
    except DataError as error:
        raise ListError(f"the overlay cannot be used: {error.message}") from error
