"""``sort``: neighbours of similar length, by a buffer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage


@dataclass(frozen=True)
class Sort(Stage):
    """Sort by planned length within a buffer: collect utterances, give them shortest first, and begin again.

    Batches of neighbours then need little padding. WeNet advises a buffer that is not larger than that of
    ``shuffle``.

    Args:
        sort_size: how many utterances to collect, at least 1. Default: 500.
    """

    name: ClassVar[str] = "sort"
    one_each: ClassVar[bool] = True
    note: ClassVar[str] = "by the plan: nothing is decoded"

    sort_size: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.sort_size, int) and self.sort_size >= 1
        require(ok, self.name, "sort_size must be a whole number above 0", self.sort_size, "WeNet uses 500")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SortNode(source, lane, self, site)


class _SortNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Sort, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.size = stage.sort_size

    def bounds(self) -> tuple[int, int]:
        return self.size, self.size

    def order(self) -> deque[int]:
        return self.ready

    def rebuild(self, order: list[int]) -> None:
        self.ready = deque(order)

    def next(self) -> Any:
        if not self.ready:
            self._fill()
        if not self.ready:
            raise StopIteration
        return self.release(self.ready.popleft())

    def _fill(self) -> None:
        lengths: list[tuple[int, int]] = []
        try:
            while len(lengths) < self.size:
                number, item = self.pull()
                length = self.length(item)
                if length is not None:
                    self.hold(number, item)
                    lengths.append((length, number))
        except StopIteration:
            pass
        self.ready = deque(number for _, number in sorted(lengths))
