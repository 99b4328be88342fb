"""The node of ``mix`` and ``interleave``, and how it chooses among its sources."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torchdata.nodes import BaseNode

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import pick
from uio_pipes.core.items import File, Item, Record
from uio_pipes.core.lane import DEALS, Lane
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import Setting
from uio_pipes.core.stage import Node

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph


_TYPES: dict[str, tuple[type, ...]] = {
    "sample": (Sample,),
    "batch": (list, dict),
    "item": (Item,),
    "file": (File,),
    "record": (Record,),
}
Stop = Literal["all", "first", "cycle", "endless"]


class Chooser(Protocol):
    """Chooses among the sources that are ``left``, by a position that is part of the state."""

    def sources(self, position: int) -> Sequence[int] | None:
        """Return the numbers of the sources at this position; None for all of them."""

    def go_on(self) -> bool:
        """Start the sources that rest until a later step, as all others have ended. Return False if there are none."""

    def at(self, left: list[int], position: int) -> int: ...
    def after(self, at: int, position: int) -> int:
        """Return the position after source ``at`` has given something."""

    def after_end(self, position: int) -> int:
        """Return the position after the mix has ended: what changes later must not begin before its end."""


class InTurns:
    """Takes turns. Position: the source whose turn it is, or one more than the last."""

    def sources(self, position: int) -> None:
        return None

    def go_on(self) -> bool:
        return False

    def at(self, left: list[int], position: int) -> int:
        return left[bisect_left(left, position) % len(left)]

    def after(self, at: int, position: int) -> int:
        return at + 1

    def after_end(self, position: int) -> int:
        return position


class Shares:
    """The weights of all sources, in whole numbers so that every machine draws the same; ``there``: those above 0."""

    def __init__(self, weights: Sequence[float]) -> None:
        scale = (1 << 32) / max(weights)
        self.weights = [max(1, round(w * scale)) if w else 0 for w in weights]
        self.there = [i for i, w in enumerate(weights) if w]


class Weighted:
    """Draws by weights, a ``Setting`` of lists of them. Position: the number of draws."""

    def __init__(self, setting: Setting, key: int) -> None:
        self.setting, self.key = setting, key
        self.left: list[int] = []
        self.weights: Sequence[float] = ()
        self._find(0)

    def _find(self, position: int) -> Shares:
        """Return the shares at this position."""
        weights: Sequence[float] = self.setting.at(position)
        if weights is not self.weights:
            self.weights, self.shares, self.left = weights, Shares(weights), []
        return self.shares

    def sources(self, position: int) -> Sequence[int]:
        return self._find(position).there

    def go_on(self) -> bool:
        """Start the next weights, if the schedule has any for later steps. Return whether there are any."""
        marks = len(self.setting.marks)
        if self.setting.steps is None or marks + 1 >= len(self.setting.values):
            return False
        self.setting.turn(marks + 2)
        return True

    def after(self, at: int, position: int) -> int:
        return position + 1

    def after_end(self, position: int) -> int:
        return position + 1

    def at(self, left: list[int], position: int) -> int:
        shares = self._find(position)
        if left != self.left:
            self.left, self.bounds = list(left), list(accumulate(shares.weights[i] for i in left))
        return left[bisect_right(self.bounds, pick(self.key, position, self.bounds[-1]))]


class _Source:
    """One source of the mix: its round (an epoch of its own) and its nodes.

    The nodes are made when it is first asked. A source that had begun when its state was saved is restored while the
    lane's ledger is quiet.
    """

    def __init__(self, pipeline: Graph, lane: Lane, kind: str, saved: Sequence[Any] = (0, 0, None)) -> None:
        self.pipeline, self.lane, self.kind = pipeline, lane, kind
        self.round, self.given, self._state = saved
        self.node: Node | None = None

    def restore(self) -> None:
        """Go on from the saved state, if there is one."""
        if self._state is not None:
            self._begin()

    def _begin(self) -> Node:
        self.node = self.pipeline._nodes(self.lane.in_round(self.round))
        if self.pipeline._kind != self.kind:
            self.node = _OnlyNode(self.node, self.kind, self.lane.source)
        self.node.reset(self._state)
        return self.node

    def next(self) -> Any:
        node = self._begin() if self.node is None else self.node
        item = node.next()
        self._state = None
        return item

    def next_round(self) -> None:
        """Begin the next round."""
        self.round, self.given, self.node, self._state = self.round + 1, 0, None, None

    def save(self) -> list[Any]:
        if self._state is None and self.node is not None:
            self._state = self.node.get_state()
        return [self.round, self.given, self._state]


class _OnlyNode(Node):
    """Checks that a node of the user's gives the kind that the other sources give."""

    def __init__(self, source: Node, kind: str, name: str) -> None:
        super().__init__(source)
        self.kind, self.name, self.types = kind, name, _TYPES[kind]

    def next(self) -> Any:
        item = self.source.next()
        if not isinstance(item, self.types):
            rule = f"the node given to .through(…) at the end of {self.name} must give {self.kind}s"
            got = f"a {type(item).__name__}"
            raise PipelineError(f"mix: {rule} as the other sources do, not {got}; mix pipelines that give the same")
        return item


