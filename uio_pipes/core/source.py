"""The role of what begins a graph: a source that knows its items before any is read, and the node that gives them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from uio_pipes.base.hashing import Permutation
from uio_pipes.core.items import Record
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Origin
from uio_pipes.core.stage import Stage
from uio_pipes.core.state_kinds import Kind, whole


class Listed(Protocol):
    """The items of a source, shared by all lanes of a process. ``digest``: a hash of all of them."""

    @property
    def digest(self) -> str: ...
    def __len__(self) -> int: ...
    def place(self, number: int) -> str:
        """Return the place of an item, for messages."""

    @property
    def weights(self) -> npt.NDArray[np.int64] | None:
        """Lengths of the items in samples, if known; shuffled epochs are dealt so that all lanes get equal sums."""


class Source(Stage):
    """The beginning of a graph: its table knows how many utterances there are, and gives each by its number.

    Subclasses are frozen dataclasses with a field ``shuffle``; :meth:`table` opens a
    :class:`~uio_pipes.core.items.Records`, from which ``load_records`` reads. Paths and the like have the metadata
    :data:`~uio_pipes.core.stage.NO_IDENTITY`: the items have a fingerprint of their own, so that data can move.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "record"

    shuffle: bool

    def table(self) -> Any:
        """Open the items, a :class:`Listed`. Raises: ListError."""
        raise NotImplementedError

    def item(self, table: Any, number: int, origin: Origin) -> Any:
        """Return item ``number`` of ``table``; it has a ``key`` and an ``origin``."""
        return Record(table, number, origin)

    def content(self) -> list[tuple[int, str]]:
        table = self.table()
        return [(len(table), table.digest)]

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return SourceNode(self, lane, site)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [len(self.table())] * len(counts)


Order = Permutation | npt.NDArray[np.int64]


class SourceNode(Node):
    """Gives the items of a source, in the order of the pass."""

    state_fields = ("position",)

    def __init__(self, stage: Source, lane: Lane, site: Site) -> None:
        super().__init__()
        self.stage, self.lane, self.site = stage, lane, site

    def start(self) -> None:
        self.table: Any = self.lane.shared(("table", self.stage), self.stage.table)
        self.order = self.make_order()
        self.position = 0

    def make_order(self) -> Any:
        """Return the number of the item at each position of this pass."""
        return self._shuffled() if self.stage.shuffle else range(len(self.table))

    def _shuffled(self) -> Order:
        """Return the order of this pass, which all lanes of the process that are in it share."""
        orders = self.lane.shared("orders", WeakValueDictionary[Hashable, Order])
        key = (self.stage, self.lane.order_key(self.site))
        order = orders.get(key)
        if order is None:
            order = orders[key] = Permutation(len(self.table), key[1])
            if (weights := self.table.weights) is not None and self.lane.count > 1:
                order = orders[key] = balanced(order.all(), weights, self.lane.count)
        return order

    def state_kinds(self) -> dict[str, Kind]:
        return {"position": whole(len(self.order) + 1)}

    def next(self) -> Any:
        if self.position >= len(self.order):
            raise StopIteration
        number = int(self.order[self.position])
        self.position += 1
        origin = Origin(number, pass_=self.lane.pass_, source=self.lane.source)
        return self.stage.item(self.table, number, origin)

    def skip(self, n: int) -> None:
        if self.position + n > len(self.order):
            self.position = len(self.order)
            raise StopIteration
        self.position += n

    def remaining(self) -> tuple[int, int]:
        return 0, len(self.order) - self.position


def balanced(order: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], lanes: int) -> npt.NDArray[np.int64]:
    """Rearrange each run of ``lanes`` items of ``order``: the longest one goes to the lane that has the least so far.

    Item ``p`` of the result belongs to lane ``p % lanes``; the sums of the lanes then differ by little more than the
    longest item (longest processing time first, Graham 1969, run by run).
    """
    out: npt.NDArray[np.int64] = order.copy()
    totals = np.zeros(lanes, np.int64)
    for first in range(0, len(order), lanes):
        run = order[first : first + lanes]
        size = weights[run]
        longest = np.argsort(-size, kind="stable")
        least = np.argsort(totals[: len(run)], kind="stable")
        out[first + least] = run[longest]
        totals[least] += size[longest]
    return out
