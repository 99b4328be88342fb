"""``uio replay`` and ``uio watch``: what a training has got, and how it goes."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import MOST, check_suffix, console, drawn, keep_inputs, print_report
from uio_pipes.tools.cli.options import Json, Page, RunArgument, load_named


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
    plot: Annotated[str | None, typer.Option(help="Draw waveform and features of a row: a .png file.")] = None,
    row: Annotated[list[int] | None, typer.Option(min=0, help="Row to draw, or several; 0 if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Make the batch of a step again, to look at it.

    It is the same bit by bit, as on the machine that trained on it.
    """
    from uio_pipes.inspect.plot import draw, finished
    from uio_pipes.tools.reports.replay import Replay, seen_in
    from uio_pipes.tools.reports.states import find_states

    keep_inputs(checkpoints, [save, plot])
    check_suffix(save, ".pt")
    check_suffix(plot, ".png")
    found = Replay(load_named(pipeline), find_states(checkpoints), step, rank, world_size, epoch)
    loader, batch = found.loader, found.batch(save)
    if plot is not None:
        draw([finished(one) for one in found.utterances(row or [0])], plot)
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
