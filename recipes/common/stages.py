"""A recipe as numbered stages. Each reports what it wrote and how long it took."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

__all__ = ["Need", "Stage", "check_order", "run_stages"]

Need = tuple[int, Path]  # the stage that writes it, and what it writes

console = Console(highlight=False, soft_wrap=True)


class TooEarly(Exception):
    """An earlier stage has not been run; ``stage`` is the first of them."""

    def __init__(self, stage: int, path: Path) -> None:
        super().__init__(f"there is no {path}: run stage {stage} first")
        self.stage = stage


@dataclass(frozen=True)
class Stage:
    """``run`` returns lines that say what it wrote. ``needs``: what earlier stages must have written."""

    number: int
    title: str
    run: Callable[[], str]
    needs: tuple[Need, ...] = ()


def check_order(first: int, last: int) -> None:
    """Raise ValueError if there is no stage from ``first`` to ``last``."""
    if first > last:
        raise ValueError(f"--stage {first} comes after --stop-stage {last}: nothing would be run")


def run_stages(stages: Sequence[Stage], first: int, last: int, command: Sequence[str]) -> dict[str, float]:
    """Run the stages from ``first`` to ``last``; return the seconds of each. ``command``: what the user typed.

    A known problem is printed as a message and ends in ``typer.Exit``; any other keeps its traceback.
    """
    seconds: dict[str, float] = {}
    for stage in stages:
        if first <= stage.number <= last:
            console.rule(f"[bold]{stage.number}: {stage.title}", align="left")
            began = time.monotonic()
            try:
                _check_needs(stages, stage)
                wrote = stage.run()
            except Exception as error:
                if not _speaks_for_itself(error):
                    raise
                console.print(f"[red]stage {stage.number} ({stage.title}):[/] ", end="")
                console.print(str(error), markup=False)
                begin = error.stage if isinstance(error, TooEarly) else stage.number
                console.print(f"then go on with: {_command_from(command, begin)}", markup=False)
                raise typer.Exit(1) from None
            seconds[f"{stage.number}: {stage.title}"] = time.monotonic() - began
            console.print(wrote, markup=False)
            console.print(f"[dim]{time.monotonic() - began:.0f} s")
    return seconds


def _check_needs(stages: Sequence[Stage], stage: Stage) -> None:
    """Raise TooEarly for the first stage that is missing; the needs of the missing stages are checked too."""
    missing = [(number, path) for number, path in stage.needs if not path.exists()]
    if missing:
        number, path = min(missing)
        _check_needs(stages, next(one for one in stages if one.number == number))
        raise TooEarly(number, path)


def _command_from(command: Sequence[str], stage: int) -> str:
    """Return the same command, starting at another stage."""
    words = list(command)
    kept = [
        word
        for number, word in enumerate(words)
        if word != "--stage" and not word.startswith("--stage=") and words[number - 1] != "--stage"
    ]
    return f"{shlex.join(kept)} --stage {stage}"


def _speaks_for_itself(error: Exception) -> bool:
    """Return whether the message is written for the user: by the package, the recipes or the operating system."""
    return isinstance(error, OSError) or type(error).__module__.startswith(("recipes.", "uio_pipes."))
