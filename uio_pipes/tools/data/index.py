"""Indexes for all shards of lists and for other archives, manifests for lists, and checksums for TouchDatasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Literal

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.processes import as_done
from uio_pipes.base.urls import plural, redact
from uio_pipes.formats.archives.archive import is_archive, is_zip
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.table import ItemTable, expand, found_by
from uio_pipes.formats.tar.catalogue import keep_catalogue
from uio_pipes.formats.tar.checks import against_manifest, open_sidecar, sidecar_path
from uio_pipes.formats.tar.index import ArchiveIndex, dumps
from uio_pipes.formats.tar.reader import Grouping
from uio_pipes.formats.touchdataset import IndexedFile, checksum_file, read_checksums
from uio_pipes.io.access import PLAIN
from uio_pipes.io.folders import write_to
from uio_pipes.io.opening import identity, is_local
from uio_pipes.sources.touchdataset.folder import (
    METAINFO,
    FolderEntry,
    IndexedFolder,
    folders,
    names_touchdataset,
    pairs_of,
)
from uio_pipes.tools.data.common import PackedKeys, duplicates, follow, listed_twice
from uio_pipes.tools.data.scan import Scanning
from uio_pipes.tools.data.writing.journal import write_manifest


def datasets(paths: Iterable[str]) -> tuple[dict[str, list[FolderEntry]], list[str]]:
    """Return the folders of TouchDatasets that the paths name or list, each with what lists read of it, and the paths
    of another kind. Raises: ListError."""
    found, others = dict[str, list[FolderEntry]](), list[str]()
    for path in paths:
        names = list(expand(path, PLAIN))
        if not any(map(names_touchdataset, names)):
            others.append(path)
            continue
        for entry in folders(tuple(names), None, PLAIN):
            found.setdefault(entry.folder.rstrip("/"), []).append(entry)
    return found, others


def index_folder(
    folder: str, entries: Sequence[FolderEntry], into: str | None = None, force: bool = False
) -> IndexedShard:
    """Write the checksums of one folder, unless those that exist fit: of what lists read of it and, as far as that
    shows, of other pairs in it, of which metadata is checked, too. Raises: ListError if they cannot be written."""
    first, *more = dict.fromkeys(entries)
    named = {name for entry in (first, *more) for name in entry.names}
    beside = [name for name in pairs_of(folder) if name not in named]
    if first.metainfo:
        more += [first._replace(metainfo=name) for name in beside if name.startswith(METAINFO)]
    try:
        tables = [IndexedFolder(entry, PLAIN) for entry in (first, *more)]
        opened = {file.data.path: file for table in tables for file in table.files}
        others = (IndexedFile(f"{folder}/{name}") for name in beside)
        files = list({**{file.data.path: file for file in others}, **opened}.values())
        stamps = [identity(file.data.path)[1] for file in files]
        fresh = not force and all(_fits(file, stamp, into) for file, stamp in zip(files, stamps, strict=True))
        made = () if fresh else zip(files, stamps, strict=True)
        sidecars = [checksum_file(file.digest, stamp, file.each()) for file, stamp in made]
        seen = [_Seen(table) for table in tables]
    except (ListError, DataError) as error:
        problem = error if isinstance(error, DataError) else DataError("bad_index", str(error), url=folder)
        return IndexedShard(folder, problems=(problem,), indexed=False)
    for file, sidecar in zip(files, sidecars, strict=False):
        write_sidecar(sidecar_path(file.data.path, into), sidecar)
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


def _fits(file: IndexedFile, stamp: str, into: str | None) -> bool:
    """Return whether the file has checksums that fit the data as it is now."""
    try:
        known = read_checksums(file.data.path, PLAIN, into)
    except ListError:
        return False
    return (known.digest, known.stamp) == (file.digest, stamp)


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


NO_KEYS = PackedKeys.of("", [], [])
PRELOAD = ["uio_pipes.tools.data.scan"]  # imported once for all processes of a pool


@dataclass(frozen=True)
class IndexedShard:
    """The result for one archive, or for one folder. ``problems``: failures that reading meets, notes, and audio with a
    damaged header.

    ``frames``: of 10 ms, as far as headers give them; ``fresh``: it had an index that fits; ``damaged``: reading meets
    failures.
    """

    url: str
    keys: PackedKeys = field(default=NO_KEYS, repr=False)
    utterances: int = 0
    members: int = 0
    frames: int = 0
    bytes: int = 0
    index_bytes: int = 0
    crc32: str = ""
    problems: tuple[DataError, ...] = ()
    fresh: bool = False
    indexed: bool = True
    damaged: bool = False


def index_shard(
    url: str,
    into: str | None = None,
    grouping: Grouping = "wenet",
    text: str = "txt",
    force: bool = False,
    members: bool = False,
) -> IndexedShard:
    """Index one archive; ``members``: whether its members are wanted in any order, not its utterances.

    If its index fits, it is left as it is, unless ``force``; one that knows utterances, or points to begin at, is made
    anew with these. If the archive cannot be read, its ``problems`` have the reason, and it gets no index. A zip needs
    none. Raises: ListError if the index cannot be written, or a package is missing.
    """
    if members and is_zip(url):
        return IndexedShard(url, fresh=True)
    known = None
    with suppress(ListError):
        known = open_sidecar(url, PLAIN, into, members=True)
    how: Any = (grouping, text)
    if members:
        how = (known.grouping, known.text) if known is not None else ("", "")
    fits = known is not None and how == (known.grouping, known.text)
    if known is not None and fits and not force and (not members or known.seekable or not known.grouping):
        return _summary(url, known, fresh=True)
    points = members or (known is not None and len(known.columns["content"]) > 0)
    try:
        reading = Scanning(url, *how, seekable=points)
        index = reading.whole()
    except DataError as error:
        return IndexedShard(url, problems=(error,), indexed=False)
    write_sidecar(sidecar_path(url, into), dumps(index))
    bad = reading.bad if index.grouping else []
    if members and not index.seekable:
        why = "it is damaged" if index.errors else f"{index.shard.compression} in one piece has no points to begin at"
        message = f"the archive can still only be read in its order: {why}"
        bad.append(DataError("compressed_tar", message, url=redact(url)))
    return _summary(url, index, bad)


def _summary(url: str, index: ArchiveIndex, problems: Sequence[DataError] = (), fresh: bool = False) -> IndexedShard:
    return IndexedShard(
        url,
        utterances=len(index),
        members=len(index.columns["offset"]),
        frames=index.frames,
        bytes=index.shard.size,
        index_bytes=index.file_size,
        crc32=f"{index.shard.crc32:08x}",
        keys=PackedKeys.of_shard(url, index),
        problems=(*index.errors, *problems),
        fresh=fresh,
        damaged=bool(index.errors),
    )


def write_sidecar(name: str, data: bytes) -> None:
    """Write an index, completely or not at all. Raises: ListError."""
    try:
        write_to(name, data)
    except (OSError, ListError) as error:
        raise ListError(f"cannot write the index {name} ({error}): name a folder for it with --into") from error


@dataclass
class IndexedLists:
    """The result of indexing shards and folders, or the members of ``archives``. ``problems``: what has no index,
    damaged spots and audio, and keys and shards that occur twice."""

    archives: int = 0
    members: int = 0
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
        if self.archives:
            text = f"{plural(self.members, 'member')} in {plural(self.archives, 'archive')}"
        else:
            counts = [plural(self.shards, "shard")] if self.shards or not self.folders else []
            counts += [plural(self.folders, "TouchDataset")] if self.folders else []
            hours = f"({self.frames / 360_000:.2f} h)"
            text = f"{plural(self.utterances, 'utterance')} {hours} in {' and '.join(counts)}"
        text += f" ({self.fresh} indexed before)"
        text += f", indexes of {self.index_bytes / 1e6:.2f} MB ({self.overhead:.2%} of the data)"
        text += "".join(f", manifest {path}" for path in self.manifests)
        return text + (f", {plural(len(self.problems), 'problem')}" if self.problems else "")

    def add(self, shard: IndexedShard) -> None:
        for name in ("fresh", "members", "utterances", "frames", "bytes", "index_bytes"):
            setattr(self, name, getattr(self, name) + getattr(shard, name))
        self.problems += shard.problems

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
    force: bool = False,
    manifests: Literal["missing", "all"] | None = "missing",
) -> IndexedLists:
    """Index every shard of the lists, and write checksums for every TouchDataset.

    ``manifests``: write a manifest for local lists of shards without one ("missing"), for "all" or for none (None), but
    never for a list with a shard that is damaged or cannot be read. Of many shards, the catalogue is written, too: as
    for ``from_tar_index`` of the same paths.

    Raises: ListError if a list cannot be used, or an index cannot be written.
    """
    found, given = datasets(paths)
    table = ItemTable(tuple(given)) if given or not found else None
    entries = [] if table is None else list(table.entries())
    if (place := next((place for item, place in entries if item.startswith("{")), None)) is not None:
        remedy = "only tar shards and TouchDatasets are indexed; pack it first"
        raise ListError(f"{place} is an utterance of a raw list: {remedy}")
    urls = list(dict.fromkeys(url for url, _ in entries))
    of_shards = ((url, (url, into, grouping, text, force)) for url in urls)
    of_folders = ((folder, (folder, read, into, force)) for folder, read in found.items())
    shards = as_done(index_shard, of_shards, min(jobs, len(urls)), PRELOAD)
    folders = as_done(index_folder, of_folders, min(jobs, len(found)), PRELOAD)
    names = [*urls, *found]
    done = {shard.url: shard for shard in _followed(chain(shards, folders), len(names))}
    report = IndexedLists(shards=len(urls), folders=len(found))
    for name in names:
        report.add(done[name])
    report.problems += duplicates([done[name].keys for name in names])
    if table is not None:
        report.problems += listed_twice(entries)
        for name in table.lists if manifests is not None else ():
            if is_local(name) is None:
                continue
            known = read_manifest(name) if manifests == "missing" else None
            by_line = {line: done[found_by(line, name)] for line in table.of(name)}  # as the list names the shards
            if known is None:
                if all(one.indexed and not one.damaged for one in by_line.values()):
                    shards = ((line, by_line[line]) for line in table.of(name))
                    report.manifests.append(write_manifest(is_local(name) or name, shards))
                continue
            for line, one in by_line.items():
                if line in known and one.indexed:
                    bad = against_manifest(line, known[line], one.utterances, one.bytes, one.crc32)
                    report.problems += [] if bad is None else [bad]
        if all(shard.indexed for shard in done.values()):
            keep_catalogue([url for url, _ in entries], PLAIN, into)
    return report


def index_archives(paths: Sequence[str], *, jobs: int = 1, force: bool = False) -> IndexedLists:
    """Index the members of archives, given by paths, globs and URLs, so that they can be read in any order.

    Raises: ListError if one is no archive, or an index cannot be written.
    """
    urls = [url for path in paths for url in expand(path, PLAIN)]
    for url in urls:
        if not is_archive(url):
            raise ListError(f"{redact(url)} is no archive by its name (.tar, .tar.gz, .zip, …): name archives")
    tasks = ((url, (url, None, "wenet", "txt", force, True)) for url in urls)
    done = as_done(index_shard, tasks, min(jobs, len(urls)), PRELOAD)
    report = IndexedLists(archives=len(urls))
    for one in _followed(done, len(urls)):
        report.add(one)
    return report


def _followed(results: Iterable[tuple[str, IndexedShard]], total: int) -> Iterator[IndexedShard]:
    return follow(((result, 1) for _, result in results), "indexing", total)
