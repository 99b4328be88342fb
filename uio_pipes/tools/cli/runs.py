"""``uio replay``, ``uio steps`` and ``uio watch``: what a training has got, gets and will get."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uio_pipes.base.urls import counted
from uio_pipes.tools.cli.common import check_suffix, console, drawn, keep_inputs, print_json, print_tables, say, verdict
from uio_pipes.tools.cli.options import Json, RanksOption, RunArgument, load_named

if TYPE_CHECKING:
    from rich.console import Console, Group

    from uio_pipes.tools.reports.run_view import RankRecords
    from uio_pipes.tools.reports.steps import PlannedStep


KEYS = 8  # that are shown
RecordOption = Annotated[
    str | None, typer.Option("--record", help="The folder of uio.Recorder: what was recorded is shown, too.")
]


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
    world_size: RanksOption = None,
    save: Annotated[str | None, typer.Option(help="Write it by torch.save: a .pt file.")] = None,
    play: Annotated[bool, typer.Option("--play", help="Play the audio of a row, as it was in the batch.")] = False,
    plot: Annotated[str | None, typer.Option(help="Draw waveform and features of a row: a .png file.")] = None,
    row: Annotated[
        list[int] | None, typer.Option(min=0, help="Row to play or draw, or several; 0 if not given.")
    ] = None,
    record: RecordOption = None,
    as_json: Json = False,
) -> None:
    """Make the batch of a step again, to look at it.

    It is the same bit by bit, as on the machine that trained on it.
    """
    from uio_pipes.inspect.plot import draw, finished
    from uio_pipes.inspect.plot import play as sound
    from uio_pipes.run.replay import Replay
    from uio_pipes.tools.reports import steps as made
    from uio_pipes.tools.reports.states import find_states

    if save is not None:
        keep_inputs(checkpoints, [save])
        if not Path(save).resolve().parent.is_dir():
            raise typer.BadParameter(f"--save {save}: there is no such folder")
    check_suffix(plot, ".png")
    found = Replay(load_named(pipeline), find_states(checkpoints), step, rank, world_size, epoch)
    loader, batch = found.loader, found.batch()
    if save is not None:
        made.save(batch, save)
    if plot is not None:
        draw([finished(one) for one in found.utterances(row or [0])], plot)
    for one in found.utterances(row or [0]) if play else ():
        sound(one)
    keys, rows = made.seen_in(batch)
    if as_json:
        fields = {name: {"is": what, "digest": digest} for name, what, digest in rows}
        print_json({"epoch": loader.epoch, "step": step, "rank": rank, "keys": keys, "fields": fields})
        return
    title = f"Epoch {loader.epoch}, step {step}, rank {rank} of {found.world_size}: {counted(len(keys), 'utterance')}"
    print_tables([(title, ("", "is", "digest"), rows)])
    say("keys: " + ", ".join(map(str, keys[:KEYS])) + (f", … ({len(keys)})" if len(keys) > KEYS else ""))
    if record is not None:
        from uio_pipes.tools.reports.worst import recorded, told

        of_batches = [one.numbers for one in recorded(record, loader.epoch).values()]
        numbers = max(of_batches, key=lambda one: len(one.keys() & set(keys)), default={})
        for key in keys:
            say(f"{key}: {told([numbers[key]]) if key in numbers else 'not in the record'}")


MOST_LINES = 40  # lines that a table shows
Checkpoint = Annotated[str, typer.Argument(help="A file of torch.save or JSON with the loader's state of the epoch.")]


def steps(
    checkpoint: Checkpoint,
    pipeline: RunArgument,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="First step; the next one after the state if not given.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last step; that of the epoch if not given.")] = None,
    world_size: RanksOption = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Tell when this utterance comes, or several; exit code 1 if one never does."),
    ] = None,
    keys: Annotated[str | None, typer.Option(help="Write all keys: a .jsonl file, a line for each batch.")] = None,
    record: RecordOption = None,
    as_json: Json = False,
) -> None:
    """Find which utterances steps are made of, or when some come.

    All is known by plan; nothing has to have been logged.
    """
    if key:
        if first is not None or keys is not None:
            raise typer.BadParameter("--key goes with --to and --world-size only")
        _when(checkpoint, pipeline, key, last, world_size, as_json)
        return
    from uio_pipes.tools.reports import steps as planned
    from uio_pipes.tools.reports.states import find_state

    keep_inputs([checkpoint], [keys])
    state = find_state(checkpoint)[1]
    found = list(planned.steps(load_named(pipeline), state, world_size, first, last))
    if not found:
        there = planned.numbers(load_named(pipeline), state, world_size, last)
        upto = "the end" if last is None else last
        raise typer.BadParameter(
            f"{there}, and none{'' if first is None else f' from {first}'} to {upto}. They count from the beginning of "
            "the epoch; --record shows the recorded numbers beside them"
        )
    if keys is not None:
        from uio_pipes.io.files import write_lines

        write_lines(Path(keys), [json.dumps(_fields(step), ensure_ascii=False) for step in found])
    if as_json:
        print_json({"steps": [_fields(step) for step in found]})
        return
    rows = [
        [s.step, s.rank, s.lane, s.k, len(s.keys), ", ".join(s.keys[:3]) + (", …" if len(s.keys) > 3 else "")]
        for s in found[:MOST_LINES]
    ]
    headings = ["step", "rank", "lane", "k", "utterances", "keys"]
    if record is not None:
        from uio_pipes.tools.reports.worst import recorded, told

        numbers = recorded(record, found[0].epoch)
        for row, s in zip(rows, found, strict=False):
            batch = numbers.get((s.lane, s.pass_, s.k))
            of = {} if batch is None else batch.numbers
            row += ["" if batch is None else batch.step, told(of[key] for key in s.keys if key in of)]
        headings += ["recorded as step", "recorded (means)"]
    few = len(found) <= MOST_LINES
    title = counted(len(found), "batch") if few else f"The first {MOST_LINES} of {len(found):,} batches"
    print_tables([(title, headings, rows)])
    if keys is not None:
        say(f"all keys: {keys}")


def _fields(step: PlannedStep) -> dict[str, Any]:
    """Return what is known of a batch under the names that a record has."""
    return {name.rstrip("_"): value for name, value in step._asdict().items()}


def _when(
    checkpoint: str, pipeline: str, keys: list[str], last: int | None, world_size: int | None, as_json: bool
) -> None:
    """Tell by plan when utterances will come in an epoch."""
    from uio_pipes.tools.reports import steps as planned
    from uio_pipes.tools.reports.states import find_state

    state = find_state(checkpoint)[1]
    found = list(planned.seen(load_named(pipeline), state, world_size, keys, last))
    missing = [key for key in keys if key not in {one.key for one in found}]
    if as_json:
        print_json({"seen": [one._asdict() for one in found], "missing": missing})
    else:
        rows = [(*s[:6], "to be passed over" if s.over else "to come") for s in found]
        print_tables([("Utterances", ("key", "epoch", "step", "rank", "lane", "row", "is"), rows)])
        for key in missing:
            where = "this epoch" if last is None else f"the steps up to {last}"
            say(f"{key}: not in {where}; the list does not have it, a stage leaves it out, or it comes at other steps")
    verdict(not missing)


EVERY = 10  # seconds between two looks
TAIL = 1 << 16  # bytes of each file that the tables need
MOST_ROWS = 16  # most rows of a table on a terminal
# The columns that a narrow terminal does without, the least important first.
LEAST = (
    "", "of the utterances", "host", "workers", "epoch", "left out", "padding", "tokens/s", "utterances/s of an actor",
    "utterances", "batches", "failures", "memory (GB)",
)  # fmt: skip


def watch(
    run: Annotated[str, typer.Argument(help="The folder that uio.watch(loader, to=…) writes to, or the one above.")],
    html: Annotated[
        str | None, typer.Option(help="Write it as a page with curves, too: a .html file, which renews itself.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the present state, and end.")] = False,
) -> None:
    """Follow all ranks of a running training.

    Throughput, waiting, padding, sources, failures and memory are shown until Ctrl-C.
    """
    check_suffix(html, ".html")
    from uio_pipes.tools.reports import run_view

    def look() -> list[run_view.RankRecords]:
        return run_view.ranks_in(run, None if html else TAIL)

    def write(ranks: list[run_view.RankRecords], refresh: int | None) -> None:
        if html is not None:
            from uio_pipes.tools.reports.page import save

            title, now = f"{run} at {time.strftime('%Y-%m-%d %H:%M:%S')}", time.time()
            save(html, title, run_view.tables(ranks, now), run_view.charts(ranks), refresh=refresh)

    ranks, out = look(), console()
    if once:
        write(ranks, None)
        out.print(_drawn(ranks, out, MOST_ROWS))
        return
    from rich.live import Live

    try:
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(_fitting(ranks, out), refresh=True)
                write(ranks, EVERY)
                time.sleep(EVERY)
                ranks = look()
    except KeyboardInterrupt:  # the way to end it
        write(ranks, None)


def _drawn(ranks: list[RankRecords], out: Console, most: int) -> Group:
    """Return the tables for the width of a terminal."""
    from rich.console import Group

    from uio_pipes.tools.reports import run_view

    found = run_view.tables(ranks, time.time(), most)
    return Group(*drawn(found, out.width, LEAST))


def _fitting(ranks: list[RankRecords], out: Console) -> Group:
    """Return as many rows as the height of a terminal has room for."""
    for most in range(MOST_ROWS, 0, -1):
        found = _drawn(ranks, out, most)
        if not out.is_terminal or len(out.render_lines(found)) <= out.height:
            break
    return found
