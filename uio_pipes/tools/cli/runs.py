"""``uio replay``, ``watch``, ``worst`` and ``state``: what a training has got, how it goes, and what it saved."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import MOST, check_suffix, console, drawn, keep_inputs, print_report, say
from uio_pipes.tools.cli.options import Fields, Json, Page, RunArgument, load_named

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline
    from uio_pipes.tools.reports.page import PageTable
    from uio_pipes.tools.reports.states import StateView


def replay(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...",
            help="Files of torch.save or JSON with the loader's state, or folders of them: the last one before the step"
            " is taken.",
        ),
    ],
    pipeline: RunArgument,
    step: Annotated[int, typer.Option(min=0, help="Batch of the rank in its epoch, from 0.")],
    epoch: Annotated[int | None, typer.Option(min=0, help="Epoch; the last one of the states if not given.")] = None,
    rank: Annotated[int, typer.Option(min=0, help="Rank that got it.")] = 0,
    world_size: Annotated[
        int | None, typer.Option(min=1, help="Ranks that made the step; those that saved the state if not given.")
    ] = None,
    save: Annotated[str | None, typer.Option(help="Write it by torch.save: a .pt file.")] = None,
    play: Annotated[bool, typer.Option("--play", help="Play the audio of a row, as it was in the batch.")] = False,
    plot: Annotated[str | None, typer.Option(help="Draw waveform and features of a row: a .png file.")] = None,
    row: Annotated[
        list[int] | None, typer.Option(min=0, help="Row to play or draw, or several; 0 if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the batch of a step again, to look at it.

    It is the same bit by bit, as on the machine that trained on it.
    """
    from uio_pipes.inspect.plot import draw, finished
    from uio_pipes.inspect.plot import play as sound
    from uio_pipes.tools.reports.replay import Replay, seen_in
    from uio_pipes.tools.reports.states import find_states

    keep_inputs(checkpoints, [save, plot])
    check_suffix(save, ".pt")
    check_suffix(plot, ".png")
    found = Replay(load_named(pipeline), find_states(checkpoints), step, rank, world_size, epoch)
    loader, batch = found.loader, found.batch(save)
    if plot is not None:
        draw([finished(one) for one in found.utterances(row or [0])], plot)
    for one in found.utterances(row or [0]) if play else ():
        sound(one)
    keys, rows = seen_in(batch)
    fields = {name: {"is": what, "digest": digest} for name, what, digest in rows}
    title = f"Epoch {loader.epoch}, step {step}, rank {rank} of {found.world_size}: {plural(len(keys), 'utterance')}"
    report = {"epoch": loader.epoch, "step": step, "rank": rank, "keys": keys, "fields": fields}
    print_report([(title, ("", "is", "digest"), [*rows, ("keys", ", ".join(keys), "")])], report, as_json)


EVERY = 10  # seconds between two looks
TAIL = 1 << 16  # bytes of each file that the tables need


def watch(
    run: Annotated[str, typer.Argument(help="The folder that uio.watch(loader, to=…) writes to, or the one above.")],
    html: Page = None,
    once: Annotated[bool, typer.Option("--once", help="Show the present state, and end.")] = False,
) -> None:
    """Follow all ranks of a running training.

    Throughput, waiting, padding, sources, failures and memory are shown until Ctrl-C. A page of --html renews itself.
    """
    from rich.console import Group
    from rich.live import Live

    from uio_pipes.tools.reports import run_view

    out = console()

    def look(refresh: int | None) -> Group:
        ranks, now = run_view.ranks_in(run, None if html else TAIL), time.time()
        tables = run_view.tables(ranks, now, html is not None or out.width >= 100)
        if html is not None:
            from uio_pipes.tools.reports.page import save

            save(html, f"The run in {run}", tables, run_view.charts(ranks), refresh=refresh)
        for most in range(out.height if out.is_terminal else MOST, 2, -1):
            shown = Group(*drawn(tables, most))
            if not out.is_terminal or len(out.render_lines(shown)) <= out.height:
                break
        return shown

    if once:
        out.print(look(None))
        return
    try:
        with Live(look(EVERY), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(EVERY)
                live.update(look(EVERY), refresh=True)
    except KeyboardInterrupt:  # the way to end it
        look(None)


KALDI = ("wav.scp", "feats.scp", "segments")  # lists of a folder in which the texts are, too


def worst(
    record: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder that uio.Recorder writes to.")],
    by: Annotated[
        Literal["last", "mean", "behind"],
        typer.Option(help="last: the newest; mean: of all times; behind: how much less it fell than was usual."),
    ] = "last",
    number: Annotated[
        str | None, typer.Option(help="The recorded number to go by; loss, or the first one, if not given.")
    ] = None,
    top: Annotated[str, typer.Option(help="How many, or a share of all utterances, as 4%.")] = "20",
    exclude: Annotated[
        str | None, typer.Option(help="Write them as a list for .exclude(…) and loader.exclude(…): a .jsonl file.")
    ] = None,
    html: Page = None,
    pipeline: Annotated[
        str | None, typer.Option(help="The run's pipeline, as train.py:pipeline: the page shows the features it makes.")
    ] = None,
    fields: Fields = None,
    as_json: Json = False,
) -> None:
    """Find the utterances that hurt a training.

    They are those of the highest loss, and those whose loss does not fall while that of others does; by source, shard,
    speaker and length, too.
    """
    check_suffix(exclude, ".jsonl")
    from uio_pipes.tools.reports import worst as reports

    found = reports.find_worst(record, by, number, top)
    if exclude is not None:
        from uio_pipes.io.files import write_bytes

        write_bytes(Path(exclude), reports.exclusions(found))
    if html is not None:
        from uio_pipes.tools.reports.audio_page import media_of
        from uio_pipes.tools.reports.page import save

        media = media_of(found.found, partial(_opened, fields), load_named(pipeline) if pipeline else None)
        save(html, f"The record in {record}", reports.tables(found, media), found.charts)
    report = {name: getattr(found, name) for name in ("number", "rows", "utterances", "mean")}
    print_report(reports.tables(found), report | {"worst": [one._asdict() for one in found.found]}, as_json)
    if exclude is not None and not as_json:
        say(f'{exclude}: leave them out by loader.exclude("{exclude}") in this run, by .exclude(…) in the next one')


def _opened(fields: dict[str, str] | None, shard: str) -> Pipeline:
    from uio_pipes.tools.data.recognize import recognize

    folder, _, name = shard.rpartition("/")
    return recognize(folder or "." if name in KALDI else shard, fields=fields).pipeline


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
