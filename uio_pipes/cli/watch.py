"""``uio watch``: shows all ranks of a running training."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.cli.tables import check_suffix, console, drawn, narrowed

if TYPE_CHECKING:
    from rich.console import Console, Group

    from uio_pipes.reports.run_view import RankRecords

EVERY = 10  # seconds between two looks
TAIL = 1 << 16  # bytes of each file that the tables need
MOST = 16  # most rows of a table on a terminal
# The columns that a narrow terminal does without, the least important first.
LEAST = (
    "",
    "of the utterances",
    "host",
    "workers",
    "epoch",
    "left out",
    "padding",
    "tokens/s",
    "utterances/s of an actor",
    "utterances",
    "batches",
    "failures",
    "memory (GB)",
)


def watch(
    run: Annotated[str, typer.Argument(help="The folder that uio.watch(loader, to=…) writes to, or the one above.")],
    html: Annotated[
        str | None, typer.Option(help="Write it as a page with curves, too: a .html file, which renews itself.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the present state, and end.")] = False,
) -> None:
    """Show all ranks of a running training until Ctrl-C: throughput, waiting, padding, sources, failures, memory."""
    check_suffix(html, ".html")
    from uio_pipes.reports import run_view

    def look() -> list[run_view.RankRecords]:
        return run_view.ranks_in(run, None if html else TAIL)

    def write(ranks: list[run_view.RankRecords], refresh: int | None) -> None:
        if html is not None:
            from uio_pipes.reports.page import save

            title, now = f"{run} at {time.strftime('%H:%M:%S')}", time.time()
            save(html, title, run_view.tables(ranks, now), run_view.charts(ranks), refresh=refresh)

    ranks, out = look(), console()
    if once:
        write(ranks, None)
        out.print(_drawn(ranks, out, MOST))
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

    from uio_pipes.reports import run_view

    found = run_view.tables(ranks, time.time(), most)
    return Group(*drawn(narrowed(rows, out.width, LEAST) for rows in found))


def _fitting(ranks: list[RankRecords], out: Console) -> Group:
    """Return as many rows as the height of a terminal has room for."""
    for most in range(MOST, 0, -1):
        found = _drawn(ranks, out, most)
        if not out.is_terminal or len(out.render_lines(found)) <= out.height:
            break
    return found
