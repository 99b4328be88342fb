"""``shuffle``: another order, by a buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import pick
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage
from uio_pipes.core.state_kinds import Kind, whole

LAG = 3  # a sample leaves at the latest after so many times the buffer's size


@dataclass(frozen=True)
class Shuffle(Stage):
    """Shuffle within a buffer: hold a number of utterances, and for each new one let a random one of them go.

    After ``list_files`` or ``open_files`` it shuffles lines or files. An utterance that has been held while 3 ×
    ``shuffle_size`` others passed is let go next; this bounds how many headers a resumed run has to read again.

    Args:
        shuffle_size: how many utterances to hold, at least 1. Default: 1,500.
    """

    name: ClassVar[str] = "shuffle"
    one_to_one: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = ("sample", "file", "item")

    shuffle_size: int = 1500

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.shuffle_size, int) and self.shuffle_size >= 1
        require(ok, self.name, "shuffle_size must be a whole number above 0", self.shuffle_size, "WeNet uses 1500")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ShuffleNode(source, lane, self, site)


class _ShuffleNode(Buffer):
    state_fields = ("position",)

    def __init__(self, source: Node, lane: Lane, stage: Shuffle, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.size, self.key = stage.shuffle_size, lane.key(site)

    def start(self) -> None:
        self.position = 0

    def state_kinds(self) -> dict[str, Kind]:
        return {"position": whole()}

    def bounds(self) -> tuple[int, int]:
        return self.size, (LAG + 1) * self.size

    def order(self) -> list[int]:
        return self.slots

    def rebuild(self, order: list[int]) -> None:
        self.slots = order

    def next(self) -> Any:
        while len(self.slots) < self.size:
            try:
                number, item = self.pull()
            except StopIteration:
                break
            self.hold(number, item)
            self.slots.append(number)
        if not self.slots:
            raise StopIteration
        late = self.age() > LAG * self.size
        at = self.slots.index(self.oldest) if late else pick(self.key, self.position, len(self.slots))
        self.position += 1
        number = self.slots[at]
        self.slots[at] = self.slots[-1]
        self.slots.pop()
        return self.release(number)
