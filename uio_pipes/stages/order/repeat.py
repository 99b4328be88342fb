"""``take``, ``skip`` and ``repeat``: only the first items, all but the first, or all several times."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from torchdata.nodes import BaseNode

from uio_pipes.core.capabilities import Connects, Upstream
from uio_pipes.core.lane import DEALS, Lane, Site
from uio_pipes.core.roles import Flow
from uio_pipes.core.stage import Node, Trait, least, must_be


@dataclass(frozen=True)
class Take(Flow):
    """Keep only the first items.

    Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane.

    Args:
        number: how many to keep, of whatever passes this stage: list items, utterances or batches. At least 1.
    """

    name: ClassVar[str] = "take"
    takes: ClassVar[tuple[str, ...]] = ("any",)
    traits: ClassVar[Trait] = Trait.BOUNDED

    number: int = least(1, MISSING, "leave the stage out to take all")

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
    def next(self) -> Any:
        if not self.left:
            raise StopIteration
        item = self.source.next()
        self.left -= 1
        return item

    def remaining(self) -> tuple[int, int]:
        return super().remaining() if self.left else (0, 0)


@dataclass(frozen=True)
class Skip(Flow):
    """Leave out the first items.

    Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane. To skip
    some batches once, after a loss spike, call :meth:`Loader.skip` instead.

    Args:
        number: how many to leave out, of whatever passes this stage: list items, utterances or batches. 0 or more.
    """

    name: ClassVar[str] = "skip"
    traits: ClassVar[Trait] = Trait.SILENT
    takes: ClassVar[tuple[str, ...]] = ("any",)

    number: int = least(0, MISSING, "how many to leave out")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SkipNode(source, lane, self.number)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [max(0, n - self.number) for n in counts]


class _SkipNode(CountdownNode):
    def __init__(self, source: Node, lane: Lane, count: int) -> None:
        super().__init__(source, count)
        self.lane = lane

    def next(self) -> Any:
        if self.left:
            left, self.left = self.left, 0
            for _ in range(left):
                self.source.skip(1)
                self.lane.stall_guard.arrived += 1  # they came this far
        return self.source.next()


@dataclass(frozen=True)
class Repeat(Connects, Flow):
    """Repeat everything before this stage, a number of times or endlessly (WeNet's ``cycle``).

    Each round is shuffled and augmented anew. Directly after ``list_files`` the whole list is repeated, after
    ``sharding_filter`` each lane's share. An endless stream is cut into epochs by ``Loader(steps_per_epoch=…)``. It
    ends all the same after a whole round of which later stages leave nothing.

    Args:
        times: number of rounds, at least 1; None or -1 repeats for ever. Default: None.
    """

    name: ClassVar[str] = "repeat"
    takes: ClassVar[tuple[str, ...]] = ("any",)

    times: int | None = must_be(
        None, "1 or more, or None (for ever)", lambda n: n in (None, -1) or n >= 1, "None repeats for ever"
    )

    @property
    def note(self) -> str:  # type: ignore[override]
        return "endless: cut into epochs by Loader(steps_per_epoch=…)" if self.rounds is None else ""

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return Trait.ENDLESS if self.rounds is None else Trait.NONE

    @property
    def rounds(self) -> int | None:
        """The number of rounds; None for ever."""
        return None if self.times == -1 else self.times

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        return _RepeatNode(upstream, lane, self.rounds)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.rounds is None else [n * self.rounds for n in counts]


class _RepeatNode(Node):
    """State: the round, whether anything of it has come through yet, the state of its source, and if it is over."""

    state_fields = ("round", "given")

    def __init__(self, upstream: Upstream, lane: Lane, rounds: int | None) -> None:
        super().__init__()
        self.upstream, self.lane, self.rounds, self.stall_guard = upstream, lane, rounds, lane.stall_guard

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        self.round, self.given, self.over = 0, 0, False
        self.fruitless = 0  # rounds in a row from which nothing came through
        if initial_state is None:
            self._begin(0, None)
            return
        self._begin(initial_state["round"], initial_state["source"])
        self.given = initial_state["given"]
        self.over = "over" in initial_state

    def _begin(self, number: int, state: dict[str, Any] | None) -> None:
        self.round, self.given = number, 0
        self.source = self.upstream(self.lane.in_round(number))
        self.source.reset(state)
        self.before, self.arrived = self.stall_guard.arrived, 0

    def get_state(self) -> dict[str, Any]:
        self._look()
        state = super().get_state()
        return state | {"over": 1} if self.over else state

    def _look(self) -> None:
        """Note if the last item has come through."""
        if self.stall_guard.arrived > self.before:
            self.given, self.arrived = 1, self.arrived + self.stall_guard.arrived - self.before
            self.before = self.stall_guard.arrived

    def next(self) -> Any:
        self._look()
        while not self.over:
            try:
                item = self.source.next()
            except StopIteration:
                self.over = self.round + 1 == self.rounds or self._rests()
                if not self.over:
                    self._begin(self.round + 1, None)
            else:
                if self.rounds is not None:
                    self.given = 1
                self.before = self.stall_guard.arrived
                return item
        raise StopIteration

    def _rests(self) -> bool:
        """True if another round is useless, because nothing came of this one."""
        if self.rounds is not None:
            return not self.given
        self.fruitless = 0 if self.given else self.fruitless + 1
        # If rounds are dealt to lanes afterwards, one may have nothing for this lane.
        patience = 1 if self.lane.dealt == 1 else DEALS * self.lane.dealt
        if self.fruitless < patience and not self.lane.stalls(f"{self.stage_name} rests", self.round, self.arrived):
            return False
        self.stall_guard.starved_stage = Repeat.name
        return True
