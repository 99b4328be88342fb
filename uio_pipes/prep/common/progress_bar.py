"""One look for every progress bar: the task, how much of it is done, and the time left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

T = TypeVar("T")


def progress_bar() -> Progress:
    """Return a bar that stays on the screen when it is full."""
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def follow(groups: Iterable[tuple[T, int]], what: str, total: int | None) -> Iterator[T]:
    """Pass items on while a bar adds up their counts; after the last item the bar is full, whatever was left out."""
    done = 0
    with progress_bar() as bar:
        task = bar.add_task(what, total=total)
        for item, worth in groups:
            done += worth
            bar.update(task, completed=done)
            yield item
        whole = max(done, total or 0)
        bar.update(task, completed=whole, total=whole)


def byte_bar() -> Progress:
    """Return a bar that counts bytes."""
    columns = (TextColumn("{task.description:<28}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True))
