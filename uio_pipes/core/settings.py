"""Settings that change during a run: weights of a mix, and parameters that follow the step.

A change comes with a batch, but nodes work ahead of it, and a buffer that is restored runs them once more. So what
counts is the place: each node numbers what it takes, and for each change the lane notes the number that the node had
reached when the batch was begun. These marks are part of the lane's state, and whoever runs the node again, for a
resume or a replay, gets the same value at the same number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from uio_pipes.base.errors import StateError
from uio_pipes.core.state_kinds import DAMAGED

Mark = tuple[int, int]  # the pass, and the number of the item from which a value holds


class Numbering(Protocol):
    """A node that numbers its items."""

    @property
    def position(self) -> int: ...


class Setting:
    """The values of one setting in one lane, in their order.

    Attributes:
        steps: those from which the values hold; None for values that come by ``loader.reweight``.
        marks: where each value but the first begins.
        node: the node that goes by it.
    """

    def __init__(self, values: Sequence[Any], steps: Sequence[int] | None = None, pass_: int = 0) -> None:
        self.values, self.steps, self.pass_ = values, steps, pass_
        self.marks: list[Mark] = []
        self.node: Numbering | None = None

    def at(self, position: int) -> Any:
        """Return the value for the item of this number."""
        marks = self.marks
        return self.values[bisect_right(marks, (self.pass_, position)) if marks else 0]

    def turn(self, count: int) -> None:
        """Let the first ``count`` values have begun: those that have not, begin now."""
        at = (self.pass_, 0 if self.node is None else self.node.position)
        self.marks += [at] * (count - 1 - len(self.marks))


class Settings:
    """All settings of a lane.

    Args:
        changes: values by the name of the setting that ``loader.reweight`` has given them, the first ones included.
        saved: what :meth:`saved` returned.
        lane, lanes, ranks: the number of the lane, of all lanes, and of the ranks for which steps are counted.
    """

    def __init__(
        self,
        changes: Mapping[str, Sequence[Any]] | None = None,
        saved: Mapping[str, Any] | None = None,
        lane: int = 0,
        lanes: int = 1,
        ranks: int = 1,
    ) -> None:
        saved = saved or {}
        self.changes = changes or {}
        self._lane, self._lanes, self._ranks = lane, lanes, ranks
        self._before: int = saved.get("before", 0)  # batches in earlier passes
        self._from: int = saved.get("from", 0)  # batch with which the last changes come, if they have no marks
        self._marks: dict[str, list[Mark]] = {
            name: [(pass_, position) for pass_, position in marks] for name, marks in saved.get("marks", {}).items()
        }
        self._made: int | None = None  # batches before the one being made; None while nodes are restored
        self._live: dict[str, Setting] = {}
        self._reported = (self._before, sum(map(len, self._marks.values())))

    def follow(self, name: str, values: Sequence[Any], steps: Sequence[int] | None = None, pass_: int = 0) -> Setting:
        """Return the setting for a node that is to be made. Raises: StateError if the marks are of other values."""
        setting = Setting(values, steps, pass_)
        if len(values) > 1:
            setting.marks = self._marks.setdefault(name, [])
            if len(setting.marks) >= len(values):
                rule = f"the state has {len(setting.marks)} changes, but there can be {len(values) - 1}"
                raise StateError(f"{name}: {rule}; {DAMAGED}")
            self._live[name] = setting
            if self._made is not None:  # it begins with what holds by now
                setting.turn(self._due(setting))
        return setting

    def begin(self, k: int) -> None:
        """Note that batch ``k`` of the pass is begun: what changes with it changes now."""
        self._made = self._before + k
        for setting in self._live.values():
            setting.turn(self._due(setting))

    def again(self, k: int) -> None:
        """Note that a pass has ended after ``k`` batches."""
        self._before += k

    def _due(self, setting: Setting) -> int:
        """Return how many of the values have begun."""
        assert self._made is not None
        if setting.steps is not None:
            return bisect_right(setting.steps, self._step)
        return len(setting.values) if self._made >= self._from else len(setting.marks) + 1

    @property
    def _step(self) -> int:
        """The step of the batch being made, if lanes take turns: those of its rank are ``lane % ranks`` and so on."""
        assert self._made is not None
        own = len(range(self._lane % self._ranks, self._lanes, self._ranks))
        return self._made * own + self._lane // self._ranks

    def saved(self) -> dict[str, Any]:
        """Return what a state keeps; nothing in a first pass in which nothing has changed."""
        marks = {name: list(map(list, marks)) for name, marks in self._marks.items() if marks}
        if not marks and not self._before:
            return {}
        due = {"from": self._from} if self._from > (self._made or 0) else {}
        return {"before": self._before, "marks": marks, **due}

    def news(self) -> dict[str, Any] | None:
        """Return what a state keeps if it has changed since the last call."""
        version = (self._before, sum(map(len, self._marks.values())))
        if version == self._reported:
            return None
        self._reported = version
        return self.saved()


def fits(saved: object) -> bool:
    """Return whether this can have been returned by :meth:`Settings.saved`."""

    def is_count(value: object) -> bool:  # passes have 32 bits for each level of rounds
        return type(value) is int and value >= 0

    def are_marks(marks: Any) -> bool:
        pairs = isinstance(marks, list) and all(isinstance(m, list) and len(m) == 2 for m in marks)
        return pairs and all(is_count(n) for m in marks for n in m) and sorted(marks) == marks

    if not isinstance(saved, dict) or not {"before", "marks"} <= saved.keys() <= {"before", "marks", "from"}:
        return False
    counts = is_count(saved["before"]) and is_count(saved.get("from", 0))
    return counts and isinstance(saved["marks"], dict) and all(map(are_marks, saved["marks"].values()))
