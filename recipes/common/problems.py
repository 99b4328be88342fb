"""Known problems of a command, shown in a message without a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import typer

__all__ = ["told"]


@contextlib.contextmanager
def told(*known: type[Exception]) -> Iterator[None]:
    """Print an error of a ``known`` kind to standard error, and exit with status 1."""
    try:
        yield
    except known as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
