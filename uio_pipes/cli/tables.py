"""Prints tables on the terminal, the same ones that HTML pages have."""

from __future__ import annotations

import os
from collections.abc import Iterable

import typer

from uio_pipes.base.printable import printable
from uio_pipes.reports.page import Rows


def print_tables(tables: Iterable[Rows]) -> None:
    """Print tables on stdout; plain and 200 columns wide if that is not a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    for title, headings, rows in tables:
        table = Table(box=None, pad_edge=False)
        filled = [[printable(str(value)) for value in row] for row in rows]
        for number, heading in enumerate(headings):
            counts = heading not in ("value", "text") and all(_is_number(row[number]) for row in filled)
            table.add_column(heading, justify="right" if number and counts else "left", overflow="fold")
        for row in filled:
            table.add_row(*map(Text, row))
        console.print(Text(title, style="bold"))
        console.print(table)
        console.print()


def _is_number(text: str) -> bool:
    return not text.strip("0123456789.,%+- sx×")


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
