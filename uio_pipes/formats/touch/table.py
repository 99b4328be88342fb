"""Folders of a TouchDataset as one table of utterances."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.lru import Lru
from uio_pipes.formats.naming import Renames
from uio_pipes.formats.touch.entries import FolderEntry, folders
from uio_pipes.formats.touch.file import IndexedFile
from uio_pipes.formats.touch.folder import DEFAULT, IndexedFolder
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local

_TEXTS = 256 << 20  # bytes of remote metadata and tokens that stay in memory
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
        texts: tuple[str, ...] = DEFAULT,
        names: Renames = None,
    ) -> None:
        one = partial(_open_one, access, verify, indexes, texts, names)
        self._folders = _open(list(folders(entries, metainfo, access)), one)
        self._firsts = [0, *accumulate(map(len, self._folders))]
        if not self._firsts[-1]:
            raise ListError(f"nothing in {', '.join(entries[:3])}: the folders have no utterance")
        self._texts = Lru(_TEXTS)
        parts = [tuple(file.digest for file in folder.files) for folder in self._folders]
        self.digest = blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return self._firsts[-1]

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """Samples of each utterance, 0 without audio; if none has audio, its tokens or the bytes of its metadata."""
        audible = any(folder.audio is not None for folder in self._folders)
        sizes = [_sizes(folder, audible) for folder in self._folders]
        return np.concatenate(sizes, dtype=np.int64)

    @property
    def files(self) -> list[IndexedFile]:
        """All pairs of files."""
        return [file for folder in self._folders for file in folder.files]

    def place(self, number: int) -> str:
        folder, local = self._locate(number)
        return f"{folder.name}, utterance {local}"

    def key(self, number: int) -> str:
        try:
            return str(self.fields(number)["key"])
        except DataError:
            return self.place(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return ``key``, ``txt`` and the other fields of the metadata; what else is there as ``wav`` (a
        :class:`~uio_pipes.formats.touch.pcm.Pcm`), ``label``, and under the names of other modalities."""
        folder, local = self._locate(number)
        return folder.fields(local, self._fetch if folder.far else None)

    def _fetch(self, file: IndexedFile) -> bytes:
        data = file.data
        return self._texts.get(data.path, lambda: data.read(0, data.size), len)

    def _locate(self, number: int) -> tuple[IndexedFolder, int]:
        at = bisect_right(self._firsts, number) - 1
        return self._folders[at], number - self._firsts[at]


def _sizes(folder: IndexedFolder, audible: bool) -> npt.NDArray[np.int32]:
    if audible and folder.audio is None:
        return np.zeros(len(folder), np.int32)
    return (folder.audio or folder.tokens or folder.files[0]).lengths


def _open(found: list[FolderEntry], one: Callable[[FolderEntry], IndexedFolder]) -> list[IndexedFolder]:
    if all(is_local(entry.folder) is not None for entry in found):
        return [one(entry) for entry in found]
    with ThreadPoolExecutor(_OPENING) as pool:
        return list(pool.map(one, found))


def _open_one(
    access: Access, verify: bool, indexes: str | None, texts: tuple[str, ...], names: Renames, entry: FolderEntry
) -> IndexedFolder:
    folder = IndexedFolder(entry, access, texts, names)
    for file in folder.files if verify else ():
        file.compare(indexes)
    return folder
