"""``uio state``: shows a saved loader state, compares two, or moves one to other ranks and workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uio_pipes.base.urls import counted
from uio_pipes.tools.cli.common import check_suffix, keep_inputs, print_json, print_tables, say, verdict
from uio_pipes.tools.cli.options import Json

if TYPE_CHECKING:
    from uio_pipes.tools.reports.page import PageTable
    from uio_pipes.tools.reports.states import LaneView, StateView

MOST = 40  # most lanes or items that a table shows
_MEANS = {
    "done": "all of it has been delivered, or left out",
    "under way": "open at the lane's offset, or read into buffers",
    "not finished": "in lanes with buffers: how far they have read ahead is not in the state",
    "to come": "not begun",
}
app = typer.Typer(help="Look at a saved loader state: show, diff, reshard.", no_args_is_help=True)
StateFile = Annotated[
    str, typer.Argument(help="A file of torch.save or JSON with the loader's state under any key. Path or URL.")
]


@app.command()
def show(
    file: StateFile,
    data: Annotated[
        str | None, typer.Option("--data", help="The data list, to show which shards are done, under way, to come.")
    ] = None,
    html: Annotated[str | None, typer.Option(help="Write it as a page: a .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Show the epoch, each lane with its position and counts, and which shards are open."""
    check_suffix(html, ".html")
    keep_inputs([file, data], [html])
    from uio_pipes.tools.reports.states import find_state, view

    key, state = find_state(file)
    seen = view(state)
    items = None
    if data is not None:
        from uio_pipes.tools.reports.states import progress

        items, seen = progress(seen, data)
    if html is not None:
        from uio_pipes.tools.reports.page import Chart, save

        numbers, made = [str(lane.lane) for lane in seen.lanes], [lane.k for lane in seen.lanes]
        chart = Chart("Batches of each lane", numbers, {"batches": made}, ("lane", "batches"), "bars")
        charts = [chart] if len(numbers) > 1 else []
        save(html, f"The loader's state in {file}", _shown(seen, key, items), charts)
    if as_json:
        lanes = [_lane(lane) for lane in seen.lanes]
        print_json({"key": key, "meta": seen.meta.saved(), "lanes": lanes, "missing": seen.missing, "items": items})
        return
    print_tables(_shown(seen, key, items))


def _lane(lane: LaneView) -> dict[str, Any]:
    return {
        "lane": lane.lane, "k": lane.k, "pass": lane.pass_, "done": lane.done, "url": lane.url, "offset": lane.offset,
        "held": lane.held, "read_since": lane.since, "all_read": lane.exhausted,
        "utterances": lane.stats.utterances, "hours": lane.stats.hours, "failures": lane.stats.failures,
        "skipped": lane.stats.skipped,
    }  # fmt: skip


def _shown(seen: StateView, key: str, items: dict[str, list[str]] | None) -> list[PageTable]:
    meta, stats, saved = seen.meta, seen.stats, seen.meta.saved()
    there = f"{len(seen.lanes)} of {meta.lanes}" + (" (this is one rank's part)" if seen.missing else "")
    rows = [
        ("found under", key or "(top)"), ("epoch", meta.epoch), ("over", _over(seen)),
        ("seed", meta.seed), ("lanes", there), ("lanes done", seen.done),
        ("batches", f"{stats.batches:,}"), ("utterances", f"{stats.utterances:,} ({stats.hours:.2f} h)"),
        ("failures", f"{stats.failures:,}"),
        ("left out", ", ".join(f"{r}: {n:,}" for r, n in sorted(stats.skipped.items())) or "none"),
        ("list", counted(int(meta.listed[0]), "item") if meta.listed else ""),
    ]  # fmt: skip
    rows += [(name, saved[name]) for name in ("stream", "step", "world_size", "skip") if name in saved]
    rows += [("graph" if i == 0 else "", line) for i, line in enumerate(meta.graph)]
    lanes = [
        (lane.lane, lane.k, "done" if lane.done else "to begin" if not lane.k else "under way",
         f"{lane.stats.utterances:,}", lane.stats.failures, lane.url, "" if lane.offset is None else f"{lane.offset:,}",
         lane.held or "", f"{lane.since:,}{', to its end' * lane.exhausted}" if lane.since else "")
        for lane in seen.lanes[:MOST]
    ]  # fmt: skip
    title = "Lanes" if len(seen.lanes) <= MOST else f"The first {MOST} of {counted(len(seen.lanes), 'lane')}"
    headings = ("lane", "k", "is", "utterances", "failures", "shard under way", "offset", "in the last buffer",
                "read since")  # fmt: skip
    found: list[PageTable] = [("State", ("", "value"), rows), *_mixes(seen), *_excluded(seen), (title, headings, lanes)]
    if items is None:
        return found
    counts = [(name, f"{len(names):,}", _MEANS[name]) for name, names in items.items()]
    found.append(("Items of the list", ("", "count", ""), counts))
    for name, names in items.items():
        if names:
            more = f" (the first {MOST} of {len(names):,})" if len(names) > MOST else ""
            found.append((f"{name}{more}", ("",), [(item,) for item in names[:MOST]]))
    return found


