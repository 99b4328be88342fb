"""Reading everything once, to know what is wrong before training does: shards, raw lists, manifests, indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.prep.duplicates import duplicates
from uio_pipes.prep.index import each_shard
from uio_pipes.prep.manifest import ShardEntry, read_manifest
from uio_pipes.prep.verify_lines import verify_lines
from uio_pipes.prep.verify_shard import Checked, Wanted, verify_shard
from uio_pipes.quarantine import Entry, home
from uio_pipes.sources.table import Table

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
) -> Iterator[Verified]:
    """Check lists of shards, shards and raw lists; gives what is known before and after each task, at last all
    of it.

    ``only``: shards and lists (not their lines) to look at; None: all.

    Raises: ListError if a list cannot be used.
    """
    wanted = wanted or Wanted()
    table = Table(tuple(paths), access)
    shards, lines = _sorted(table, only)
    known = _manifest(table, shards, access)
    report = Verified(items=len(shards) + len(lines))
    tasks: list[Task] = [(verify_shard, at, 1, (url, known.get(at), wanted, access)) for at, url in shards.items()]
    for first in range(0, len(lines), LINES):
        chunk = lines[first : first + LINES]
        listed = [(text, place) for _, text, place in chunk]
        tasks.append((verify_lines, chunk[0][0], len(chunk), (listed, wanted, access)))
    return _reports(table, tasks, report, jobs, access, whole=only is None)


def _reports(
    table: Table, tasks: list[Task], report: Verified, jobs: int, access: Access | None, *, whole: bool
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
    report.findings += _not_in_list(table, access) if whole else ()
    yield report


def _run(work: Any, at: int, items: int, arguments: tuple[Any, ...]) -> tuple[int, int, Checked]:
    return at, items, work(*arguments)


def _sorted(table: Table, only: frozenset[str] | None) -> tuple[dict[int, str], list[tuple[int, str, str]]]:
    """Shards by their first number, and lines of raw lists with their places."""
    shards, lines, seen = dict[int, str](), list[tuple[int, str, str]](), set[str]()
    for number in range(len(table)):
        item, place = table[number], table.place(number)
        if only is not None and (home(place) if item.startswith("{") else item) not in only:
            continue
        if item.startswith("{"):
            lines.append((number, item, place))
        elif item not in seen:  # listed twice, it is read once
            seen.add(item)
            shards[number] = item
    return shards, lines


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
