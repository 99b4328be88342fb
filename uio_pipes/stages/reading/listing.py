"""Sources that know their items before any is read, lists of lines above all, and each lane's share of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from uio_pipes.base.hashing import Permutation, stable_hash
from uio_pipes.core.items import Item, Record
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Origin
from uio_pipes.core.schedule import show
from uio_pipes.core.stage import FileList, Stage, Upstream
from uio_pipes.core.state_kinds import Kind, whole
from uio_pipes.formats.lists.table import Table
from uio_pipes.io.access import PLAIN, Access


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


class Listing(Stage):
    """A source that knows its items beforehand. Subclasses are frozen dataclasses with a field ``shuffle``."""

    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "item"

    shuffle: bool

    def table(self) -> Any:
        """Open the items, a :class:`Listed`. Raises: ListError."""
        raise NotImplementedError

    def item(self, table: Any, number: int, origin: Origin) -> Any:
        """Return item ``number`` of ``table``; it has a ``key`` and an ``origin``."""
        raise NotImplementedError

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; fingerprints leave the paths out, since the items have a fingerprint of their own."""
        return f"{self.name}(shuffle={self.shuffle}{self._named()})" if stable else super().describe()

    def _named(self) -> str:
        """Return for the fingerprint the parameters that are :func:`added`, where they differ from their defaults."""
        added = [(f, getattr(self, f.name)) for f in fields(self) if "added" in f.metadata]
        other = [(f, value) for f, value in added if value != f.default and (value or f.default)]  # fields={} is None
        return "".join(f", {f.name}={show(value, stable=True)}" for f, value in other)

    def content(self) -> list[tuple[int, str]]:
        table = self.table()
        return [(len(table), table.digest)]

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return ListingNode(self, lane, site)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [len(self.table())] * len(counts)


class RecordListing(Listing):
    """A source of utterances that are read in any order; its table is a :class:`~uio_pipes.core.items.Records`."""

    gives: ClassVar[str] = "record"

    def item(self, table: Any, number: int, origin: Origin) -> Record:
        return Record(table, number, origin)


Order = Permutation | npt.NDArray[np.int64]


class ListingNode(Node):
    """Gives the items of a listing, in the order of the pass."""

    state_fields = ("position",)

    def __init__(self, stage: Listing, lane: Lane, site: Site) -> None:
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


@dataclass(frozen=True)
class ListFiles(Listing):
    """Lines of data lists. ``shuffle``: in another order in each epoch, by hashes of seed, epoch and number."""

    name: ClassVar[str] = "list_files"

    paths: tuple[str, ...]
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> Table:
        """Read the lists. Raises: ListError naming list and line."""
        return Table(self.paths, self.access)

    def files(self, listed: list[FileList]) -> list[FileList]:
        return [FileList(self.table, self.access)]

    def item(self, table: Table, number: int, origin: Origin) -> Item:
        return Item(table[number], table.place(number), origin, self.access, table.expected(number))


@dataclass(frozen=True)
class ShardingFilter(Stage):
    """Give each lane its share of the data: item ``p`` of the epoch goes to lane ``p % lanes``.

    Put it directly after ``list_files`` (shards are dealt out), after a ``mix``, or anywhere before the batches. A
    graph without it can run in one lane only, that is on one rank with at most one worker. With as many lanes as
    there are workers in all, which is the default, the shares are WeNet's
    ``data[rank::world_size][worker::num_workers]``.

    Raises:
        PipelineError: there is one already; a second one would keep a share of a share and lose the rest.
    """

    name: ClassVar[str] = "sharding_filter"
    takes: ClassVar[tuple[str, ...]] = ("any",)
    deals: ClassVar[bool] = True

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        """The nodes before it are the same for all lanes."""
        return _ShardingNode(upstream(lane.common()), lane)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        lanes, first = len(counts), first_lane(path)
        return [len(range((lane - first) % lanes, n, lanes)) for lane, n in enumerate(counts)]


def first_lane(path: str) -> int:
    """Return the lane (modulo their number) of the first item, where ``path`` names the source of a mix."""
    return stable_hash("first lane", path) if path else 0


class _ShardingNode(Node):
    state_fields = ("gap",)

    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane

    def start(self) -> None:
        # Items to skip before the next one of ours. The sources of a mix begin with different lanes; otherwise the
        # first lane would get the first item of each.
        self.gap = (self.lane.index - first_lane(self.lane.source)) % self.lane.count

    def state_kinds(self) -> dict[str, Kind]:
        return {"gap": whole(self.lane.count)}

    def next(self) -> Any:
        if self.gap:
            gap, self.gap = self.gap, 0
            self.source.skip(gap)
        item = self.source.next()
        self.gap = self.lane.count - 1
        return item

    def remaining(self) -> tuple[int, int]:
        held, items = self.source.remaining()
        return held, -(-max(0, items - self.gap) // self.lane.count)
