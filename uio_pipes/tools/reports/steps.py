"""What the steps of an epoch are made of, by plan."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import torch

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.urls import counted
from uio_pipes.core.graph import Graph
from uio_pipes.run.lane_runner import RunSpec
from uio_pipes.run.progress import EpochProgress, too_early
from uio_pipes.run.replay import keys_in, plan_keys, spec_at
from uio_pipes.run.state import read_meta


def save(batch: Any, path: str) -> None:
    """Write a batch by ``torch.save``."""
    torch.save(batch, path)


def seen_in(batch: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the keys in a batch, and for each of its other values the name, what it is, and a digest of a tensor."""
    if not isinstance(batch, Mapping):
        return keys_in(batch), []
    return keys_in(batch), [(name, *_value(value)) for name, value in batch.items() if name not in ("keys", "key")]


def _value(value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return repr(value), ""
    if not isinstance(value, torch.Tensor) or value.is_nested:
        return (counted(len(value), "value") if hasattr(value, "__len__") else str(value)), ""
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return kind, blake2b(data, digest_size=8).hexdigest()


class PlannedStep(NamedTuple):
    """A batch: number ``step`` of its rank, number ``k`` of its lane's pass. ``over``: it is to be passed over."""

    epoch: int
    step: int
    rank: int
    lane: int
    pass_: int
    k: int
    keys: list[str]
    over: bool


class UtterancePlace(NamedTuple):
    """Where an utterance is in an epoch. ``row``: of the plan's batch, in which the longest is not yet first."""

    key: str
    epoch: int
    step: int
    rank: int
    lane: int
    row: int
    over: bool


def steps(
    graph: Graph,
    state: Mapping[str, Any],
    world_size: int | None = None,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[PlannedStep]:
    """Yield the batches of the state's epoch in the order of their steps, rank by rank, from ``first`` to ``last``.

    ``world_size``: the ranks that go on from the state; None, those that saved it. ``first``: None, the next one
    after the state.

    Raises: StateError if the state is of another graph or list, or was saved after ``first``; PipelineError if the
        graph cannot be planned, has fewer lanes than ranks, or there is no last step.
    """
    meta = read_meta(state)
    if last is None and (meta.stream is not None or graph._endless):
        raise PipelineError("the stream has no last step: say up to which one (--to)")
    if (earliest := min(n for n in (first, last, meta.step) if n is not None)) < meta.step:
        raise StateError(too_early(earliest, meta.epoch, meta.step))
    world_size = world_size or meta.world_size
    spec = spec_at(graph, state, world_size)
    ranks = [_of_rank(spec, EpochProgress.loaded_from(meta, state, n, world_size), n) for n in range(world_size)]
    for step in heapq.merge(*ranks, key=lambda step: (step.step, step.rank)):
        if last is not None and step.step > last:
            return
        if first is None or step.step >= first:
            yield step


def _of_rank(spec: RunSpec, known: EpochProgress, rank: int) -> Iterator[PlannedStep]:
    """Yield the steps of a rank from where it stands on."""
    step, left = known.step, known.skip
    resting = set[int]()  # lanes whose last whole pass gave nothing
    plans = plan_keys(spec, {lane: position.state for lane, position in known.positions.items()})
    for pass_, k, lane, keys in heapq.merge(*plans):
        if keys is None:
            resting.add(lane)
            if len(resting) == len(plans):
                return
            continue
        resting -= {lane} if keys else set()
        passes = left > 0
        over = passes or any(step in one for one in known.over)
        if keys:
            yield PlannedStep(known.epoch, step, rank, lane, pass_, k, keys, over)
        left -= passes
        # In a stream another batch takes the place of one that is passed over, or of which nothing is left.
        step += not (spec.repeat and (passes or not (keys or over)))


def numbers(graph: Graph, state: Mapping[str, Any], world_size: int | None, last: int | None) -> str:
    """Say which steps come after the state, up to ``last``. Raises: as :func:`steps`."""
    there = [step.step for step in steps(graph, state, world_size, None, last)]
    epoch = read_meta(state).epoch
    return f"epoch {epoch} has " + (f"the steps {there[0]} to {there[-1]}" if there else "no step") + " after the state"


def seen(
    graph: Graph, state: Mapping[str, Any], world_size: int | None, keys: Collection[str], last: int | None = None
) -> Iterator[UtterancePlace]:
    """Yield where utterances will be delivered after the state, up to step ``last``. Raises: as :func:`steps`."""
    wanted = frozenset(keys)
    for step in steps(graph, state, world_size, None, last):
        for row, key in enumerate(step.keys):
            if key in wanted:
                yield UtterancePlace(key, step.epoch, step.step, step.rank, step.lane, row, step.over)