class MixNode(Node):
    """The node of a mix. State: the position, the sources that have ended, round and state of those that have begun,
    and whether it is over."""

    def __init__(self, pipelines: Mapping[str, Graph], kind: str, stop: Stop, lane: Lane, chooser: Chooser) -> None:
        super().__init__()
        self.pipelines = [(pipeline, lane.within(name), kind) for name, pipeline in pipelines.items()]
        self.stop, self.chooser, self.lane, self.stall_guard = stop, chooser, lane, lane.stall_guard
        self.by_arrival = stop == "endless" and lane.dealt == 1

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        state: dict[str, Any] = initial_state or {"position": 0, "ended": [], "empty": [], "sources": {}}
        self.position: int = state["position"]
        self.ended, self.empty, self.over = set(state["ended"]), set(state["empty"]), "over" in state
        self.begun = {int(i): _Source(*self.pipelines[int(i)], each) for i, each in state["sources"].items()}
        self.last: _Source | None = None
        self.turned: set[int] = set()
        self.fruitless = 0
        self.there = self.chooser.sources(self.position)
        self._count_left()
        for source in self.begun.values():  # last, because a source that is run again may ask what this node holds
            source.restore()
        self.before = self.turn = self.stall_guard.arrived

    def get_state(self) -> dict[str, Any]:
        self._look()
        sources = {str(i): source.save() for i, source in self.begun.items()}
        ended, empty = sorted(self.ended), sorted(self.empty)
        state = {"position": self.position, "ended": ended, "empty": empty, "sources": sources}
        return state | {"over": 1} if self.over else state

    def _count_left(self) -> None:
        """Find the sources that are still chosen from."""
        out = self.ended | self.empty if self.stop == "all" else self.empty
        there = range(len(self.pipelines)) if self.there is None else self.there
        over = {"first": bool(self.ended), "cycle": self.ended.issuperset(there)}.get(self.stop, False)
        self.left = [] if over else [i for i in there if i not in out]

    def _look(self) -> None:
        """Note if the last item has come through. A source of which nothing comes through is not repeated for ever."""
        if self.by_arrival and self.last is not None and self.stall_guard.arrived > self.before:
            self.last.given = 1

    def next(self) -> Any:
        self._look()
        while not self.over and self._goes_on():
            at = self.chooser.at(self.left, self.position)
            if at not in self.begun:
                self.begun[at] = _Source(*self.pipelines[at])
            source = self.begun[at]
            try:
                item = source.next()
            except StopIteration:
                self._end(at)
            else:
                source.given = int(not self.by_arrival or source.given)
                self.last, self.before = source, self.stall_guard.arrived
                self.position = self.chooser.after(at, self.position)
                return item
        if not self.over:
            self.over, self.position = True, self.chooser.after_end(self.position)
        raise StopIteration

    def _goes_on(self) -> bool:
        """Find the sources to choose from. Return False if there are none."""
        while True:
            if (there := self.chooser.sources(self.position)) is not self.there:
                self.there = there
                self._count_left()
            if self.left or self.stop not in ("all", "cycle") or not self.chooser.go_on():
                return bool(self.left)

    def _end(self, at: int) -> None:
        source = self.begun[at]
        self.ended.add(at)
        if not source.given:  # repeating it would give nothing either
            self.empty.add(at)
        source.next_round()
        if self.last is source:  # what arrives later has not come of its new round
            self.last = None
        self._count_left()
        self.turned.add(at)
        if self.stop == "endless" and self.turned.issuperset(self.left):
            self._turn()

    def _turn(self) -> None:
        """Stop if nothing comes through.

        All sources have begun anew since the last turn, so that two turns hold a whole round of each.
        """
        arrived, self.turn, self.turned = self.stall_guard.arrived - self.turn, self.stall_guard.arrived, set()
        self.fruitless = 0 if arrived else self.fruitless + 1
        rounds = sum(source.round for source in self.begun.values())
        if self.fruitless >= DEALS * self.lane.dealt or self.lane.stalls(
            f"{self.stage_name} rests", rounds, 2 * arrived
        ):
            self.left = []
        if not self.left:
            self.stall_guard.starved_stage = "mix"

    def remaining(self) -> tuple[int, int]:
        counts = [source.node.remaining() for source in self.begun.values() if source.node is not None]
        return sum(held for held, _ in counts), sum(items for _, items in counts)

    def memory(self) -> int:
        return sum(source.node.memory() for source in self.begun.values() if source.node is not None)
