"""``skip``: leaves out the first items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage
from uio_pipes.core.state_kinds import Kind
from uio_pipes.stages.take import CountdownNode


@dataclass(frozen=True)
class Skip(Stage):
    """Leave out the first items.

    Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane. To skip
    some batches once, after a loss spike, call :meth:`Loader.skip` instead.

    Args:
        number: how many to leave out, of whatever passes this stage: list items, utterances or batches. 0 or more.
    """

    name: ClassVar[str] = "skip"
    silent: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = ("any",)

    number: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.number >= 0, self.name, "number must be 0 or more", self.number, "how many to leave out")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SkipNode(source, lane, self.number)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [max(0, n - self.number) for n in counts]


class _SkipNode(CountdownNode):
    def __init__(self, source: Node, lane: Lane, count: int) -> None:
        super().__init__(source, count)
        self.lane = lane

    def state_kinds(self) -> dict[str, Kind]:
        return {"left": Kind(f"0 or {self.count}", lambda value: type(value) is int and value in (0, self.count))}

    def next(self) -> Any:
        if self.left:
            left, self.left = self.left, 0
            for _ in range(left):
                self.source.skip(1)
                self.lane.pulse.arrived += 1  # they came this far
        return self.source.next()
