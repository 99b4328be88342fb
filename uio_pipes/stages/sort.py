"""``sort``: neighbours of similar length, by a buffer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.lengths import Length, check_measure
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage, added


@dataclass(frozen=True)
class Sort(Stage):
    """Sort by planned length within a buffer: collect utterances, give them shortest first, and begin again.

    Batches of neighbours then need little padding. WeNet advises a buffer that is not larger than that of
    ``shuffle``.

    Args:
        sort_size: how many utterances to collect, at least 1. Default: 500.
        length: another length to sort by, such as "tokens", "prompt.frames", or a function of all lengths. Default:
            None, the planned frames.
    """

    name: ClassVar[str] = "sort"
    one_to_one: ClassVar[bool] = True
    note: ClassVar[str] = "by the plan: nothing is decoded"

    sort_size: int = 500
    length: Length | None = added(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.sort_size, int) and self.sort_size >= 1
        require(ok, self.name, "sort_size must be a whole number above 0", self.sort_size, "WeNet uses 500")
        check_measure(self.name, self.length)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SortNode(source, lane, self, site)


class _SortNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Sort, site: Site) -> None:
        super().__init__(source, lane, site.name, stage.length)
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
