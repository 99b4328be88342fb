"""What the steps of an epoch are made of, by plan: nothing has to have been logged, and nothing is decoded."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import dropwhile, takewhile
from typing import Any, NamedTuple

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.core.graph import Graph
from uio_pipes.reports.replay import loader_of
from uio_pipes.run.lanes import spec_of
from uio_pipes.run.planning import plan_keys
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.state import LaneState, read_meta


class Step(NamedTuple):
    """A batch: number ``step`` of its rank, number ``k`` of its lane. ``before``: the state was saved after it, whether
    it was delivered or passed over by ``loader.skip``. ``over``: it is to be passed over."""

    epoch: int
    step: int
    rank: int
    lane: int
    k: int
    keys: list[str]
    before: bool
    over: bool


class Seen(NamedTuple):
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
    graph: Graph, state: Mapping[str, Any], world_size: int, first: int = 0, last: int | None = None
) -> Iterator[Step]:
    """Yield the batches of the state's epoch in the order of their steps, rank by rank, from ``first`` to ``last``.

    Steps are counted as if as many ranks had run the epoch from its beginning. They are planned from the state on if
    they come after it, and else from the beginning of the epoch.

    Raises: StateError if the state is of another graph or list, or of a stream that began before the steps;
        PipelineError if the graph cannot be planned, has fewer lanes than ranks, or there is no last step.
    """
    meta = read_meta(state)
    if last is None and (meta.stream is not None or graph._endless):
        raise PipelineError("the stream has no last step: say up to which one (--to)")
    loader = loader_of(graph, state, world_size - 1, world_size)  # checks that the state is of this run
    spec = spec_of(loader._options, loader._progress, {})
    known = [EpochProgress.loaded_from(meta, state, rank, world_size) for rank in range(world_size)]
    from_state = all(one.leads_to(first, loader._options) for one in known)
    if not from_state and meta.data_epoch != meta.epoch:
        raise StateError(f"step {first} of epoch {meta.epoch} is before the state, of a stream: load an earlier state")
    ranks = []
    for rank, one in enumerate(known):
        states = {lane: position.state for lane, position in one.positions.items()}
        fresh = LaneState(meta.data_epoch)
        begun = {lane: replace(fresh, settings=fresh.settings_known(state)) for lane, state in states.items()}
        begin = states if from_state else begun
        number = one.number(loader._options.in_steps) if from_state else 0
        at = one.number(loader._options.in_steps)
        over = [*one.over, range(at, at + one.skip)]
        ranks.append(_of_rank(meta.epoch, rank, number, states, over, plan_keys(spec, begin)))
    every = heapq.merge(*ranks, key=lambda step: (step.step, step.rank))
    yield from takewhile(lambda s: last is None or s.step <= last, dropwhile(lambda s: s.step < first, every))


def _of_rank(
    epoch: int,
    rank: int,
    number: int,
    states: Mapping[int, LaneState],
    over: list[range],
    planned: list[Iterator[Any]],
) -> Iterator[Step]:
    for step, (pass_, k, lane, keys) in enumerate(heapq.merge(*planned), number):
        if keys:
            before = (pass_, k) < (states[lane].pass_, states[lane].k)
            yield Step(epoch, step, rank, lane, k, keys, before, not before and any(step in one for one in over))


def seen(
    graph: Graph, state: Mapping[str, Any], world_size: int, keys: Collection[str], last: int | None = None
) -> Iterator[Seen]:
    """Yield where utterances were or will be delivered, up to step ``last``. Raises: as :func:`steps`."""
    wanted, meta = frozenset(keys), read_meta(state)
    first = 0 if meta.data_epoch == meta.epoch else meta.step or 0  # of an older stream, only what comes is known
    for step in steps(graph, state, world_size, first, last):
        if not wanted.isdisjoint(step.keys):
            for row, key in enumerate(step.keys):
                if key in wanted:
                    yield Seen(key, step.epoch, step.step, step.rank, step.lane, row, step.before, step.over)
