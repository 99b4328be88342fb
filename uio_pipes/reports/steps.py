"""What the steps of an epoch are made of, by plan: nothing has to have been logged, and nothing is decoded."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from uio_pipes.base.errors import StateError
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.reports.replay import loader_of
from uio_pipes.run.planning import plan_keys
from uio_pipes.run.state import lanes_in, read_lane, read_meta


class Step(NamedTuple):
    """A batch: number ``step`` of its rank, number ``k`` of its lane. ``before``: the state was saved after it, whether
    it was delivered or passed over by ``loader.skip``."""

    epoch: int
    step: int
    rank: int
    lane: int
    k: int
    keys: list[str]
    before: bool


class Seen(NamedTuple):
    """Where an utterance is in an epoch. ``row``: of the plan's batch, in which the longest is not yet first."""

    key: str
    epoch: int
    step: int
    rank: int
    lane: int
    row: int
    before: bool


def steps(graph: Graph, state: Mapping[str, Any], world_size: int) -> Iterator[Step]:
    """Yield the batches of the state's epoch in the order of their steps, rank by rank.

    Steps are counted as if as many ranks had run the epoch from its beginning.

    Raises: StateError if the state is of a stream in steps, or of another graph or list; PipelineError if the graph
        cannot be planned, or has fewer lanes than ranks.
    """
    meta = read_meta(state)
    if meta.stream is not None:
        raise StateError(
            "the state was saved with steps_per_epoch, whose streams have no steps of an epoch: uio replay makes "
            "single batches of them again"
        )
    loader_of(graph, state, world_size - 1, world_size)  # checks that the state is of this run
    there = {lane: read_lane(state, lane) for lane in lanes_in(state, meta.lanes)}
    planned = list(plan_keys(graph, meta.lanes, meta.seed, meta.epoch))
    ranks = [_in_order(planned, lanes_of(meta.lanes, rank, world_size)) for rank in range(world_size)]
    for step in range(max(map(len, ranks))):
        for rank, batches in enumerate(ranks):
            if step < len(batches):
                k, lane = batches[step]
                saved = there.get(lane)
                before = saved is not None and saved.epoch == meta.epoch and (saved.pass_ > 0 or k < saved.k)
                yield Step(meta.epoch, step, rank, lane, k, planned[lane][k], before)


def seen(graph: Graph, state: Mapping[str, Any], world_size: int, keys: Collection[str]) -> Iterator[Seen]:
    """Yield where utterances were or will be delivered. Raises: as :func:`steps`."""
    wanted = frozenset(keys)
    for step in steps(graph, state, world_size):
        if not wanted.isdisjoint(step.keys):
            for row, key in enumerate(step.keys):
                if key in wanted:
                    yield Seen(key, step.epoch, step.step, step.rank, step.lane, row, step.before)


def _in_order(planned: list[list[list[str]]], lanes: range) -> list[tuple[int, int]]:
    """Return (k, lane) of the batches of a rank in their order."""
    own = ([(k, lane) for k, keys in enumerate(planned[lane]) if keys] for lane in lanes)
    return list(heapq.merge(*own))
