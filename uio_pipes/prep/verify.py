"""Reading everything once, to know what is wrong before training does: shards, raw lists, TouchDatasets, Kaldi folders,
manifests, indexes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.manifest import ShardEntry, read_manifest
from uio_pipes.formats.lists.quarantine import Entry, home
from uio_pipes.formats.lists.table import Table
from uio_pipes.formats.touch.table import names_folder, parse_entry
from uio_pipes.io.access import Access
from uio_pipes.prep.checking.duplicates import duplicates, listed_twice
from uio_pipes.prep.checking.lines import verify_lines
from uio_pipes.prep.checking.records import Share, verify_records
from uio_pipes.prep.checking.shard import Checked, Wanted, verify_shard
from uio_pipes.prep.indexing.shard import each_shard
from uio_pipes.sources.indexed import ListIndexed
from uio_pipes.sources.kaldi import ListKaldi

__all__ = ["Confirmed", "Verified", "confirm", "verify"]

Task = tuple[Any, int, int, tuple[Any, ...]]  # a check, the number of its first item, how many, what it takes
DUPLICATE = "duplicate_key"
LINES = 256  # of a raw list that a process checks at a time


@dataclass
class Verified:
    """What was read, and all that is wrong with it, in the order of the list. ``checked``: of the ``items``, so far."""

    items: int = 0
    checked: int = 0
    utterances: int = 0
    bytes: int = 0
    findings: list[DataError] = field(default_factory=list)

    @property
    def reasons(self) -> dict[str, int]:
        return dict(sorted(Counter(found.reason for found in self.findings).items()))


def verify(
    paths: Sequence[str],
    wanted: Wanted | None = None,
    *,
    jobs: int = 1,
    access: Access | None = None,
    only: frozenset[str] | None = None,
    allow_pipes: bool = False,
) -> Iterator[Verified]:
    """Check lists (of shards, raw, of TouchDatasets), shards and folders of TouchDatasets or Kaldi's; gives what is
    known before and after each task, at last all of it.

    ``only``: shards and lists (not their lines) to look at; None: all. ``allow_pipes``: of a Kaldi folder.

    Raises: ListError if a list cannot be used.
    """
    wanted = wanted or Wanted()
    given = tuple(path for path in paths if not os.path.isdir(path))
    folders = [_folder(path, allow_pipes) for path in paths if os.path.isdir(path)]
    table = Table(given, access) if given else None
    shards, lines, indexed = _sorted(table, only) if table else ({}, [], [])
    known = _manifest(table, shards, access) if table else {}
    tasks: list[Task] = [(verify_shard, at, 1, (url, known.get(at), wanted, access)) for at, url in shards.items()]
    tasks += _of_lines(lines, wanted, access)
    tasks += _of_records([*indexed, *folders], len(table) if table else 0, jobs, wanted)
    report = Verified(items=len(shards) + len(lines) + len(indexed) + len(folders))
    return _reports(table, tasks, report, jobs, access, only)


def _of_lines(lines: list[tuple[int, str, str]], wanted: Wanted, access: Access | None) -> Iterator[Task]:
    for first in range(0, len(lines), LINES):
        chunk = lines[first : first + LINES]
        yield verify_lines, chunk[0][0], len(chunk), ([(text, place) for _, text, place in chunk], wanted, access)


def _of_records(folders: list[Share], behind: int, jobs: int, wanted: Wanted) -> Iterator[Task]:
    """A share of each folder for each process."""
    shares = (folder._replace(part=part, parts=jobs) for folder in folders for part in range(jobs))
    return ((verify_records, behind + at, int(share.part == 0), (share, wanted)) for at, share in enumerate(shares))


def _folder(path: str, allow_pipes: bool) -> Share:
    """Raises: ListError if it is none of a TouchDataset or of Kaldi's, or cannot be opened."""
    from uio_pipes.prep.recognize import recognize

    listing = recognize(path, allow_pipes).pipeline.stages[0]
    assert isinstance(listing, (ListIndexed, ListKaldi))
    listing.table()
    return Share(path, listing)


