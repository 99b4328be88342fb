"""``list_files``, the lines of lists, and ``sharding_filter``, each lane's share of what a source gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.capabilities import Connects, FileList, ReadsFiles, Upstream
from uio_pipes.core.items import Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.roles import Flow, Source
from uio_pipes.core.sample import Origin
from uio_pipes.core.stage import NO_IDENTITY, Trait
from uio_pipes.core.state_kinds import Kind, whole
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.io.access import PLAIN, Access


@dataclass(frozen=True)
class ListFiles(ReadsFiles, Source):
    """Lines of data lists. ``shuffle``: in another order in each epoch, by hashes of seed, epoch and number."""

    name: ClassVar[str] = "list_files"
    gives: ClassVar[str] = "item"

    paths: tuple[str, ...] = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> ItemTable:
        """Read the lists. Raises: ListError naming list and line."""
        return ItemTable(self.paths, self.access)

    def files(self, listed: list[FileList]) -> list[FileList]:
        return [FileList(self.table, self.access)]

    def item(self, table: ItemTable, number: int, origin: Origin) -> Item:
        return Item(table[number], table.place(number), origin, self.access, table.expected(number))


@dataclass(frozen=True)
class ShardingFilter(Connects, Flow):
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
    traits: ClassVar[Trait] = Trait.DEALS

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
