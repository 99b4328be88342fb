"""What changes during a run: weights of a mix, and arguments that follow the step, as ``uio.by_step`` makes them.

A change comes with a batch, but nodes work ahead of it, and a buffer that is restored runs them once more. So what
counts is the place: each node numbers what it takes, and for each change the lane notes the number that the node had
reached when the batch was begun. These marks are part of the lane's state, and whoever runs the node again, for a
resume or a replay, gets the same value at the same number.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from inspect import BoundArguments
from itertools import pairwise
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

from uio_pipes.base.checks import is_whole, refuse, require
from uio_pipes.base.hashing import module_name
from uio_pipes.base.urls import redact

Mark = tuple[int, int]  # the pass, and the number of the item from which a value holds


class Numbering(Protocol):
    """A node that numbers its items."""

    @property
    def position(self) -> int: ...


class Setting:
    """A schedule in one lane. ``marks``: where each value but the first begins; ``node``: the one that goes by it."""

    def __init__(self, schedule: Schedule, pass_: int = 0) -> None:
        self.values, self.steps, self.pass_ = schedule.values, schedule.steps, pass_
        self.marks: list[Mark] = []
        self.node: Numbering | None = None

    def at(self, position: int) -> Any:
        """Return the value for the item of this number."""
        marks = self.marks
        return self.values[bisect_right(marks, (self.pass_, position)) if marks else 0]

    def turn(self, count: int) -> None:
        """Start those of the first ``count`` values that have not started yet."""
        at = (self.pass_, 0 if self.node is None else self.node.position)
        self.marks += [at] * (count - 1 - len(self.marks))


class Settings:
    """All settings of a lane.

    Args:
        saved: what :meth:`saved` returned.
        lane, lanes, ranks: the number of the lane, of all lanes, and of the ranks for which steps are counted.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None, lane: int = 0, lanes: int = 1, ranks: int = 1) -> None:
        saved = saved or {}
        self._lane, self._lanes, self._ranks = lane, lanes, ranks
        self._before: int = saved.get("before", 0)  # batches in earlier passes
        self._from: int = saved.get("from", 0)  # batch with which the last changes come, if they have no marks
        self._marks: dict[str, list[Mark]] = {
            name: [(pass_, position) for pass_, position in marks] for name, marks in saved.get("marks", {}).items()
        }
        self._made: int | None = None  # batches before the one being made; None while nodes are restored
        self.position = 0  # number of the batch being made, in its pass
        self._live: dict[str, Setting] = {}
        known = sum(map(len, self._marks.values())) - len(self.hung)  # which the trainer has not heard of, perhaps
        self._reported = (self._before, known)

    def follow(self, name: str, schedule: Schedule, pass_: int = 0) -> Setting:
        """Return the setting for a new node."""
        setting, values = Setting(schedule, pass_), schedule.values
        if len(values) > 1:
            setting.marks = self._marks.setdefault(name, [])
            self._live[name] = setting
            if self._made is not None:  # it begins with what holds by now
                setting.turn(self._due(setting))
        return setting

    def begin(self, k: int) -> None:
        """Note that batch ``k`` of the pass begins, and apply the changes due with it."""
        self.position, self._made = k, self._before + k
        for setting in self._live.values():
            setting.turn(self._due(setting))

    def next_pass(self, k: int) -> None:
        """Note that a pass has ended after ``k`` batches."""
        self._before += k
        self.position = 0

    def has_mark(self, name: str, mark: Mark) -> bool:
        """Return whether a change was marked here that is in no schedule."""
        return mark in self._marks.get(name, ())

    def mark(self, name: str, mark: Mark) -> None:
        """Mark a change here."""
        self._marks.setdefault(name, []).append(mark)

    @property
    def hung(self) -> frozenset[str]:
        """The names of items that have hung (:mod:`uio_pipes.core.pulse`). Their marks are those of other changes."""
        return frozenset(name for name in self._marks if name.startswith("hung "))

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
        """Return the part of a state; nothing in a first pass without changes."""
        marks = {name: list(map(list, marks)) for name, marks in self._marks.items() if marks}
        if not marks and not self._before:
            return {}
        due = {"from": self._from} if self._from > (self._made or 0) else {}
        return {"before": self._before, "marks": marks, **due}

    def news(self) -> dict[str, Any] | None:
        """Return the part of a state that has changed since the last call."""
        version = (self._before, sum(map(len, self._marks.values())))
        if version == self._reported:
            return None
        self._reported = version
        return self.saved()


_LONG = 300  # characters; longer texts are shown by their beginning


def show(value: object, *, stable: bool = False) -> str:
    """Return an argument as a short text, functions as ``name @ file:line`` (``stable``: as ``module.name``)."""
    if isinstance(value, partial):
        inner = [show(v, stable=stable) for v in value.args]
        inner += [f"{k}={show(v, stable=stable)}" for k, v in value.keywords.items()]
        return f"partial({', '.join([show(value.func, stable=stable), *inner])})"
    if inspect.isfunction(value) or inspect.ismethod(value):
        code = value.__code__
        if stable:
            return _place(value)
        return f"{value.__qualname__} @ {code.co_filename}:{code.co_firstlineno}"
    if inspect.isclass(value):
        return _place(value) if stable else value.__qualname__
    if isinstance(value, (list, tuple)):
        if len(value) == 1 and not stable:
            return show(value[0])
        inner = [show(v, stable=stable) for v in (value if stable else value[:4])]
        inner += [f"… {len(value)} in all"] if len(value) > len(inner) else []
        return f"[{', '.join(inner)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {show(v, stable=stable)}" for k, v in value.items()) + "}"
    if hasattr(value, "shown"):
        return str(value.shown(stable=stable))
    if isinstance(value, str) and len(value) > _LONG and not stable:
        return f"{redact(repr(value[:60]))}…"
    text = redact(repr(value))
    if type(value).__repr__ is object.__repr__:  # its address would change from run to run
        text = _place(type(value))
    return text


