"""Indexes for all shards of lists, and a manifest for each list that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from uio_pipes.errors import DataError, ListError
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local
from uio_pipes.prep.duplicates import duplicates, listed_twice
from uio_pipes.prep.index import IndexedShard, index_shards
from uio_pipes.prep.manifest import ShardEntry, read_manifest, write_manifest
from uio_pipes.sources.open_files import against_manifest
from uio_pipes.sources.table import Table
from uio_pipes.sources.tar_reader import Grouping

__all__ = ["IndexedLists", "index_lists"]

Follow = Callable[[Iterable[IndexedShard], str, int], Iterator[IndexedShard]]


@dataclass
class IndexedLists:
    """What indexing came to. ``problems``: shards without an index, damaged spots, audio, keys and shards that
    occur twice."""

    shards: int = 0
    fresh: int = 0
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    index_bytes: int = 0
    manifests: list[str] = field(default_factory=list)
    problems: list[DataError] = field(default_factory=list, repr=False)

    @property
    def overhead(self) -> float:
        """Bytes of the indexes for a byte of shards."""
        return self.index_bytes / self.bytes if self.bytes else 0.0

    def __str__(self) -> str:
        hours = self.frames / 360_000
        text = f"{self.utterances} utterances ({hours:.2f} h) in {self.shards} shards ({self.fresh} indexed before)"
        text += f", indexes of {self.index_bytes / 1e6:.2f} MB ({self.overhead:.2%} of the shards)"
        text += "".join(f", manifest {path}" for path in self.manifests)
        return text + (f", {len(self.problems)} problems" if self.problems else "")

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
    """Index every shard of the lists. ``manifests``: for which local lists one is written: those without, all, none;
    but never for one of which a shard could not be read, or is damaged.

    Raises: ListError if a list cannot be used, or an index cannot be written.
    """
    table = Table(tuple(paths), access)
    items = [table[number] for number in range(len(table))]
    if (line := next((n for n, item in enumerate(items) if item.startswith("{")), None)) is not None:
        raise ListError(
            f"{table.place(line)} is an utterance of a raw list: only tar shards are indexed; pack it first"
        )
    urls = list(dict.fromkeys(items))
    done = {}
    shards = index_shards(urls, into=into, jobs=jobs, grouping=grouping, text=text, access=access, force=force)
    for shard in follow(shards, "indexing", len(urls)):
        done[shard.url] = shard
    report = IndexedLists(shards=len(urls))
    for url in urls:
        _add(report, done[url])
    report.problems += duplicates([done[url].keys for url in urls])
    report.problems += listed_twice(table)
    for name in table.lists if manifests is not None else ():
        known = read_manifest(name, access) if is_local(name) is not None and manifests == "missing" else None
        if known is not None:
            report.problems += _miscounted(known, table.of(name), done)
        elif is_local(name) is not None:
            _write(report, name, table.of(name), done)
    return report


def _add(report: IndexedLists, shard: IndexedShard) -> None:
    report.fresh += shard.fresh
    report.utterances += shard.utterances
    report.frames += shard.frames
    report.bytes += shard.bytes
    report.index_bytes += shard.index_bytes
    report.problems += shard.problems


def _miscounted(known: dict[str, ShardEntry], lines: list[str], done: dict[str, IndexedShard]) -> Iterator[DataError]:
    """Shards that hold another number of utterances than the manifest says, or are other bytes."""
    for line in lines:
        one = done[line]
        if line in known and one.indexed:
            bad = against_manifest(line, known[line], one.utterances, one.bytes, one.crc32)
            yield from [bad] if bad is not None else []


def _write(report: IndexedLists, name: str, lines: list[str], done: dict[str, IndexedShard]) -> None:
    if all(done[line].indexed and not done[line].damaged for line in lines):
        report.manifests.append(str(write_manifest(is_local(name) or name, (done[line].entry(line) for line in lines))))
