"""Reading all data once, to find errors before training does: shards, raw lists, TouchDatasets, Kaldi folders, Lhotse's
cuts and Shars, manifests, indexes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.processes import as_done
from uio_pipes.core.ledger import Tally, add_tallies
from uio_pipes.core.roles import Source
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.quarantine import home
from uio_pipes.formats.lists.table import ItemTable, found_by
from uio_pipes.formats.naming import TEXTLESS
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.seen import Seen
from uio_pipes.sources.table.streamed import rows_without_audio
from uio_pipes.sources.text import TEXT
from uio_pipes.sources.touchdataset.folder import names_folder, parse_entry
from uio_pipes.sources.touchdataset.source import ListIndexed
from uio_pipes.tools.data.checks import Checked, RawLines, Share, WantedChecks, verify_records, verify_shard
from uio_pipes.tools.data.common import duplicates, listed_twice
from uio_pipes.tools.data.index import PRELOAD
from uio_pipes.tools.data.recognize import Recognized, look, recognize

Task = tuple[int, tuple[Any, ...]]  # of how many items; a check and its arguments
LINES = 256  # of a raw list that a process checks at a time


@dataclass
class Verified:
    """The data read so far, and all findings in the order of the list. ``checked``: how many of the ``items``;
    ``notes``: what was not checked."""

    items: int = 0
    checked: int = 0
    utterances: int = 0
    findings: list[DataError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> dict[str, int]:
        return dict(sorted(Counter(found.reason for found in self.findings).items()))


def verify(
    paths: Sequence[str], wanted: WantedChecks | None = None, *, jobs: int = 1, allow_pipes: bool = False
) -> Iterator[Verified]:
    """Check lists (of shards, raw, of TouchDatasets), shards, manifests of NeMo and Lhotse, Parquet files, and folders
    (TouchDatasets, Kaldi's, Shars); yield the report before the first and after each task, and at last with all
    findings.

    ``allow_pipes``: run a Kaldi folder's commands.

    Raises: ListError if a list cannot be used.
    """
    wanted = wanted or WantedChecks()
    try:
        given = tuple(path for path in paths if (found := look(Seen(path, wanted.fields))) and found.listed)
        known = [recognize(path, allow_pipes, wanted.fields) for path in paths if path not in given]
    except ListError as error:
        raise ListError(f"nothing was checked: {error}") from error
    table = ItemTable(given) if given else None
    entries = list(table.entries()) if table else []
    manifests = {name: read_manifest(name) or {} for name in table.lists} if table else {}
    manifests = {name: {found_by(url, name): e for url, e in found.items()} for name, found in manifests.items()}
    in_manifests = {url: entry for manifest in reversed(manifests.values()) for url, entry in manifest.items()}
    shares, of_shards = [_share(one, wanted) for one in known], list[Task]()
    for item, place in dict(entries).items():  # a shard that is listed twice is read once
        if names_folder(item):
            shares.append(
                Share(parse_entry(item, place).folder, _listing(ListIndexed((item,), fields=wanted.fields), wanted))
            )
        elif not item.startswith("{"):
            of_shards.append((1, (verify_shard, item, in_manifests.get(item), wanted)))
    lines = [(item, place) for item, place in entries if item.startswith("{")]
    chunks = (lines[first : first + LINES] for first in range(0, len(lines), LINES))
    of_lines = [(len(c), (verify_records, Share(home(c[0][1]), RawLines(c, wanted)), wanted)) for c in chunks]
    parts = (share._replace(part=part, parts=jobs) for share in shares for part in range(jobs))
    tasks = [*of_shards, *of_lines, *((int(not one.part), (verify_records, one, wanted)) for one in parts)]

    report = Verified(items=sum(count for count, _ in tasks))
    report.notes = [f"{one.path}: {one.kind}, of which only UTF-8 was checked" for one in known if one.kind == TEXT]
    of_lists = [*_guesses(known if wanted.text else []), *listed_twice(entries)]
    listed = {item for item, _ in entries}
    absent = [(name, shard) for name, of in manifests.items() for shard in of if shard not in listed]
    what = "this shard is in the manifest of {}, but not in the list: put it back, or index anew"
    of_lists += [DataError("missing_shard", what.format(name), url=shard) for name, shard in absent]
    done = dict[int, Checked]()
    yield report
    for number, checked in as_done(_check, enumerate(call for _, call in tasks), min(jobs, len(tasks)), PRELOAD):
        done[number] = checked
        report.checked += tasks[number][0]
        report.utterances += checked.utterances
        yield report
    ordered = [done[number] for number in sorted(done)]
    report.findings = [found for checked in ordered for found in checked.findings]
    for one in shares:
        if isinstance(one.listing, Pipeline):
            tallies = dict[str, Tally]()
            for checked in ordered:
                add_tallies(tallies, checked.tallies if checked.keys.url == one.name else {})
            report.findings += (e for e in rows_without_audio(one.listing, tallies) if not isinstance(e, LeftOut))
    report.findings += [*duplicates([checked.keys for checked in ordered]), *of_lists]
    yield report


def _check(check: Callable[..., Checked], *arguments: Any) -> Checked:
    return check(*arguments)


def _share(known: Recognized, wanted: WantedChecks) -> Share:
    """Open a folder, a manifest or Parquet files. Raises: ListError if it cannot be opened."""
    listing = _listing(known.pipeline.stages[0], wanted)
    if not isinstance(listing, Source):
        raise ListError(f"{known.path} describes a mix: name what its sources name")
    listing.table()
    return Share(known.path, listing if listing.gives == "record" else known.pipeline)


def _listing(first: Any, wanted: WantedChecks) -> Any:
    """Return a source whose utterances need no transcript if none is looked for."""
    return first if wanted.text or not isinstance(first, ListIndexed) else replace(first, texts=None)


def _guesses(known: Sequence[Recognized]) -> Iterator[DataError]:
    """Yield a finding for each text whose name was guessed, as no loader does."""
    for one in known:
        kind, guessed, _ = one.kind.rpartition(" taken as txt")
        if guessed:
            name = json.dumps(kind.rpartition(", ")[2], ensure_ascii=False)
            message = f'{one.kind}, but no loader guesses: write fields={{"txt": {name}}}; {TEXTLESS}'
            yield DataError("missing_text", message, url=one.path)
