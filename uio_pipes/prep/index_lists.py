"""Indexes for all shards of lists, and a manifest for each list that has none; checksums for TouchDatasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.pool import as_done
from uio_pipes.base.printable import counted
from uio_pipes.formats.lists.manifest import ShardEntry, read_manifest
from uio_pipes.formats.lists.table import Table
from uio_pipes.formats.tar.reader import Grouping
from uio_pipes.formats.tar.whole_shard import against_manifest
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local
from uio_pipes.prep.checking.duplicates import duplicates, listed_twice
from uio_pipes.prep.indexing.folder import datasets, index_folder
from uio_pipes.prep.indexing.shard import PRELOAD, IndexedShard, index_shards
from uio_pipes.prep.writing.manifest import write_manifest

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
    never for a list with a shard that is damaged or cannot be read.

    Raises: ListError if a list cannot be used, or an index cannot be written.
    """
    found, given = datasets(paths, access)
    table = Table(tuple(given), access) if given or not found else None
    entries = _shards_of(table) if table is not None else []
    urls = list(dict.fromkeys(url for url, _ in entries))
    shards = index_shards(urls, into=into, jobs=jobs, grouping=grouping, text=text, access=access, force=force)
    work = ((each, (each, into, access, force)) for each in found)
    folders = (folder for _, folder in as_done(index_folder, work, min(jobs, len(found)), PRELOAD))
    done = {shard.url: shard for shard in follow(chain(shards, folders), "indexing", len(urls) + len(found))}
    report = IndexedLists(shards=len(urls), folders=len(found))
    names = [*urls, *(each.folder for each in found)]
    for name in names:
        _add(report, done[name])
    report.problems += duplicates([done[name].keys for name in names])
    if table is not None:
        report.problems += listed_twice(entries)
        _manifests(report, table, done, manifests, access)
    return report


def _shards_of(table: Table) -> list[tuple[str, str]]:
    entries = list(table.entries())
    if (place := next((place for item, place in entries if item.startswith("{")), None)) is not None:
        raise ListError(
            f"{place} is an utterance of a raw list: only tar shards and TouchDatasets are indexed; pack it first"
        )
    return entries


def _manifests(
    report: IndexedLists, table: Table, done: dict[str, IndexedShard], wanted: str | None, access: Access | None
) -> None:
    for name in table.lists if wanted is not None else ():
        known = read_manifest(name, access) if is_local(name) is not None and wanted == "missing" else None
        if known is not None:
            report.problems += _miscounted(known, table.of(name), done)
        elif is_local(name) is not None:
            _write(report, name, table.of(name), done)


def _add(report: IndexedLists, shard: IndexedShard) -> None:
    report.fresh += shard.fresh
    report.utterances += shard.utterances
    report.frames += shard.frames
    report.bytes += shard.bytes
    report.index_bytes += shard.index_bytes
    report.problems += shard.problems


def _miscounted(known: dict[str, ShardEntry], lines: list[str], done: dict[str, IndexedShard]) -> Iterator[DataError]:
    """Yield errors for shards that differ from their entries in the manifest."""
    for line in lines:
        one = done[line]
        if line in known and one.indexed:
            bad = against_manifest(line, known[line], one.utterances, one.bytes, one.crc32)
            yield from [bad] if bad is not None else []


def _write(report: IndexedLists, name: str, lines: list[str], done: dict[str, IndexedShard]) -> None:
    if all(done[line].indexed and not done[line].damaged for line in lines):
        report.manifests.append(str(write_manifest(is_local(name) or name, (done[line].entry(line) for line in lines))))