def _place(value: Any) -> str:
    """Return ``module.name``; names of this package without the module within it, which may change between versions."""
    module = "uio_pipes" if value.__module__.startswith("uio_pipes.") else module_name(value.__module__)
    return f"{module}.{value.__qualname__}"


def wants(function: Callable[..., Any], parameter: str) -> bool:
    """True if ``function`` has a parameter of this name."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


T = TypeVar("T")


@dataclass(frozen=True)
class Schedule:
    """Values in their order. ``steps``, rising from 0: from which each holds, as ``by_step`` says; None: each holds
    from a place that the state of a lane knows, as ``loader.reweight`` made them."""

    values: tuple[Any, ...]
    steps: tuple[int, ...] | None

    @classmethod
    def of(cls, value: Any) -> Schedule:
        """Return the schedule of a value that may follow the step itself, or have parts that do."""
        if isinstance(value, cls) and value.steps is None:
            return value
        steps = tuple(sorted(steps_in(value)))
        return cls(tuple(at_step(value, step) for step in steps), steps)

    @property
    def changes(self) -> bool:
        """True if there is more than one value."""
        return len(self.values) > 1

    def __repr__(self) -> str:
        return self.shown(stable=False)

    def shown(self, *, stable: bool) -> str:
        """Return the schedule as it is written in code."""
        pairs = zip(self.steps or (), self.values, strict=self.steps is not None)
        return "by_step({" + ", ".join(f"{step}: {show(value, stable=stable)}" for step, value in pairs) + "})"


def by_step(points: Mapping[int, T]) -> T:
    """A value that follows the step, for arguments of ``filter`` and ``dynamic_batch`` and for weights of ``mix``.

    As in ``.filter(max_frames=uio.by_step({0: 400, 10_000: 1_600}))``: 400 until step 9,999, then 1,600. What is read
    for a batch goes by the step of that batch; utterances that wait in buffers were chosen by the values of earlier
    steps. Steps are those of the trainer in the epoch, or in the whole stream with ``Loader(steps_per_epoch=…)``, on
    the number of ranks that it began with: on other ranks a change comes with the same batch as it would have there.

    Args:
        points: the steps from which values hold, from 0 on, with these values.

    Raises:
        PipelineError: ``points`` is empty, does not begin with 0, or a step is not a whole number.
    """
    ok = isinstance(points, Mapping) and all(is_whole(step) and step >= 0 for step in points) and 0 in points
    require(ok, "by_step", "give a value for each step at which it changes, from 0 on", points, "as in {0: 1, 9: 2}")
    steps = tuple(sorted(points))
    return cast(T, Schedule(tuple(points[step] for step in steps), steps))


def each_value(value: Any) -> tuple[Any, ...]:
    """Return the values that ``value`` has at some step."""
    return value.values if isinstance(value, Schedule) else (value,)


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` with ``change`` applied to it, or to each of its values."""
    if isinstance(value, Schedule):
        return Schedule(tuple(map(change, value.values)), value.steps)
    return change(value)


def steps_in(value: Any) -> set[int]:
    """Return the steps at which something in ``value`` changes, 0 included."""
    if isinstance(value, Schedule):
        return set(value.steps or ()).union(*map(steps_in, value.values))
    inner: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    )
    return {0}.union(*map(steps_in, inner))


def at_step(value: Any, step: int) -> Any:
    """Return ``value`` as it is at a step."""
    if isinstance(value, Schedule) and value.steps is not None:
        return at_step(value.values[bisect_right(value.steps, step) - 1], step)
    if isinstance(value, dict):
        return {name: at_step(inner, step) for name, inner in value.items()}
    return type(value)(at_step(inner, step) for inner in value) if isinstance(value, (list, tuple)) else value


def scheduled(stage: Any, given: BoundArguments) -> Any:
    """Return ``stage`` with the arguments ``given``; where these follow the step, with a schedule of its ``versions``.

    Raises: PipelineError if it cannot follow the step, or an argument breaks a rule at some step.
    """
    following = [name for name, value in given.arguments.items() if isinstance(value, Schedule)]
    if not following:
        return stage(*given.args, **given.kwargs)
    follows: frozenset[str] = getattr(stage, "follows_steps", frozenset())
    for name in following:
        known = ", ".join(sorted(follows)) or "those of filter and dynamic_batch"
        refuse(name not in follows, stage.name, f"{name} cannot follow the step", f"these can: {known}")
    arguments = dict(given.arguments)
    steps = sorted(steps_in(arguments))
    every = [(step, stage(**at_step(arguments, step))) for step in steps]
    versions = [one for before, one in pairwise([(0, None), *every]) if one[1] != before[1]]
    if len(versions) == 1:
        return versions[0][1]
    schedule = Schedule(tuple(one for _, one in versions), tuple(step for step, _ in versions))
    made = copy(schedule.values[0])
    for name in (f.name for f in fields(made)):
        argument = changed(schedule, attrgetter(name))
        if any(value != argument.values[0] for value in argument.values):
            object.__setattr__(made, name, argument)
    object.__setattr__(made, "versions", schedule)
    return made
