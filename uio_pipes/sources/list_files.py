"""``list_files``: the lines of data lists, in the epoch's order."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from uio_pipes.lane import Lane, Site, permutation
from uio_pipes.node import Node
from uio_pipes.sample import Origin
from uio_pipes.sources.table import Table
from uio_pipes.stage import Stage, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

Entry = str | os.PathLike[str] | Mapping[str, object]

__all__ = ["Item", "ListFiles", "list_files"]


class Item(NamedTuple):
    """One line of a list: its text, where it stands, and the origin of what will come out of it."""

    text: str
    place: str
    origin: Origin

    @property
    def key(self) -> str:
        return self.text


@dataclass(frozen=True)
class ListFiles(Stage):
    """Lines of data lists. ``shuffle``: in another order each epoch, by hashes of seed, epoch and number."""

    name: ClassVar[str] = "list_files"
    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "item"

    paths: tuple[str, ...]
    shuffle: bool = False

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; for fingerprints without the paths: what the lists hold has a fingerprint of its own."""
        return f"list_files(shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> Table:
        """Read the lists. Raises: ListError naming list and line."""
        return Table(self.paths)

    def content(self) -> list[tuple[int, str]]:
        table = self.table()
        return [(len(table), table.digest)]

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return _ListNode(self, lane, site)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return [len(self.table())] * len(counts)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


class _ListNode(Node):
    state_fields = ("position",)

    def __init__(self, stage: ListFiles, lane: Lane, site: Site) -> None:
        super().__init__()
        self.stage, self.lane, self.site = stage, lane, site

    def start(self) -> None:
        self.table = self.lane.shared(("table", self.stage.paths), self.stage.table)
        self.order = self._shuffled() if self.stage.shuffle else range(len(self.table))
        self.position = 0

    def _shuffled(self) -> npt.NDArray[np.int64]:
        """One for all lanes of the process, as long as one of them is in this pass."""
        orders = self.lane.shared("orders", WeakValueDictionary[Hashable, npt.NDArray[np.int64]])
        key = (self.stage.paths, self.lane.order_key(self.site))
        order = orders.get(key)
        if order is None:
            order = orders[key] = permutation(len(self.table), key[1])
        return order

    def next(self) -> Item:
        if self.position >= len(self.order):
            raise StopIteration
        number = int(self.order[self.position])
        self.position += 1
        origin = Origin(number, pass_=self.lane.pass_, source=self.lane.source)
        return Item(self.table[number], self.table.place(number), origin)

    def skip(self, n: int) -> None:
        if self.position + n > len(self.order):
            self.position = len(self.order)
            raise StopIteration
        self.position += n

    def remaining(self) -> tuple[int, int]:
        return 0, len(self.order) - self.position


def list_files(paths: str | os.PathLike[str] | Iterable[Entry], *, shuffle: bool = False) -> Pipeline:
    """Start a pipeline from data lists.

    Args:
        paths: list file(s) with a path, URL or JSON object a line; globs; ``{a,b}`` and ``{00..99}`` braces; URLs;
            names of tar shards themselves (``data/*.tar``); JSON objects as dicts. One, or several in a Python list.
            In list files, blank lines and lines that start with ``#`` are passed over.
        shuffle: deal the lines in another order each epoch.

    Raises:
        PipelineError: nothing was given, or something that is no path.
        ListError: when the pipeline runs, if a list is missing, empty or no list.
    """
    from uio_pipes.pipeline import Pipeline

    one = isinstance(paths, (str, os.PathLike, Mapping))
    require(
        one or isinstance(paths, Iterable), "list_files", "paths must be a path or a list of paths", paths, "name one"
    )
    given = [paths] if one else list(paths)  # type: ignore[arg-type]
    require(bool(given), "list_files", "at least one list or shard must be given", paths, "name a list file")
    return Pipeline((ListFiles(tuple(map(_entry, given)), shuffle),))


def _entry(entry: object) -> str:
    if isinstance(entry, Mapping):
        return json.dumps(dict(entry), ensure_ascii=False)
    path = os.fspath(entry) if isinstance(entry, (str, os.PathLike)) else ""
    require(
        bool(path.strip()),
        "list_files",
        "each entry must be a path, a URL or a dict of one utterance",
        entry,
        "name a list file",
    )
    return str(path)
