"""What the steps of an epoch are made of, by plan."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from itertools import chain, dropwhile, takewhile
from typing import Any, NamedTuple

import torch

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.urls import counted
from uio_pipes.core.graph import Graph
from uio_pipes.run.lane_runner import RunSpec
from uio_pipes.run.progress import EpochProgress, Stretch, place_of, stretch_at
from uio_pipes.run.replay import keys_in, plan_keys, spec_at
from uio_pipes.run.state import LaneState, read_meta


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
    """A batch: number ``step`` of its rank, number ``k`` of its lane's pass. ``before``: the state was saved after it,
    whether it was delivered or passed over by ``loader.skip``. ``over``: it is to be passed over."""

    epoch: int
    step: int
    rank: int
    lane: int
    pass_: int
    k: int
    keys: list[str]
    before: bool
    over: bool


class UtterancePlace(NamedTuple):
    """Where an utterance is in an epoch. ``row``: of the plan's batch, in which the longest is not yet first."""

    key: str
    epoch: int
    step: int
    rank: int
    lane: int
    row: int
    before: bool
    over: bool


def steps(
    graph: Graph, state: Mapping[str, Any], world_size: int | None = None, first: int = 0, last: int | None = None
) -> Iterator[PlannedStep]:
    """Yield the batches of the state's epoch in the order of their steps, rank by rank, from ``first`` to ``last``.

    ``world_size``: the ranks that go on from the state; None, those that saved it. Steps after the state are planned
    from there on, earlier ones from the beginning of the epoch.

    Raises: StateError if the state is of another graph or list, or does not know where the steps came from;
        PipelineError if the graph cannot be planned, has fewer lanes than ranks, or there is no last step.
    """
    meta = read_meta(state)
    if last is None and (meta.stream is not None or graph._endless):
        raise PipelineError("the stream has no last step: say up to which one (--to)")
    world_size = world_size or (meta.stretches or [[0, 1]])[-1][1]
    spec = spec_at(graph, state, world_size)
    known = [EpochProgress.loaded_from(meta, state, rank, world_size) for rank in range(world_size)]
    found = chain.from_iterable(_of_stretches(spec, known, first))
    yield from takewhile(lambda s: last is None or s.step <= last, dropwhile(lambda s: s.step < first, found))


def _of_stretches(spec: RunSpec, known: list[EpochProgress], first: int) -> Iterator[Iterator[PlannedStep]]:
    """Yield the steps of each stretch, from the one on that step ``first`` is in. ``known``: the ranks' positions."""
    stretches = known[0].stretches
    number, now = stretch_at(stretches, first), []
    if all(one.leads_to(first) for one in known):
        now = [(one.step, {lane: position.state for lane, position in one.positions.items()}) for one in known]
    elif number is None:
        rule = f"step {first} of epoch {known[0].epoch} is before step {stretches[0].first}, from which the state knows"
        raise StateError(f"{rule} where batches came from: load an earlier state")
    number = len(stretches) - 1 if number is None or now else number
    for n, stretch in enumerate(stretches[number:], number):
        begin = now or [(stretch.first, _begin(known[0], n, rank)) for rank in range(stretch.ranks)]
        end = stretches[n + 1] if n + 1 < len(stretches) else None
        ranks = [_of_rank(spec, known, rank, step, states, end) for rank, (step, states) in enumerate(begin)]
        yield heapq.merge(*ranks, key=lambda step: (step.step, step.rank))


def _begin(known: EpochProgress, number: int, rank: int) -> dict[int, LaneState]:
    if (states := known.begin_of(number, rank)) is None:
        raise StateError("the state lacks lanes of other ranks: join the states of all ranks by `uio state merge`")
    return states


def _of_rank(
    spec: RunSpec,
    known: list[EpochProgress],
    rank: int,
    step: int,
    states: Mapping[int, LaneState],
    end: Stretch | None,
) -> Iterator[PlannedStep]:
    """Yield the steps of a rank from ``step`` on, whose lanes stand at ``states``, until the next stretch begins."""
    own = known[rank] if end is None else None
    left = 0 if own is None else own.skip
    resting = set[int]()  # lanes whose last whole pass gave nothing
    for pass_, k, lane, keys in heapq.merge(*plan_keys(spec, states)):
        if end is not None and (step >= end.first or (pass_, k) >= (end.place(lane) or (0, 0))):
            return
        if keys is None:
            resting.add(lane)
            if len(resting) == len(states):
                return
            continue
        resting -= {lane} if keys else set()
        now = known[0].lane(lane) or states[lane]
        if [pass_, k] in now.lost:  # another batch took its place
            continue
        before = (pass_, k) < place_of(now)
        passes = not before and left > 0
        over = passes or (not before and own is not None and any(step in one for one in own.over))
        if keys:
            yield PlannedStep(known[0].epoch, step, rank, lane, pass_, k, keys, before, over)
        left -= passes
        # In a stream another batch takes the place of one that is passed over, or of which nothing is left.
        step += not (spec.repeat and (passes or not (keys or over)))


def _first(state: Mapping[str, Any]) -> int:
    """Return the first step of the epoch that the state knows of."""
    meta = read_meta(state)
    known = [step for step, _ in meta.stretches or []]
    return known[0] if known else 0 if meta.data_epoch == meta.epoch else meta.step or 0


def numbers(graph: Graph, state: Mapping[str, Any], world_size: int | None, last: int | None) -> str:
    """Say which steps the state's epoch has up to ``last``. Raises: as :func:`steps`."""
    there = [step.step for step in steps(graph, state, world_size, _first(state), last)]
    epoch = read_meta(state).epoch
    return f"epoch {epoch} has the steps {there[0]} to {there[-1]}" if there else f"epoch {epoch} has no step"


def seen(
    graph: Graph, state: Mapping[str, Any], world_size: int | None, keys: Collection[str], last: int | None = None
) -> Iterator[UtterancePlace]:
    """Yield where utterances were or will be delivered, up to step ``last``. Raises: as :func:`steps`."""
    wanted, first = frozenset(keys), _first(state)
    for step in steps(graph, state, world_size, first, last):
        if not wanted.isdisjoint(step.keys):
            for row, key in enumerate(step.keys):
                if key in wanted:
                    yield UtterancePlace(key, step.epoch, step.step, step.rank, step.lane, row, step.before, step.over)
