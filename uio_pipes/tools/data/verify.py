"""Reading all data once, to find errors before training does: shards, raw lists, TouchDatasets, Kaldi folders, Lhotse's
cuts and Shars, manifests, indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.processes import as_done
from uio_pipes.core.ledger import Tally, add_tallies
from uio_pipes.core.roles import Source
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.quarantine import QuarantineEntry, home
from uio_pipes.formats.lists.table import ItemTable, found_by
from uio_pipes.formats.naming import TEXTLESS
from uio_pipes.io.access import Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.table.streamed import rows_without_audio
from uio_pipes.sources.touchdataset.folder import names_folder, parse_entry
from uio_pipes.sources.touchdataset.source import ListIndexed
from uio_pipes.tools.data.checks import Checked, Share, WantedChecks, verify_lines, verify_records, verify_shard
from uio_pipes.tools.data.common import duplicates, listed_twice
from uio_pipes.tools.data.finding.find import text_elsewhere
from uio_pipes.tools.data.index import PRELOAD
from uio_pipes.tools.data.reading.data_list import TEXT, reads_records
from uio_pipes.tools.data.recognize import Recognized, recognize

Task = tuple[tuple[int, int], tuple[Any, ...]]  # the number of its first item and how many; a check and its arguments
DUPLICATE = "duplicate_key"
LINES = 256  # of a raw list that a process checks at a time


@dataclass
class Verified:
    """The data read so far, and all findings in the order of the list. ``checked``: how many of the ``items``;
    ``notes``: what was not checked."""

    items: int = 0
    checked: int = 0
    utterances: int = 0
    bytes: int = 0
    findings: list[DataError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> dict[str, int]:
        return dict(sorted(Counter(found.reason for found in self.findings).items()))


def verify(
    paths: Sequence[str],
    wanted: WantedChecks | None = None,
    *,
    jobs: int = 1,
    access: Access | None = None,
    only: frozenset[str] | None = None,
    allow_pipes: bool = False,
) -> Iterator[Verified]:
    """Check lists (of shards, raw, of TouchDatasets), shards, manifests of NeMo and Lhotse, Parquet files, and folders
    (TouchDatasets, Kaldi's, Shars); yield the report before the first and after each task, and at last with all
    findings.

    ``only``: the shards and lists (not lines) to check; None: all. ``allow_pipes``: run a Kaldi folder's commands.

    Raises: ListError if a list cannot be used.
    """
    wanted = wanted or WantedChecks()
    records = [path for path in paths if reads_records(path, wanted.fields)]
    given = tuple(path for path in paths if path not in records)
    known = [_known(path, allow_pipes, wanted) for path in records]
    folders = [_share(one, wanted) for one in known]
    table = ItemTable(given, access) if given else None
    entries = list(table.entries()) if table else []
    shards, lines, indexed = _sorted(entries, only, wanted)
    manifests = {name: read_manifest(name, access) or {} for name in table.lists} if table else {}
    manifests = {name: {found_by(url, name): e for url, e in found.items()} for name, found in manifests.items()}
    told = {url: entry for manifest in reversed(manifests.values()) for url, entry in manifest.items()}  # the first one
    tasks: list[Task] = [((at, 1), (verify_shard, url, told.get(url), wanted, access)) for at, url in shards.items()]
    for first in range(0, len(lines), LINES):
        chunk = [(text, place) for _, text, place in lines[first : first + LINES]]
        tasks.append(((lines[first][0], len(chunk)), (verify_lines, chunk, wanted, access)))
    tasks += _of_records([*indexed, *folders], len(entries), jobs, wanted)
    report = Verified(items=len(shards) + len(lines) + len(indexed) + len(folders))
    report.notes = [f"{one.path}: {one.kind}, of which only UTF-8 was checked" for one in known if one.kind == TEXT]
    of_lists = [error for error in listed_twice(entries) if only is None or error.url in only]
    of_lists += [error for one in known for error in _unnamed_text(one, wanted)]
    if only is None:
        listed = {item for item, _ in entries}
        absent = [(name, shard) for name, of in manifests.items() for shard in of if shard not in listed]
        what = "this shard is in the manifest of {}, but not in the list: put it back, or index anew"
        of_lists += [DataError("missing_shard", what.format(name), url=shard) for name, shard in absent]
    streams = {one.name: one.listing for one in folders if isinstance(one.listing, Pipeline)}
    return _reports(tasks, report, jobs, of_lists, streams)


def _of_records(folders: list[Share], first: int, jobs: int, wanted: WantedChecks) -> Iterator[Task]:
    """Yield a share of each folder for each process, numbered from ``first``."""
    shares = (folder._replace(part=part, parts=jobs) for folder in folders for part in range(jobs))
    return (((at, int(share.part == 0)), (verify_records, share, wanted)) for at, share in enumerate(shares, first))


def _known(path: str, allow_pipes: bool, wanted: WantedChecks) -> Recognized:
    """Return what is there. Raises: ListError if nothing that can be checked is."""
    try:
        return recognize(path, allow_pipes, wanted.fields)
    except ListError as error:
        raise ListError(f"nothing was checked: {error}") from error


def _share(known: Recognized, wanted: WantedChecks) -> Share:
    """Open a folder, a manifest or Parquet files. Raises: ListError if it cannot be opened."""
    first = known.pipeline.stages[0]
    listing = _indexed(first, wanted) if isinstance(first, ListIndexed) else first
    if not isinstance(listing, Source):
        raise ListError(f"{known.path} describes a mix: name what its sources name")
    listing.table()
    return Share(known.path, listing if listing.gives == "record" else known.pipeline)


def _unnamed_text(known: Recognized, wanted: WantedChecks) -> Iterator[DataError]:
    """Yield the finding that no utterance has a text, if another field seems to be it."""
    if told := text_elsewhere(known.pipeline) if wanted.text else "":
        yield DataError("missing_text", f"{told}; {TEXTLESS}", url=known.path)


def _indexed(listing: ListIndexed, wanted: WantedChecks) -> ListIndexed:
    """Return the listing, whose utterances need no transcript if none is looked for."""
    return listing if wanted.text else replace(listing, texts=None)


def _reports(
    tasks: list[Task], report: Verified, jobs: int, of_lists: list[DataError], streams: Mapping[str, Pipeline]
) -> Iterator[Verified]:
    """Yield the report after each task, and at last with all findings; ``of_lists``: those of the lists themselves,
    ``streams``: what is read in order, by the names of shares."""
    done = dict[int, Checked]()
    yield report
    for (at, items), checked in as_done(_check, tasks, min(jobs, len(tasks)), PRELOAD):
        done[at] = checked
        report.checked += items
        report.utterances += checked.utterances
        report.bytes += checked.bytes
        yield report
    ordered = [done[at] for at in sorted(done)]
    report.findings = [found for checked in ordered for found in checked.findings]
    for name, pipeline in streams.items():
        tallies = dict[str, Tally]()
        for checked in ordered:
            add_tallies(tallies, checked.tallies if checked.keys.url == name else {})
        report.findings += (e for e in rows_without_audio(pipeline, tallies) if not isinstance(e, LeftOut))
    report.findings += duplicates([checked.keys for checked in ordered])
    report.findings += of_lists
    yield report


def _check(check: Callable[..., Checked], *arguments: Any) -> Checked:
    return check(*arguments)


def _sorted(
    entries: list[tuple[str, str]], only: frozenset[str] | None, wanted: WantedChecks
) -> tuple[dict[int, str], list[tuple[int, str, str]], list[Share]]:
    """Sort a list's items: shards by their first number, lines of raw lists with their places, TouchDatasets."""
    shards, lines, folders, seen = dict[int, str](), list[tuple[int, str, str]](), list[Share](), set[str]()
    for number, (item, place) in enumerate(entries):
        if only is not None and _home(item, place) not in only:
            continue
        if item.startswith("{"):
            lines.append((number, item, place))
        elif item not in seen:  # a shard that is listed twice is read once
            seen.add(item)
            if names_folder(item):
                listing = _indexed(ListIndexed((item,), fields=wanted.fields), wanted)
                folders.append(Share(parse_entry(item, place).folder, listing))
            else:
                shards[number] = item
    return shards, lines, folders


def _home(item: str, place: str) -> str:
    """Return the file that findings of this item name: the list of a raw line, or the shard."""
    return home(place if item.startswith("{") else item)


@dataclass(frozen=True)
class Confirmed:
    """The entries of a quarantine file: still bad, well now, and of shards that are in none of the lists."""

    bad: list[QuarantineEntry]
    well: list[QuarantineEntry]
    elsewhere: list[QuarantineEntry]


def confirm(
    paths: Sequence[str],
    entries: list[QuarantineEntry],
    wanted: WantedChecks,
    *,
    jobs: int = 1,
    access: Access | None = None,
) -> Confirmed:
    """Check only the shards and lists that the entries name; but if one is of a duplicate key, also the headers of all
    others, since its twin may be anywhere. Raises: ListError."""
    homes = frozenset(home(entry.get("url", "")) for entry in entries)
    listed = list(ItemTable(tuple(paths), access).entries())
    if any(names_folder(item) for item, _ in listed):
        raise ListError(
            "shards and raw lists can be looked at again by --confirm; verify TouchDatasets anew, as a whole"
        )
    here = {_home(item, place) for item, place in listed}
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
