"""A recipe as numbered stages, run from one to another, each saying what it wrote and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import typer
from rich.console import Console

__all__ = ["Stage", "run_stages"]

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Stage:
    """``run`` returns what it wrote, as lines to read."""

    number: int
    title: str
    run: Callable[[], str]


def run_stages(stages: Sequence[Stage], first: int, last: int, again: str) -> dict[str, float]:
    """Run those from ``first`` to ``last``; returns the seconds of each. ``again``: the command that begins at a stage.

    A problem that the recipe knows ends in its own words and ``typer.Exit``; any other shows where it came from.
    """
    seconds: dict[str, float] = {}
    for stage in stages:
        if first <= stage.number <= last:
            console.rule(f"[bold]{stage.number}: {stage.title}", align="left")
            began = time.monotonic()
            try:
                wrote = stage.run()
            except Exception as error:
                if not _speaks_for_itself(error):
                    raise
                console.print(f"[red]stage {stage.number} ({stage.title}):[/] ", end="")
                console.print(str(error), markup=False)
                console.print(f"then go on with: {again} --stage {stage.number}", markup=False)
                raise typer.Exit(1) from None
            seconds[f"{stage.number}: {stage.title}"] = time.monotonic() - began
            console.print(wrote, markup=False)
            console.print(f"[dim]{time.monotonic() - began:.0f} s")
    return seconds


def _speaks_for_itself(error: Exception) -> bool:
    """Whether the message is meant for the user: the package's, the recipes' or the operating system's own."""
    return isinstance(error, OSError) or type(error).__module__.startswith(("recipes.", "uio_pipes."))
