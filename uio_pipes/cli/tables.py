"""Prints tables on the terminal, the same ones that HTML pages have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from uio_pipes.base.printable import printable
from uio_pipes.reports.page import Alarm, PageTable, counts

if TYPE_CHECKING:
    from rich.console import Console

TEXT = 18  # characters of a text that has more lines if there is little room


def print_tables(tables: Iterable[PageTable]) -> None:
    """Print tables on stdout."""
    out = console()
    for part in drawn(tables):
        out.print(part)


def console() -> Console:
    """Return stdout for rich; plain and 200 columns wide if that is not a terminal."""
    from rich.console import Console

    out = Console()
    return out if out.is_terminal else Console(width=200)


def drawn(tables: Iterable[PageTable]) -> Iterator[Any]:
    """Yield what rich prints of tables: title, table, blank line."""
    from rich.table import Table
    from rich.text import Text

    for title, headings, rows in tables:
        table, filled = Table(box=None, pad_edge=False), [list(row) for row in rows]
        for number, heading in enumerate(headings):
            numeric = number > 0 and counts(heading, (row[number] for row in filled))
            table.add_column(heading, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
        for row in filled:
            table.add_row(*(Text(printable(str(v)), style="bold red" if isinstance(v, Alarm) else "") for v in row))
        yield from (Text(printable(title), style="bold"), table, "")


def narrowed(rows: PageTable, width: int, least: Sequence[str]) -> PageTable:
    """Return a table without the columns that have no room, in the order ``least``. Text of more than a few words may
    take several lines."""
    from rich.cells import cell_len

    title, headings, body = rows
    table = [headings, *([str(cell) for cell in row] for row in body)]
    widths = {}
    for heading, *cells in zip(*table, strict=True):
        widest = max(map(cell_len, [heading, *cells]))
        widths[heading] = widest if counts(heading, cells) else min(widest, TEXT)
    for heading in least:
        if sum(widths.values()) + 2 * len(widths) - 2 > width:
            widths.pop(heading, None)
    kept = [i for i, heading in enumerate(headings) if heading in widths]
    return title, [headings[i] for i in kept], [[row[i] for i in kept] for row in body]


def say(text: str) -> None:
    """Print one line on stdout."""
    typer.echo(printable(text))


def check_suffix(path: str | None, *suffixes: str) -> None:
    """Raises: typer.BadParameter unless ``path`` is None, or ends in one of ``suffixes`` and its folder exists."""
    if path is None:
        return
    if not path.endswith(suffixes):
        raise typer.BadParameter(f"{path} must end in {' or '.join(suffixes)}")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise typer.BadParameter(f"there is no folder {folder}")
