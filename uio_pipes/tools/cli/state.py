"""``uio state``: shows a saved loader state."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import MOST, print_report
from uio_pipes.tools.cli.options import Json

if TYPE_CHECKING:
    from uio_pipes.tools.reports.page import PageTable
    from uio_pipes.tools.reports.states import StateView

AT = itemgetter("epoch", "step", "ranks")  # of a change


def state(
    file: Annotated[
        str, typer.Argument(help="A file of torch.save or JSON with the loader's state under any key. Path or URL.")
    ],
    as_json: Json = False,
) -> None:
    """See what a saved loader state holds.

    The epoch, each lane with its position and counts, and which shards are open.
    """
    from uio_pipes.tools.reports.states import find_state, view

    key, found = find_state(file)
    seen = view(found)
    lanes = [asdict(lane) for lane in seen.lanes]
    report = {"key": key, "meta": seen.meta.saved(), "lanes": lanes, "missing": seen.missing}
    print_report(_tables(seen, key), report, as_json, most=MOST)


def _tables(seen: StateView, key: str) -> list[PageTable]:
    meta, stats, saved = seen.meta, seen.stats, seen.meta.saved()
    there = f"{len(seen.lanes)} of {meta.lanes}" + (" (this is one rank's part)" if seen.missing else "")
    rows = [
        ("found under", key or "(top)"), ("epoch", meta.epoch), ("over", seen.over),
        ("seed", meta.seed), ("lanes", there), ("lanes done", seen.done),
        ("batches", f"{stats.batches:,}"), ("utterances", f"{stats.utterances:,} ({stats.hours:.2f} h)"),
        ("failures", f"{stats.failures:,}"),
        ("left out", ", ".join(f"{r}: {n:,}" for r, n in sorted(stats.skipped.items())) or "none"),
        ("list", plural(int(meta.listed[0]), "item") if meta.listed else ""),
    ]  # fmt: skip
    rows += [(name, saved[name]) for name in ("stream", "step", "world_size", "skip") if name in saved]
    rows += [("graph" if i == 0 else "", line) for i, line in enumerate(meta.graph)]
    since = ("epoch", "from step", "of ranks")
    found: list[PageTable] = [("State", ("", "value"), rows)]
    for path, record in (meta.mixes or {}).items():
        changes = [
            (*AT(one), ", ".join(f"{name} {weight:g}" for name, weight in one["weights"].items()))
            for one in record["journal"]
        ]
        if changes:
            found.append((f"Weights of the mix {path}".rstrip(), (*since, "weights"), changes))
    if meta.excluded:
        keys = [(*AT(one), [key for of in one["keys"].values() for key in of]) for one in meta.excluded]
        excluded = [(*at, f"{len(of):,}", ", ".join(of[:8]) + ", …" * (len(of) > 8)) for *at, of in keys]
        found.append(("Excluded", (*since, "utterances", "keys"), excluded))
    lanes = [
        (lane.lane, lane.k, "done" if lane.done else "to begin" if not lane.k else "under way",
         f"{lane.stats.utterances:,}", lane.stats.failures, lane.url, "" if lane.offset is None else f"{lane.offset:,}",
         lane.held or "", f"{lane.since:,}{', to its end' * lane.exhausted}" if lane.since else "")
        for lane in seen.lanes
    ]  # fmt: skip
    headings = ("lane", "k", "is", "utterances", "failures", "shard under way", "offset", "in the last buffer",
                "read since")  # fmt: skip
    return [*found, ("Lanes", headings, lanes)]
