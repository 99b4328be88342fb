"""``repeat``: the stages before, several times or for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torchdata.nodes import BaseNode

from uio_pipes.base.checks import require
from uio_pipes.core.lane import ROUNDS, Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.pulse import DEALS
from uio_pipes.core.stage import Stage, Upstream
from uio_pipes.core.state_kinds import FLAG, OBJECT, Kind, whole


@dataclass(frozen=True)
class Repeat(Stage):
    """Repeat everything before this stage, a number of times or for ever (WeNet's ``cycle``).

    Each round is shuffled and augmented anew. Directly after ``list_files`` the whole list is repeated, after
    ``sharding_filter`` each lane's share. An endless stream is cut into epochs by ``Loader(steps_per_epoch=…)``. It
    ends all the same after a whole round of which later stages leave nothing.

    Args:
        times: number of rounds, at least 1; None or -1 repeats for ever. Default: None.
    """

    name: ClassVar[str] = "repeat"
    takes: ClassVar[tuple[str, ...]] = ("any",)

    times: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.times is None or self.times == -1 or self.times >= 1
        require(ok, self.name, "times must be 1 or more, or None (for ever)", self.times, "None repeats for ever")

    @property
    def note(self) -> str:  # type: ignore[override]
        return "endless: cut into epochs by Loader(steps_per_epoch=…)" if self.rounds is None else ""

    @property
    def endless(self) -> bool:
        return self.rounds is None

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
        self.upstream, self.lane, self.rounds, self.pulse = upstream, lane, rounds, lane.pulse

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        self.round, self.given, self.over = 0, 0, False
        self.fruitless = 0  # rounds in a row from which nothing came through
        if initial_state is None:
            self._begin(0, None)
            return
        own = self.read_fields(initial_state)
        self._begin(own["round"], self.read_state(initial_state, "source", OBJECT))
        self.given = own["given"]
        self.over = bool(self.read_state({"over": 0, **initial_state}, "over", FLAG))

    def state_kinds(self) -> dict[str, Kind]:
        return {"round": whole(self.rounds or ROUNDS), "given": FLAG}

    def _begin(self, number: int, state: dict[str, Any] | None) -> None:
        self.round, self.given = number, 0
        self.source = self.upstream(self.lane.again(number))
        self.source.reset(state)
        self.before, self.arrived = self.pulse.arrived, 0

    def get_state(self) -> dict[str, Any]:
        self._look()
        state = super().get_state()
        return state | {"over": 1} if self.over else state

    def _look(self) -> None:
        """Note if the last item has come through."""
        if self.pulse.arrived > self.before:
            self.given, self.arrived = 1, self.arrived + self.pulse.arrived - self.before
            self.before = self.pulse.arrived

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
                self.before = self.pulse.arrived
                return item
        raise StopIteration

    def _rests(self) -> bool:
        """True if another round is useless, because nothing came of this one."""
        if self.rounds is not None:
            return not self.given
        self.fruitless = 0 if self.given else self.fruitless + 1
        # If rounds are dealt to lanes afterwards, one may have nothing for this lane.
        patience = 1 if self.lane.dealt == 1 else DEALS * self.lane.dealt
        if self.fruitless < patience and not self.pulse.stalled(self.arrived):
            return False
        self.pulse.starved_stage = Repeat.name
        return True
