"""Indexes for all shards of lists, a manifest for each list that has none, and checksums for TouchDatasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.processes import as_done
from uio_pipes.base.urls import counted
from uio_pipes.formats.lists.manifest import ShardEntry, read_manifest
from uio_pipes.formats.lists.table import ItemTable, expand, found_by
from uio_pipes.formats.tar.catalogue import keep_catalogue
from uio_pipes.formats.tar.checks import against_manifest, open_sidecar, sidecar_path
from uio_pipes.formats.tar.index import ShardIndex, dumps
from uio_pipes.formats.tar.reader import Grouping
from uio_pipes.formats.touchdataset import IndexedFile, checksum_file, read_checksums
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.files import atomic_path
from uio_pipes.io.opening import identity, is_local
from uio_pipes.io.transport import filesystem
from uio_pipes.sources.touchdataset.folder import METAINFO, FolderEntry, IndexedFolder, folders, pairs_of
from uio_pipes.tools.data.common import PackedKeys, duplicates, listed_twice
from uio_pipes.tools.data.reading.data_list import names_touchdataset
from uio_pipes.tools.data.scan import scan_shard
from uio_pipes.tools.data.writing.journal import write_manifest


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
    return checksum_file(file.digest, identity(file.data.path, access)[1], file.each())


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


PRELOAD = ["uio_pipes.tools.data.scan"]  # imported once for all processes of a pool


@dataclass(frozen=True)
class IndexedShard:
    """The result for one shard. ``problems``: failures that reading meets, notes, and audio with a damaged header.

    ``frames``: of 10 ms, as far as headers give them; ``fresh``: it had an index that fits; ``damaged``: reading meets
    failures.
    """

    url: str
    keys: PackedKeys = field(repr=False)
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    index_bytes: int = 0
    crc32: str = ""
    problems: tuple[DataError, ...] = ()
    fresh: bool = False
    indexed: bool = True
    damaged: bool = False

    def entry(self, line: str) -> ShardEntry:
        """Return the entry for the manifest of a list in which the shard is ``line``."""
        return ShardEntry(line, self.utterances, self.frames, self.bytes, self.crc32)


def index_shard(
    url: str,
    into: str | None = None,
    grouping: Grouping = "wenet",
    text: str = "txt",
    access: Access | None = None,
    force: bool = False,
) -> IndexedShard:
    """Index one shard. If its index fits, it is left as it is, unless ``force``; if it cannot be read, its ``problems``
    have the reason, and it gets none. Raises: ListError if the index cannot be written."""
    try:
        if not force and (fitting := _fitting(url, into, (grouping, text), access)) is not None:
            return _summary(url, fitting, len(dumps(fitting)), fresh=True)
        index, bad = scan_shard(url, access, grouping, text)
    except DataError as error:
        return IndexedShard(url, PackedKeys.of(url, [], []), problems=(error,), indexed=False)
    data = dumps(index)
    write_sidecar(sidecar_path(url, into), data, access)
    return _summary(url, index, len(data), problems=bad)


def _fitting(url: str, into: str | None, how: tuple[str, str], access: Access | None) -> ShardIndex | None:
    try:
        index = open_sidecar(url, access, into)
    except ListError:
        return None
    return index if (index.grouping, index.text) == how else None


def _summary(
    url: str, index: ShardIndex, size: int, problems: Sequence[DataError] = (), fresh: bool = False
) -> IndexedShard:
    return IndexedShard(
        url,
        utterances=len(index),
        frames=index.frames,
        bytes=index.shard.size,
        index_bytes=size,
        crc32=f"{index.shard.crc32:08x}",
        keys=PackedKeys.of_shard(url, index),
        problems=(*index.errors, *problems),
        fresh=fresh,
        damaged=bool(index.errors),
    )


def write_sidecar(name: str, data: bytes, access: Access | None = None) -> None:
    """Write an index, completely or not at all. Raises: ListError."""
    path = is_local(name)
    try:
        if path is not None:
            with atomic_path(Path(path)) as temporary:
                temporary.write_bytes(data)
                os.chmod(temporary, 0o644)
            return
        fs, inner = filesystem(name, access or Access())
        try:
            fs.pipe_file(inner, data)  # object stores show an object only when it is complete
        except Exception as error:  # each fsspec backend raises classes of its own
            raise OSError(str(error) or repr(error)) from error
    except (OSError, NotImplementedError) as error:
        raise ListError(f"cannot write the index {name} ({error}): name a folder for it with --into") from error


Follow = Callable[[Iterable[IndexedShard], str, int], Iterator[IndexedShard]]


@dataclass
class IndexedLists:
    """The result of indexing. ``problems``: shards without an index, damaged spots and audio, and keys and shards that
    occur twice."""

    shards: int = 0
    folders: int = 0
    fresh: int = 0
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    index_bytes: int = 0
    manifests: list[str] = field(default_factory=list)
    problems: list[DataError] = field(default_factory=list, repr=False)

    @property
    def overhead(self) -> float:
        """The size of the indexes as a share of the size of the data."""
        return self.index_bytes / self.bytes if self.bytes else 0.0

    def __str__(self) -> str:
        hours = self.frames / 360_000
        counts = [counted(self.shards, "shard")] if self.shards or not self.folders else []
        counts += [counted(self.folders, "TouchDataset")] if self.folders else []
        text = f"{counted(self.utterances, 'utterance')} ({hours:.2f} h) in {' and '.join(counts)}"
        text += f" ({self.fresh} indexed before)"
        text += f", indexes of {self.index_bytes / 1e6:.2f} MB ({self.overhead:.2%} of the data)"
        text += "".join(f", manifest {path}" for path in self.manifests)
        return text + (f", {counted(len(self.problems), 'problem')}" if self.problems else "")

    def as_dict(self) -> dict[str, Any]:
        problems = [{"reason": e.reason, "url": e.url, "member": e.member, "message": e.message} for e in self.problems]
        return {**vars(self), "overhead": round(self.overhead, 6), "problems": problems}


def index_lists(
    paths: Sequence[str],
    *,
    into: str | None = None,
    jobs: int = 1,
    grouping: Grouping = "wenet",
    text: str = "txt",
    access: Access | None = None,
    force: bool = False,
    manifests: Literal["missing", "all"] | None = "missing",
    follow: Follow = lambda items, what, total: iter(items),
) -> IndexedLists:
    """Index every shard of the lists, and write checksums for every TouchDataset.

    ``manifests``: write a manifest for local lists of shards without one ("missing"), for "all" or for none (None), but
    never for a list with a shard that is damaged or cannot be read. Of many shards, the catalogue is written, too: as
    for ``from_tar_index`` of the same paths.

    Raises: ListError if a list cannot be used, or an index cannot be written.
    """
    found, given = datasets(paths, access)
    table = ItemTable(tuple(given), access) if given or not found else None
    entries = [] if table is None else list(table.entries())
    if (place := next((place for item, place in entries if item.startswith("{")), None)) is not None:
        remedy = "only tar shards and TouchDatasets are indexed; pack it first"
        raise ListError(f"{place} is an utterance of a raw list: {remedy}")
    urls = list(dict.fromkeys(url for url, _ in entries))
    of_shards = ((url, (url, into, grouping, text, access, force)) for url in urls)
    of_folders = ((each, (each, into, access, force)) for each in found)
    shards = as_done(index_shard, of_shards, min(jobs, len(urls)), PRELOAD)
    folders = as_done(index_folder, of_folders, min(jobs, len(found)), PRELOAD)
    results = (result for _, result in chain(shards, folders))
    done = {shard.url: shard for shard in follow(results, "indexing", len(urls) + len(found))}
    report = IndexedLists(shards=len(urls), folders=len(found))
    names = [*urls, *(each.folder for each in found)]
    for name in names:
        _add(report, done[name])
    report.problems += duplicates([done[name].keys for name in names])
    if table is not None:
        report.problems += listed_twice(entries)
        _manifests(report, table, done, manifests, access)
        if all(shard.indexed for shard in done.values()):
            keep_catalogue([url for url, _ in entries], access or PLAIN, into)
    return report


def _manifests(
    report: IndexedLists, table: ItemTable, done: dict[str, IndexedShard], wanted: str | None, access: Access | None
) -> None:
    for name in table.lists if wanted is not None else ():
        if is_local(name) is None:
            continue
        known = read_manifest(name, access) if wanted == "missing" else None
        by_line = {line: done[found_by(line, name)] for line in table.of(name)}  # as the list names the shards
        if known is None:
            _write(report, name, table.of(name), by_line)
            continue
        for line, one in by_line.items():
            if line in known and one.indexed:
                bad = against_manifest(line, known[line], one.utterances, one.bytes, one.crc32)
                report.problems += [] if bad is None else [bad]


def _add(report: IndexedLists, shard: IndexedShard) -> None:
    report.fresh += shard.fresh
    report.utterances += shard.utterances
    report.frames += shard.frames
    report.bytes += shard.bytes
    report.index_bytes += shard.index_bytes
    report.problems += shard.problems


def _write(report: IndexedLists, name: str, lines: list[str], done: dict[str, IndexedShard]) -> None:
    if all(done[line].indexed and not done[line].damaged for line in lines):
        report.manifests.append(str(write_manifest(is_local(name) or name, (done[line].entry(line) for line in lines))))
