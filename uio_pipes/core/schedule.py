"""Values that follow the step: what ``uio.by_step`` makes, and how stages get their parameters from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from inspect import BoundArguments
from itertools import pairwise
from typing import Any, TypeVar, cast

from uio_pipes.base.checks import is_whole, require
from uio_pipes.core.describe import show

T = TypeVar("T")


@dataclass(frozen=True)
class BySteps:
    """A value for each range of steps; ``steps``, rising from 0, are those at which the ranges begin."""

    steps: tuple[int, ...]
    values: tuple[Any, ...]

    def at(self, step: int) -> Any:
        return self.values[bisect_right(self.steps, step) - 1]

    def __repr__(self) -> str:
        return self.shown(stable=False)

    def shown(self, *, stable: bool) -> str:
        """Return it as it is written."""
        pairs = zip(self.steps, self.values, strict=True)
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
    require(
        ok, "by_step", "give values by the steps from which they hold, the first one 0", points, "as in {0: 1, 9: 2}"
    )
    steps = tuple(sorted(points))
    return cast(T, BySteps(steps, tuple(points[step] for step in steps)))


def each_value(value: Any) -> tuple[Any, ...]:
    """Return the values that ``value`` has at some step."""
    return value.values if isinstance(value, BySteps) else (value,)


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` with ``change`` applied to it, or to each of its values."""
    if isinstance(value, BySteps):
        return BySteps(value.steps, tuple(map(change, value.values)))
    return change(value)


def steps_in(value: Any) -> set[int]:
    """Return the steps at which something in ``value`` changes, 0 included."""
    if isinstance(value, BySteps):
        return set(value.steps).union(*map(steps_in, value.values))
    inner: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    )
    return {0}.union(*map(steps_in, inner))


def at_step(value: Any, step: int) -> Any:
    """Return ``value`` as it is at a step."""
    if isinstance(value, BySteps):
        return at_step(value.at(step), step)
    if isinstance(value, dict):
        return {name: at_step(inner, step) for name, inner in value.items()}
    return type(value)(at_step(inner, step) for inner in value) if isinstance(value, (list, tuple)) else value


def scheduled(stage: Any, given: BoundArguments) -> Any:
    """Return ``stage`` with the arguments ``given``; where these follow the step, with ``versions`` of itself.

    Raises: PipelineError if it cannot follow the step, or an argument breaks a rule at some step.
    """
    following = [name for name, value in given.arguments.items() if isinstance(value, BySteps)]
    if not following:
        return stage(*given.args, **given.kwargs)
    for name in following:
        known = ", ".join(sorted(stage.follows_steps)) or "those of filter and dynamic_batch"
        ok, rule = name in stage.follows_steps, f"{name} cannot follow the step"
        require(ok, stage.name, rule, given.arguments[name], f"these can: {known}")
    arguments = dict(given.arguments)
    steps = sorted(steps_in(arguments))
    every = [(step, stage(**at_step(arguments, step))) for step in steps]
    versions = [one for before, one in pairwise([(0, None), *every]) if one[1] != before[1]]
    if len(versions) == 1:
        return versions[0][1]
    steps, made = [step for step, _ in versions], copy(versions[0][1])
    for name in (f.name for f in fields(made)):
        values = tuple(getattr(one, name) for _, one in versions)
        if any(value != values[0] for value in values):
            object.__setattr__(made, name, BySteps(tuple(steps), values))
    object.__setattr__(made, "versions", versions)
    return made
