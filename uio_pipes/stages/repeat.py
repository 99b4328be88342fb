"""``repeat``: what stands before, several times or for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torchdata.nodes import BaseNode

from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.stage import Stage, Upstream, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["Repeat"]


@dataclass(frozen=True)
class Repeat(Stage):
    """Repeat everything before this stage, a number of times or for ever (WeNet's ``cycle``).

    Each round is shuffled and augmented anew. Directly after ``list_files`` the whole list is repeated, after
    ``sharding_filter`` each lane's share. An endless stream is cut into epochs by ``Loader(steps_per_epoch=…)``.

    Args:
        times: number of rounds, at least 1; None or -1 repeats for ever. Default: None.
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
        state = initial_state or {"round": 0, "given": 0, "source": None}
        self._begin(state["round"], state["source"])
        self.given: int = state["given"]

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
