"""What all preparation shares: progress bars, suggestions for a mistyped path, a ledger that keeps all failures; and
what occurs twice: keys, found in little memory in any number of shards or lists, and shards."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from uio_pipes.base.errors import NOTES, DataError, LeftOut
from uio_pipes.core.ledger import Ledger
from uio_pipes.formats.lists.quarantine import home
from uio_pipes.formats.naming import finding
from uio_pipes.formats.tar.index import ArchiveIndex

logger = logging.getLogger("uio_pipes")


@dataclass
class Noting(Ledger):
    """A ledger without a budget. While it is ``passing`` over what is known, only what is left out is counted."""

    found: list[DataError] = field(default_factory=list)
    passing: bool = False

    def fail(self, error: DataError, stage: str) -> None:
        if isinstance(error, LeftOut):
            self.count(error.reason)
        if self.quiet or self.passing or isinstance(error, LeftOut):
            return
        if error.reason in NOTES and not error.key:
            logger.warning("%s: %s", stage, error)  # of a whole shard: no utterance failed
        else:
            self.found.append(error)

    def take(self) -> list[DataError]:
        """Return the failures since the last call."""
        found, self.found = self.found, []
        return found


T = TypeVar("T")


def progress_bar() -> Progress:
    """Return a bar that stays on the screen when it is full."""
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def follow(groups: Iterable[tuple[T, int]], what: str, total: int | None) -> Iterator[T]:
    """Pass items on while a bar adds up their counts; after the last item the bar is full, whatever was left out."""
    done = 0
    with progress_bar() as bar:
        task = bar.add_task(what, total=total)
        for item, worth in groups:
            done += worth
            bar.update(task, completed=done)
            yield item
        whole = max(done, total or 0)
        bar.update(task, completed=whole, total=whole)


_GAP = "\0"  # no name in a tar has it


_NUMBER = re.compile(r" (\d+)$")  # of the line, row or utterance, at the end of a place


@dataclass(frozen=True)
class PackedKeys:
    """The keys of one shard or list, in one string. ``starts``: the byte offset, line or row of each.

    ``runs``: of keys that are not at bytes, the number of the first one in each run of equal places but for the number,
    and that place: ``data.list, line``.
    """

    url: str
    joined: str
    starts: npt.NDArray[np.int64]
    runs: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, url: str, keys: Sequence[str], starts: Sequence[int]) -> PackedKeys:
        return cls(url, _GAP.join(key.replace(_GAP, " ") for key in keys), np.array(starts, np.int64))

    @classmethod
    def of_shard(cls, url: str, index: ArchiveIndex) -> PackedKeys:
        """Return the keys of an index."""
        numbers = range(len(index))
        return cls.of(url, [index.key(n) for n in numbers], [index.start(n) for n in numbers])

    @classmethod
    def at(cls, url: str, keys: Sequence[str], places: Sequence[str]) -> PackedKeys:
        """Return keys with places such as ``data.list, line 7``."""
        found = [_NUMBER.search(place) for place in places]
        heads = [place[: end.start()] if end else place for place, end in zip(places, found, strict=True)]
        runs = tuple((i, head) for i, head in enumerate(heads) if not i or head != heads[i - 1])
        return replace(cls.of(url, keys, [int(end[1]) if end else -1 for end in found]), runs=runs)

    def place(self, number: int) -> tuple[str, int | None]:
        """Return the place of a key, and its offset if that is one of bytes."""
        start = int(self.starts[number])
        if not self.runs:
            return self.url, start
        head = self.runs[bisect_right(self.runs, number, key=lambda run: run[0]) - 1][1]
        return (head if start < 0 else f"{head} {start}"), None

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Return a 64-bit hash of each key."""
        keys = self.joined.encode().split(_GAP.encode()) if len(self.starts) else []
        digests = b"".join(blake2b(key, digest_size=8).digest() for key in keys)
        return np.frombuffer(digests, np.uint64)


def duplicates(packed: Sequence[PackedKeys]) -> Iterator[DataError]:
    """Yield ``duplicate_key`` for each utterance whose key an earlier one has."""
    hashes = [keys.hashes() for keys in packed]
    values, counts = np.unique(np.concatenate([*hashes, np.empty(0, np.uint64)]), return_counts=True)
    twice, seen = values[counts > 1], dict[str, tuple[str, int | None]]()
    for keys, of_keys in zip(packed, hashes, strict=True):
        suspects = np.flatnonzero(np.isin(of_keys, twice)).tolist()
        names = keys.joined.split(_GAP) if suspects else []
        for number in suspects:
            url, offset = place = keys.place(number)
            if (first := seen.setdefault(key := names[number], place)) is not place:
                there = ", byte ".join(str(part) for part in first if part is not None)
                message = f"the same key is in {there}: leave one out, or name them differently"
                yield finding("duplicate_key", message, url, key, offset)


def listed_twice(entries: Iterable[tuple[str, str]]) -> Iterator[DataError]:
    """Yield ``duplicate_shard`` for each shard that one list has again; two lists may well share shards.

    ``entries``: the items of lists, each with its place.
    """
    seen = dict[tuple[str, str], str]()
    for item, place in entries:
        first = seen.setdefault((home(place), item), place)
        if first != place and not item.startswith("{"):
            message = f"{place}, has it again after {first}, and all its utterances would come twice: take one line out"
            yield DataError("duplicate_shard", message, url=item)
