"""``take``: only the first items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage
from uio_pipes.core.state_kinds import Kind, whole


@dataclass(frozen=True)
class Take(Stage):
    """Keep only the first items, and end there.

    Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane.

    Args:
        number: how many to keep, of whatever passes this stage: list items, utterances or batches. At least 1.
    """

    name: ClassVar[str] = "take"
    takes: ClassVar[tuple[str, ...]] = ("any",)
    bounds_stream: ClassVar[bool] = True

    number: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.number >= 1, self.name, "number must be 1 or more", self.number, "leave the stage out to take all")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _TakeNode(source, self.number)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [min(n, self.number) for n in counts]


class CountdownNode(Node):
    """Counts the first items: ``left`` are still to come."""

    state_fields = ("left",)

    def __init__(self, source: Node, count: int) -> None:
        super().__init__(source)
        self.count = count

    def start(self) -> None:
        self.left = self.count


class _TakeNode(CountdownNode):
    def state_kinds(self) -> dict[str, Kind]:
        return {"left": whole(self.count + 1)}

    def next(self) -> Any:
        if not self.left:
            raise StopIteration
        item = self.source.next()
        self.left -= 1
        return item

    def remaining(self) -> tuple[int, int]:
        return super().remaining() if self.left else (0, 0)
