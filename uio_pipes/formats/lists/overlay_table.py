"""Metadata by key, read on demand: a JSONL file, plain or compressed, or the metainfo of a TouchDataset.

Only 8 bytes a key stay in memory, beside the places of every fourth line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import beside, is_named
from uio_pipes.formats.rows.numbered import NumberedRows
from uio_pipes.formats.tables.rows import RowIndex
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opening import is_local, open_binary

_BLOCK = 1 << 20
_KEY = re.compile(rb'\s*\{\s*"key"\s*:\s*"([^"\\]+)"\s*[,}]')


class OverlayTable:
    """The entries of an overlay, by key. Raises: ListError if the file cannot be used, or has a key twice."""

    def __init__(self, path: str, access: Access = PLAIN) -> None:
        self.path = path
        try:
            self._entries = _Metainfo(path, access) if _is_metainfo(path, access) else _Lines(path, access)
            self._index = RowIndex(self._keys(), len(self._entries))
        except DataError as error:
            raise ListError(f"cannot read the overlay {path}: {error.message}") from error
        for numbers in self._index.twins():
            seen = dict[str, int]()
            for number in numbers:
                key = self._key(self._entries.raw(number), number)
                if (first := seen.setdefault(key, number)) != number:
                    places = " and ".join(map(self._entries.place, (first, number)))
                    raise ListError(f"the overlay has the key {key!r} twice: {places}; remove one of them")

    def __len__(self) -> int:
        return len(self._index)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the entry of a key, None if there is none. Raises: DataError."""
        for number in self._index.find(key):
            entry = self._parse(self._entries.raw(number), number)
            if entry["key"] == key:
                taken = _OF_ITS_AUDIO if isinstance(self._entries, _Metainfo) else ()
                return {name: value for name, value in entry.items() if name not in taken}
        return None

    def _keys(self) -> Iterator[str]:
        for number, data in enumerate(self._entries.rows()):
            found = _KEY.match(data)
            yield found[1].decode("utf-8", "replace") if found else self._key(data, number)

    def _key(self, data: bytes, number: int) -> str:
        """Raises: ListError."""
        try:
            return str(self._parse(data, number)["key"])
        except DataError as error:
            raise ListError(f"the overlay cannot be used: {error.message}") from error

    def _parse(self, data: bytes, number: int) -> dict[str, Any]:
        try:
            entry = parse_json(data)
            if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
                raise ValueError('not a JSON object with a "key"')
        except ValueError as error:
            message = f"{self._entries.place(number)}: {error}: {data[:80]!r}; correct it"
            raise DataError("bad_overlay", message) from error
        return entry


class _Lines(NumberedRows):
    what: ClassVar[str] = "the overlay"


class _Metainfo:
    """An overlay stored as ``PREFIX.bin`` and ``PREFIX.idx``."""

    def __init__(self, path: str, access: Access) -> None:
        self.path, self._file = path, IndexedFile(path, access)
        self.raw = self._file.read

    def __len__(self) -> int:
        return len(self._file)

    def rows(self) -> Iterator[bytes]:
        return map(self.raw, range(len(self)))

    def place(self, number: int) -> str:
        return f"{self.path}, utterance {number}"


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


# These fields of a TouchDataset's metadata describe its own audio, not that of the utterance that they are laid over.
_OF_ITS_AUDIO = frozenset(["wav", "feat", "sample_rate", "start", "end", "duration"])


def _is_metainfo(path: str, access: Access) -> bool:
    """Return whether ``path`` is the prefix of a ``.bin`` and an ``.idx``, and not a file itself."""
    local = is_local(path)
    if local is not None:
        return os.path.isfile(f"{local}.idx")
    return not is_named(path, (".jsonl", ".json", ".gz", ".list", ".txt"))
