"""One look for every progress bar: what, how much of it, how fast, how long still."""

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
    """A bar that stays on the screen when it is full."""
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
    """Pass items on while a bar counts what each of them is worth; it is full after the last, whatever was left out."""
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
    """A bar that counts bytes."""
    columns = (TextColumn("{task.description:<28}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True))
