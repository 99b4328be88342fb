"""Checksums for the folders of TouchDatasets: a small file for each ``.bin``, beside it or under another folder."""

from __future__ import annotations

import os
from collections.abc import Iterable

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tar.index_files import identity, sidecar_path
from uio_pipes.formats.touch.checksums import dumps, read_checksums
from uio_pipes.formats.touch.file import IndexedFile
from uio_pipes.formats.touch.folder import IndexedFolder
from uio_pipes.formats.touch.table import METAINFO, folders
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.remote import is_local
from uio_pipes.prep.checking.duplicates import PackedKeys
from uio_pipes.prep.indexing.shard import IndexedShard, write_sidecar
from uio_pipes.prep.reading.data_list import names_touchdataset

Dataset = tuple[str, tuple[str, ...]]  # a folder, and the names of its metadata


def datasets(paths: Iterable[str], access: Access | None = None) -> tuple[list[Dataset], list[str]]:
    """Return the TouchDatasets that the paths name or list, and the paths of another kind. Raises: ListError."""
    found, others = dict[str, dict[str, None]](), list[str]()
    for path in paths:
        names = list(expand(path, access or PLAIN))
        if not any(map(_is_one, names)):
            others.append(path)
            continue
        for folder, name in folders(tuple(names), None, access or PLAIN):
            named = found.setdefault(folder.rstrip("/"), {})
            named.update(dict.fromkeys([name, *_beside(folder)]))
    return [(folder, tuple(names)) for folder, names in found.items()], others


def _is_one(name: str) -> bool:
    try:
        return names_touchdataset(name)
    except ListError:  # reading it as a list of shards gives a better message
        return False


def _beside(folder: str) -> list[str]:
    """Return the names of all metadata in a local folder."""
    path = is_local(folder)
    names = sorted(os.listdir(path)) if path is not None and os.path.isdir(path) else []
    pairs = [name.removesuffix(".idx") for name in names if name.endswith(".idx") and not name.startswith(".")]
    return [name for name in pairs if name.startswith(METAINFO) and f"{name}.bin" in names]


def index_folder(
    dataset: Dataset, into: str | None = None, access: Access | None = None, force: bool = False
) -> IndexedShard:
    """Write the checksums of one folder, unless those that exist fit. Raises: ListError if they cannot be written."""
    folder, names = dataset
    try:
        tables = [IndexedFolder(folder, name, access or PLAIN) for name in names]
        files = [tables[0].audio, *(table.metainfo for table in tables)]
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
        for number, data in enumerate(table.metainfo.each()):
            try:
                fields = table.parsed(number, bytes(data))
            except DataError as error:
                self.problems.append(error)
                continue
            self.keys.append(fields["key"])
            self.numbers.append(number)
            frames += 100 * fields["wav"].info.samples / fields["wav"].info.sample_rate
        self.frames = int(frames)
