"""``uio watch``: shows all ranks of a running training."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from uio_pipes.cli.tables import check_suffix, console, drawn, print_tables

EVERY = 10  # seconds between two looks
TAIL = 1 << 16  # bytes of each file that the tables need
MOST = 16  # most ranks on a terminal


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

    def look() -> list[run_view.Rank]:
        return run_view.ranks_in(run, None if html else TAIL)

    def write(ranks: list[run_view.Rank], refresh: int | None) -> None:
        if html is not None:
            from uio_pipes.reports.page import save

            title, now = f"{run} at {time.strftime('%H:%M:%S')}", time.time()
            save(html, title, run_view.tables(ranks, now), run_view.charts(ranks), refresh=refresh)

    ranks = look()
    if once:
        write(ranks, None)
        print_tables(run_view.tables(ranks, time.time(), MOST))
        return
    from rich.console import Group
    from rich.live import Live

    try:
        with Live(console=console(), auto_refresh=False) as live:
            while True:
                live.update(Group(*drawn(run_view.tables(ranks, time.time(), MOST))), refresh=True)
                write(ranks, EVERY)
                time.sleep(EVERY)
                ranks = look()
    except KeyboardInterrupt:  # the way to end it
        write(ranks, None)
