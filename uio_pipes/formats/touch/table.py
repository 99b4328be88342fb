"""Folders of a TouchDataset as one table of utterances, and the data lists that name them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.lru import Lru
from uio_pipes.formats.lists.table import Table, expand
from uio_pipes.formats.touch.file import IndexedFile
from uio_pipes.formats.touch.folder import IndexedFolder
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local

LISTS = (".list", ".lst", ".txt")  # a URL that ends so is a data list; any other one is a folder
METAINFO = "metainfo"
_TEXTS = 256 << 20  # bytes of remote metainfo.bin that stay in memory
_OPENING = 16  # remote folders opened at a time


class IndexedTable:
    """All utterances of the given folders, in their order.

    Raises: ListError naming the folder, or the list's line.
    """

    def __init__(
        self,
        entries: tuple[str, ...],
        metainfo: str | None,
        access: Access,
        verify: bool = False,
        indexes: str | None = None,
    ) -> None:
        found = list(folders(entries, metainfo, access))
        self._folders = _open(found, access, verify, indexes)
        self._firsts = [0, *accumulate(map(len, self._folders))]
        if not self._firsts[-1]:
            raise ListError(f"nothing in {', '.join(entries[:3])}: the folders have no utterance")
        self._texts = Lru(_TEXTS)
        parts = [(f.audio.digest, f.metainfo.digest) for f in self._folders]
        self.digest = blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return self._firsts[-1]

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """Samples of each utterance."""
        return np.concatenate([f.audio.lengths for f in self._folders], dtype=np.int64)

    @property
    def files(self) -> list[IndexedFile]:
        """All pairs of files."""
        return [file for folder in self._folders for file in (folder.audio, folder.metainfo)]

    def place(self, number: int) -> str:
        folder, local = self._locate(number)
        return f"{folder.name}, utterance {local}"

    def key(self, number: int) -> str:
        try:
            return str(self.fields(number)["key"])
        except DataError:
            return self.place(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return ``key``, ``txt``, ``sample_rate``, ``wav`` (a :class:`~uio_pipes.formats.touch.pcm.Pcm`), and the
        other fields of the metadata."""
        folder, local = self._locate(number)
        if not folder.far:
            return folder.fields(local)
        file = folder.metainfo.data
        return folder.fields(local, self._texts.get(folder.name, lambda: file.read(0, file.size), len))

    def _locate(self, number: int) -> tuple[IndexedFolder, int]:
        at = bisect_right(self._firsts, number) - 1
        return self._folders[at], number - self._firsts[at]


def folders(entries: tuple[str, ...], metainfo: str | None, access: Access) -> Iterator[tuple[str, str]]:
    """Yield each folder and the name of its metadata. Raises: ListError."""
    for name in (name for entry in entries for name in expand(entry, access)):
        path = is_local(name)
        if os.path.isfile(path or "") or (path is None and name.endswith(LISTS)):
            table = Table((name,), access)
            yield from (parse_entry(table[i], table.place(i), metainfo) for i in range(len(table)))
        elif path is not None and not os.path.isdir(path):
            raise ListError(f"there is neither a folder nor a data list {name}; a TouchDataset is made by: uio convert")
        else:
            yield name, metainfo or METAINFO


def names_folder(line: str) -> bool:
    """Return whether a line names the folder of a TouchDataset, with ``audio+metainfo`` as its second word."""
    folder, _, word = line.rpartition(" ")
    return bool(folder) and not line.startswith("{") and "+" in word and "/" not in word and "." not in word


def parse_entry(line: str, place: str, metainfo: str | None = None) -> tuple[str, str]:
    """Parse a line of a data list, ``FOLDER audio+metainfo`` or only ``FOLDER``: return folder and metadata.

    Raises: ListError.
    """
    folder, _, word = line.rpartition(" ")
    if "+" not in word or "/" in word:
        if word in ("audio", "metainfo", "texttoken"):
            raise ListError(f"{place} says {word!r}; only FOLDER audio+metainfo can be read")
        if line.startswith("{") or line.endswith(".tar"):
            raise ListError(f"{place} is not a folder, but {line[:80]!r}; name a list of FOLDER audio+metainfo lines")
        return line.strip(), metainfo or METAINFO
    audio, _, own = word.partition("+")
    if audio != "audio" or not own or "+" in own:
        raise ListError(f"{place} says {word!r}; only audio+metainfo (or audio+ANOTHER_METAINFO) can be read")
    return folder.strip(), metainfo or own


def _open(found: list[tuple[str, str]], access: Access, verify: bool, indexes: str | None) -> list[IndexedFolder]:
    one = partial(_open_one, access, verify, indexes)
    if all(is_local(folder) is not None for folder, _ in found):
        return [one(pair) for pair in found]
    with ThreadPoolExecutor(_OPENING) as pool:
        return list(pool.map(one, found))


def _open_one(access: Access, verify: bool, indexes: str | None, pair: tuple[str, str]) -> IndexedFolder:
    folder = IndexedFolder(*pair, access)
    for file in (folder.audio, folder.metainfo) if verify else ():
        file.compare(indexes)
    return folder
