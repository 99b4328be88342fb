"""``repeat``: what stands before, several times or for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torchdata.nodes import BaseNode

from uio_pipes.lane import PASSES, Lane, Site
from uio_pipes.node import Node
from uio_pipes.stage import Stage, Upstream, require
from uio_pipes.state_kinds import FLAG, OBJECT, Kind, whole

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["Repeat"]

ENDLESS = 1 << PASSES  # rounds that can be told apart


@dataclass(frozen=True)
class Repeat(Stage):
    """Run what stands before ``times`` times (WeNet's ``cycle``); None or -1: for ever.

    Each round is a pass of its own: shuffled anew, augmented anew. Right after ``list_files`` whole lists are repeated,
    after ``sharding_filter`` each lane's share. An endless stream is cut into epochs by ``Loader(steps_per_epoch=…)``.
    """

    name: ClassVar[str] = "repeat"
    takes: ClassVar[tuple[str, ...]] = ("any",)

    times: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.times is None or self.times == -1 or self.times >= 1
        require(ok, self.name, "times must be 1 or more, or None (for ever)", self.times, "leave it out for ever")

    @property
    def note(self) -> str:  # type: ignore[override]
        return "endless: cut into epochs by Loader(steps_per_epoch=…)" if self.rounds is None else ""

    @property
    def rounds(self) -> int | None:
        """How many rounds there are; None: no end."""
        return None if self.times == -1 else self.times

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        return _RepeatNode(upstream, lane, self.rounds)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return None if self.rounds is None else [n * self.rounds for n in counts]

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().shuffle(5).repeat(2).batch(4).pad()


class _RepeatNode(Node):
    """State: the round, whether it has given anything yet, and the state of the source of that round."""

    state_fields = ("round", "given")

    def __init__(self, upstream: Upstream, lane: Lane, rounds: int | None) -> None:
        super().__init__()
        self.upstream, self.lane, self.rounds = upstream, lane, rounds

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        self.round, self.given = 0, 0
        if initial_state is None:
            self._begin(0, None)
            return
        own = self.read_fields(initial_state)
        self._begin(own["round"], self.read_state(initial_state, "source", OBJECT))
        self.given = own["given"]

    def state_kinds(self) -> dict[str, Kind]:
        return {"round": whole(self.rounds or ENDLESS), "given": FLAG}

    def _begin(self, number: int, state: dict[str, Any] | None) -> None:
        self.round, self.given = number, 0
        self.source = self.upstream(self.lane.again(number))
        self.source.reset(state)

    def next(self) -> Any:
        while True:
            try:
                item = self.source.next()
            except StopIteration:
                if self.round + 1 == self.rounds or not self.given:  # nothing comes of repeating nothing
                    raise
                self._begin(self.round + 1, None)
            else:
                self.given = 1
                return item