def _over(seen: StateView) -> str:
    """Return whether the epoch is over, as far as the state says: it may not know that its last batch was the last."""
    whole = seen.meta.stream is None and not seen.missing
    if seen.meta.ended or (whole and seen.done == seen.meta.lanes):
        return "yes"
    read = [lane.exhausted and lane.position is not None and not lane.held + lane.since for lane in seen.lanes]
    ends = [lane.done or empty for lane, empty in zip(seen.lanes, read, strict=True)]
    return "yes, or nearly: all has been read, and buffers are empty" if whole and all(ends) else "no"


def _mixes(seen: StateView) -> list[PageTable]:
    """Return a table of each mix that has changed: the weights that held from which step on."""
    found: list[PageTable] = []
    for path, record in (seen.meta.mixes or {}).items():
        if journal := record["journal"]:
            weights = (", ".join(f"{name} {w:g}" for name, w in entry["weights"].items()) for entry in journal)
            rows = [(e["epoch"], e["step"], e["ranks"], of) for e, of in zip(journal, weights, strict=True)]
            title = "Weights of the mix" + (f" {path}" if path else "")
            found.append((title, ("epoch", "from step", "of ranks", "weights"), rows))
    return found


def _excluded(seen: StateView) -> list[PageTable]:
    """Return a table of what ``loader.exclude`` leaves out, from which step on."""
    rows = []
    for entry in seen.meta.excluded or []:
        keys = [key for of in entry["keys"].values() for key in of]
        rows.append((entry["epoch"], entry["step"], entry["ranks"], f"{len(keys):,}", _few(keys)))
    return [("Excluded", ("epoch", "from step", "of ranks", "utterances", "keys"), rows)] if rows else []


@app.command()
def diff(old: StateFile, new: StateFile, as_json: Json = False) -> None:
    """Show what differs in NEW: fields, graph, list, and the lanes that moved. The exit code is 1 if anything does."""
    from uio_pipes.tools.reports.states import differences, find_state, view

    found = differences(*(view(find_state(path)[1]) for path in (old, new)))
    same = not any(found.values())
    if as_json:
        print_json(found | {"same": same})
    elif same:
        say("the same position in the same run")
    else:
        print_tables(_different(found))
    verdict(same)


def _different(found: dict[str, Any]) -> list[PageTable]:
    out: list[PageTable] = []
    if found["meta"]:
        out.append(("Changed", ("field", "old", "new"), [(n, a, b) for n, (a, b) in found["meta"].items()]))
    if found["lanes"]:
        rows = [
            (m["lane"], *m["k"], f"{m['utterances']:+,}", "done" if m["done"][1] else "") for m in found["lanes"][:MOST]
        ]
        title = f"{counted(len(found['lanes']), 'lane')} moved"
        out.append((title, ("lane", "k then", "k now", "utterances", ""), rows))
    for name, where in (("only_old", "old"), ("only_new", "new")):
        if found[name]:
            lanes = ", ".join(map(str, found[name][:MOST]))
            out.append((f"Lanes only in the {where} one", ("",), [(lanes,)]))
    return out


@app.command()
def reshard(
    files: Annotated[list[str], typer.Argument(help="The state, or the states that the ranks saved one by one.")],
    world_size: Annotated[int, typer.Option(min=1, help="Ranks that will go on.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of each.")] = 0,
    out: Annotated[
        str | None, typer.Option(help="Write it as JSON: a .json file (whole), or a folder (a file for each rank).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Join the states of ranks, and show which rank and worker goes on with which lanes."""
    from uio_pipes.run.state_merging import merge_states
    from uio_pipes.tools.reports.states import find_state, moves, per_rank, view

    merged = merge_states([find_state(path)[1] for path in files])
    seen = view(merged)
    rows = moves(seen, world_size, workers)
    if out is not None:
        parts = {f"{out}/rank_{rank:03d}.json": part for rank, part in enumerate(per_rank(merged, world_size))}
        written = {out: merged} if out.endswith(".json") else parts
        keep_inputs(files, written)
        if written is parts:
            Path(out).mkdir(parents=True, exist_ok=True)
        for path, state in written.items():
            Path(path).write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
    if as_json:
        print_json({"epoch": seen.meta.epoch, "lanes": seen.meta.lanes, "assignment": rows, "out": out})
        return
    shown = [
        (f"rank {r['rank']}", r["worker"] if workers else "", _few(r["lanes"]), r["batches"], r["done"]) for r in rows
    ]
    title = f"Epoch {seen.meta.epoch}: {counted(seen.meta.lanes, 'lane')} on {counted(world_size, 'rank')}"
    print_tables([(title, ("", "worker", "lanes", "batches so far", "lanes done"), shown[:MOST])])
    if seen.meta.lanes % world_size:
        them = f"{counted(world_size, 'rank')} do not divide {counted(seen.meta.lanes, 'lane')}"
        say(f"note: {them}, so that global steps will hold other batches than before")
    say("load_state_dict takes the whole state on every rank, and finds these lanes by itself")


def _few(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:8])) + (f", … ({len(names)})" if len(names) > 8 else "")