def _reports(
    table: Table | None,
    tasks: list[Task],
    report: Verified,
    jobs: int,
    access: Access | None,
    only: frozenset[str] | None,
) -> Iterator[Verified]:
    done = dict[int, Checked]()
    yield report
    for at, items, checked in each_shard(_run, tasks, jobs):
        done[at] = checked
        report.checked += items
        report.utterances += checked.utterances
        report.bytes += checked.bytes
        yield report
    ordered = [done[at] for at in sorted(done)]
    report.findings = [found for checked in ordered for found in checked.findings]
    report.findings += duplicates([checked.keys for checked in ordered])
    if table is not None:
        report.findings += (error for error in listed_twice(table) if only is None or error.url in only)
        report.findings += _not_in_list(table, access) if only is None else ()
    yield report


def _run(work: Any, at: int, items: int, arguments: tuple[Any, ...]) -> tuple[int, int, Checked]:
    return at, items, work(*arguments)


def _sorted(
    table: Table, only: frozenset[str] | None
) -> tuple[dict[int, str], list[tuple[int, str, str]], list[Share]]:
    """Shards by their first number; lines of raw lists with their places; folders of TouchDatasets."""
    shards, lines, folders, seen = dict[int, str](), list[tuple[int, str, str]](), list[Share](), set[str]()
    for number in range(len(table)):
        item, place = table[number], table.place(number)
        if only is not None and (home(place) if item.startswith("{") else item) not in only:
            continue
        if item.startswith("{"):
            lines.append((number, item, place))
        elif item not in seen:  # listed twice, it is read once
            seen.add(item)
            if names_folder(item):
                folder, metainfo = parse_entry(item, place)
                folders.append(Share(folder, ListIndexed((folder,), metainfo=metainfo)))
            else:
                shards[number] = item
    return shards, lines, folders


def _manifest(table: Table, shards: dict[int, str], access: Access | None) -> dict[int, ShardEntry]:
    manifests = [read_manifest(name, access) or {} for name in table.lists]
    found = {}
    for number, url in shards.items():
        entry = next((manifest[url] for manifest in manifests if url in manifest), None)
        if entry is not None:
            found[number] = entry
    return found


def _not_in_list(table: Table, access: Access | None) -> Iterator[DataError]:
    listed = {table[number] for number in range(len(table))}
    for name in table.lists:
        for shard in read_manifest(name, access) or {}:
            if shard not in listed:
                message = f"the manifest of {name} has this shard, the list has not: put it back, or index anew"
                yield DataError("missing_shard", message, url=shard)


@dataclass(frozen=True)
class Confirmed:
    """Entries of a quarantine file: still bad, well now, and of shards that are on none of the lists."""

    bad: list[Entry]
    well: list[Entry]
    elsewhere: list[Entry]


def confirm(
    paths: Sequence[str], entries: list[Entry], wanted: Wanted, *, jobs: int = 1, access: Access | None = None
) -> Confirmed:
    """Look at the shards (and lists) that the entries name, and only at those; if one names a key that was there twice,
    at the headers of all, as its like may be anywhere. Raises: ListError."""
    homes = frozenset(home(entry.get("url", "")) for entry in entries)
    table = Table(tuple(paths), access)
    if any(names_folder(table[i]) for i in range(len(table))):
        raise ListError(
            "shards and raw lists can be looked at again by --confirm; verify TouchDatasets anew, as a whole"
        )
    here = {home(table.place(i)) if table[i].startswith("{") else table[i] for i in range(len(table))}
    result = Confirmed([], [], [e for e in entries if home(e.get("url", "")) not in here])
    if not homes & here:
        return result
    *_, report = verify(paths, wanted, jobs=jobs, access=access, only=homes)
    keys = {(home(found.url), found.key) for found in report.findings if found.key}
    spots = {(home(found.url), found.reason, found.offset) for found in report.findings}
    twice = set[str]()
    if any(entry["reason"] == DUPLICATE for entry in entries):
        *_, all_of_it = verify(paths, replace(wanted, decode=False), jobs=jobs, access=access)
        twice = {found.key for found in all_of_it.findings if found.reason == DUPLICATE}
    for entry in entries:
        where = home(entry.get("url", ""))
        if where in here:
            same = (where, entry.get("key")) in keys or (where, entry["reason"], entry.get("offset")) in spots
            same |= entry["reason"] == DUPLICATE and entry.get("key") in twice
            (result.bad if same else result.well).append(entry)
    return result
