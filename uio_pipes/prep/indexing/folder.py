"""Checksums for the folders of TouchDatasets: a small file for each ``.bin``, beside it or under another folder."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tar.index_files import identity, sidecar_path
from uio_pipes.formats.touch.checksums import dumps, read_checksums
from uio_pipes.formats.touch.entries import METAINFO, FolderEntry, folders, pairs_of
from uio_pipes.formats.touch.file import IndexedFile
from uio_pipes.formats.touch.folder import IndexedFolder
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.prep.checking.duplicates import PackedKeys
from uio_pipes.prep.indexing.shard import IndexedShard, write_sidecar
from uio_pipes.prep.reading.data_list import names_touchdataset


class Dataset(NamedTuple):
    """A folder; what lists read of it; the names of pairs in it of which they do not speak, as far as that shows."""

    folder: str
    entries: tuple[FolderEntry, ...]
    beside: tuple[str, ...]

    @classmethod
    def of(cls, folder: str, entries: Iterable[FolderEntry]) -> Dataset:
        """Find the pairs beside those of ``entries``; other metadata is checked like theirs."""
        first, *more = dict.fromkeys(entries)
        named = {name for entry in (first, *more) for name in entry.names}
        beside = [name for name in pairs_of(folder) if name not in named]
        if first.metainfo:
            more += [first._replace(metainfo=name) for name in beside if name.startswith(METAINFO)]
        return cls(folder, (first, *more), tuple(beside))


def datasets(paths: Iterable[str], access: Access | None = None) -> tuple[list[Dataset], list[str]]:
    """Return the TouchDatasets that the paths name or list, and the paths of another kind. Raises: ListError."""
    found, others = dict[str, list[FolderEntry]](), list[str]()
    for path in paths:
        names = list(expand(path, access or PLAIN))
        if not any(map(_is_one, names)):
            others.append(path)
            continue
        for entry in folders(tuple(names), None, access or PLAIN):
            found.setdefault(entry.folder.rstrip("/"), []).append(entry)
    return [Dataset.of(folder, entries) for folder, entries in found.items()], others


def _is_one(name: str) -> bool:
    try:
        return names_touchdataset(name)
    except ListError:  # reading it as a list of shards gives a better message
        return False


def index_folder(
    dataset: Dataset, into: str | None = None, access: Access | None = None, force: bool = False
) -> IndexedShard:
    """Write the checksums of one folder, unless those that exist fit. Raises: ListError if they cannot be written."""
    folder, entries, beside = dataset
    try:
        tables = [IndexedFolder(entry, access or PLAIN) for entry in entries]
        opened = {file.data.path: file for table in tables for file in table.files}
        others = (IndexedFile(f"{folder}/{name}", access) for name in beside)
        files = list({**{file.data.path: file for file in others}, **opened}.values())
        fresh = not force and all(_fits(file, into, access) for file in files)
        sidecars = [] if fresh else [_checksums(file, access) for file in files]
        seen = [_Seen(table) for table in tables]
    except ListError as error:
        return _unread(folder, DataError("bad_index", str(error), url=folder))
    except DataError as error:
        return _unread(folder, error)
    for file, sidecar in zip(files, sidecars, strict=False):
        write_sidecar(sidecar_path(file.data.path, into), sidecar, access)
    return IndexedShard(
        folder,
        PackedKeys.of(folder, seen[0].keys, seen[0].numbers),
        utterances=len(tables[0]),
        frames=seen[0].frames,
        bytes=sum(file.data.size for file in files),
        index_bytes=sum(map(len, sidecars)) if sidecars else sum(4 * len(file) for file in files),
        problems=tuple(problem for one in seen for problem in one.problems),
        fresh=fresh,
    )


def _unread(folder: str, error: DataError) -> IndexedShard:
    return IndexedShard(folder, PackedKeys.of(folder, [], []), problems=(error,), indexed=False)


def _fits(file: IndexedFile, into: str | None, access: Access | None) -> bool:
    """Return whether the file has checksums that fit the data as it is now."""
    try:
        known = read_checksums(file.data.path, access, into)
    except ListError:
        return False
    return (known.digest, known.stamp) == (file.digest, identity(file.data.path, access)[1])


def _checksums(file: IndexedFile, access: Access | None) -> bytes:
    return dumps(file.digest, identity(file.data.path, access)[1], file.each())


class _Seen:
    """The utterances of a folder: keys and numbers of those that can be read, frames of 10 ms, and problems."""

    def __init__(self, table: IndexedFolder) -> None:
        self.keys, self.numbers, self.problems = list[str](), list[int](), list[DataError]()
        frames = 0.0
        texts: Iterable[Any] = repeat(None, len(table)) if table.metainfo is None else table.metainfo.each()
        for number, data in enumerate(texts):
            try:
                fields = table.parsed(number, None if data is None else bytes(data))
            except DataError as error:
                self.problems.append(error)
                continue
            self.keys.append(fields["key"])
            self.numbers.append(number)
            if (wav := fields.get("wav")) is not None and table.audio is not None:
                frames += 100 * wav.info.samples / wav.info.sample_rate
        self.frames = int(frames)
