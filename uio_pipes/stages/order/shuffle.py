"""``shuffle`` and ``sort``: random order, or neighbours of similar length, with a buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.hashing import pick
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import Length, check_measure
from uio_pipes.core.roles import Flow, check_labels
from uio_pipes.core.stage import Node, Stage, Trait, least

LAG = 3  # a sample leaves at the latest after so many times the buffer's size


@dataclass(frozen=True)
class Shuffle(Flow):
    """Shuffle with a buffer: hold a number of utterances, and for each new one give a random one of them.

    After ``list_files`` or ``open_files`` it shuffles lines or files. An utterance that has been held while 3 ×
    ``shuffle_size`` others passed is let go next; this bounds how many headers a resumed run has to read again.

    Args:
        shuffle_size: how many utterances to hold, at least 1. Default: 1,500.
    """

    name: ClassVar[str] = "shuffle"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE
    takes: ClassVar[tuple[str, ...]] = ("sample", "file", "item")

    shuffle_size: int = least(1, 1500, "WeNet uses 1500")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ShuffleNode(source, lane, self, site)


class _ShuffleNode(Buffer):
    state_fields = ("position",)

    def __init__(self, source: Node, lane: Lane, stage: Shuffle, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.size, self.key = stage.shuffle_size, lane.key(site)

    def start(self) -> None:
        self.position = 0

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


@dataclass(frozen=True)
class Sort(Flow):
    """Sort by planned length in a buffer: collect utterances, give them shortest first, and start again.

    Batches of neighbours then need little padding. WeNet advises a buffer that is not larger than that of
    ``shuffle``.

    Args:
        sort_size: how many utterances to collect, at least 1. Default: 500.
        length: another length to sort by, such as "tokens", "prompt.frames", or a function of all lengths. Default:
            None, the planned frames.
    """

    name: ClassVar[str] = "sort"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE
    note: ClassVar[str] = "by the plan: nothing is decoded"

    sort_size: int = least(1, 500, "WeNet uses 500")
    length: Length | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_measure(self.name, self.length)

    def check(self, before: Sequence[Stage]) -> None:
        check_labels(self.name, self.length, before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SortNode(source, lane, self, site)


class _SortNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Sort, site: Site) -> None:
        super().__init__(source, lane, site.name, stage.length)
        self.size = stage.sort_size

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
        lengths: dict[int, int] = {}  # by arrival numbers, which rise
        try:
            while len(lengths) < self.size:
                number, item = self.pull()
                length = self.length(item)
                if length is not None:
                    self.hold(number, item)
                    lengths[number] = length
        except StopIteration:
            pass
        self.ready = deque(sorted(lengths, key=lengths.__getitem__))  # of equal ones, in the order in which they came
