"""What all preparation shares: progress bars, suggestions for a mistyped path, a ledger that keeps all failures."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

import fsspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from uio_pipes.base.errors import NOTES, DataError
from uio_pipes.core.lane import Ledger
from uio_pipes.io.opening import is_local

logger = logging.getLogger("uio_pipes")


@dataclass
class Noting(Ledger):
    """A ledger without a budget."""

    found: list[DataError] = field(default_factory=list)

    def fail(self, error: DataError, stage: str) -> None:
        if self.quiet:
            return
        if error.reason in NOTES and not error.key:
            logger.warning("%s: %s", stage, error)  # of a whole shard: no utterance failed
        else:
            self.found.append(error)

    def take(self) -> list[DataError]:
        """Return the failures since the last call."""
        found, self.found = self.found, []
        return found


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


USUAL = ("http", "https", "s3", "oss", "gs")


def near(url: str) -> str:
    """Return ``; is data/shards.list meant?`` with the name nearest to a missing local path, or ``""``."""
    path = is_local(url)
    if path is None:
        return ""
    parent, name = os.path.split(path.rstrip("/"))
    while parent and not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    try:
        found = get_close_matches(name, os.listdir(parent or "."), 1)
    except OSError:
        return ""
    return f"; is {os.path.join(parent, found[0])} meant?" if found else ""


def meant(url: str) -> str:
    """Return ``; is s3:// meant?``, or the usual protocols, for one that fsspec does not know; else ``""``."""
    protocol, separator, _ = url.partition("://")
    known = fsspec.available_protocols()
    if not separator or protocol in known:
        return ""
    found = get_close_matches(protocol, known, 1) or get_close_matches(protocol, USUAL, 1, 0.5)
    return f"; is {found[0]}:// meant?" if found else f"; usual are {', '.join(f'{one}://' for one in USUAL)}"
