"""Plans the batches of an epoch without making one: nothing is decoded.

The graph runs as it is, up to the batches: sources, filters, shuffle, sort and batching see the same utterances with
the same planned lengths as in training, so that the batches are the same. Stages that make tensors are left out.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.errors import DataError, PipelineError, UioError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import Lane, Mode, Site
from uio_pipes.core.ledger import Ledger, Policy
from uio_pipes.core.lengths import Measure, measure_of
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import PerUtterance, Wrapped
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.io.local import Ref
from uio_pipes.run.lane_runner import items_of
from uio_pipes.stages.batch import Batch
from uio_pipes.stages.rates import mixed_rates, odd_rates, rates_of

AUDIO = frozenset(["wav", "feat", "*"])
LENIENT = Policy(max_failures=sys.maxsize, max_consecutive_failures=sys.maxsize)


class NotKnown(UioError):
    """The number of batches shows only when the pipeline runs; the message says why."""


@dataclass
class LanePlan:
    """The batches of one lane, by their number k. Lengths are planned frames, or what batches go by instead.

    Attributes:
        counts: utterances in each batch. longest: the longest length in each batch. frames: the sum of its lengths.
        padded: the same with padding.
        lengths: of all utterances, batch after batch.
        skipped, failures, reports: what was left out before the batches, as in the statistics of a loader.
        boundaries: of the buckets, if ``bucket_batch`` found them itself.
        rates: utterances by sample rate in Hz, as in their headers; 0 if a ``duration`` gave the length instead.
    """

    lane: int
    counts: array[int] = field(default_factory=lambda: array("l"))
    longest: array[int] = field(default_factory=lambda: array("l"))
    frames: array[int] = field(default_factory=lambda: array("l"))
    padded: array[int] = field(default_factory=lambda: array("l"))
    lengths: array[int] = field(default_factory=lambda: array("l"))
    skipped: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    reports: list[str] = field(default_factory=list)
    boundaries: list[int] | None = None
    rates: Counter[int] = field(default_factory=Counter)

    def add(self, lengths: list[int], padded: int) -> None:
        """Add a batch."""
        self.counts.append(len(lengths))
        self.longest.append(max(lengths, default=0))
        self.frames.append(sum(lengths))
        self.padded.append(padded)
        self.lengths.extend(lengths)


def plan_lanes(
    graph: Graph, lanes: int, seed: int, epoch: int, only: Iterable[int] | None = None, pass_: int = 0
) -> Iterator[LanePlan]:
    """Plan the batches of each lane (or of ``only`` these) in ``epoch``. Headers are read if no index has the lengths.

    Raises: PipelineError if the graph has no end, or a node of the user's stands after the batches.
    """
    _check_plannable(graph)
    planned, tables = _by_plan(graph, strict=False), dict[Hashable, Any]()
    first: Node | None = None
    pads = next((stage.name for stage in graph.stages if stage.one_rate), "")
    batching = next((stage for stage in reversed(graph.stages) if stage.sized_by is not None), Batch())
    size = None if batching.sized_by is None else measure_of(batching.sized_by)
    for index in range(lanes) if only is None else only:
        lane = _lane(index, lanes, seed, epoch, pass_, tables)
        plan = LanePlan(index)
        node = planned.build(lane)
        first = first or node  # keeps the shuffled order, which lanes share
        for item in items_of(node):
            lengths = _lengths(item, lane.ledger, plan.rates, pads, size)
            plan.add(lengths, batching.padded(lengths, item))
        plan.skipped, plan.failures, plan.reports = lane.ledger.skipped, lane.ledger.failures, lane.ledger.reports
        plan.boundaries = _boundaries(node)
        yield plan


def _check_plannable(graph: Graph) -> None:
    if graph._endless:
        raise PipelineError("the pipeline has no end (repeat(), or a mix with stop='endless'): add .take(…) to plan it")
    if not graph._skims:
        raise PipelineError("what a node given to .through(…) after the batches does cannot be planned: leave it out")


def plan_keys(graph: Graph, lanes: int, seed: int, epoch: int) -> Iterator[list[list[str]]]:
    """Plan the keys in the batches of each lane in ``epoch``. What fails only when a batch is made is in them.

    Raises: PipelineError as :func:`plan_lanes`.
    """
    _check_plannable(graph)
    planned, tables = _by_plan(graph, strict=False), dict[Hashable, Any]()
    for index in range(lanes):
        items = items_of(planned.build(_lane(index, lanes, seed, epoch, 0, tables)))
        yield [[str(s["key"]) for s in (item if isinstance(item, list) else [item])] for item in items]


def count_batches(graph: Graph, lanes: int, seed: int, epoch: int, calls: bool = True) -> list[int]:
    """Return how many batches each lane gives in ``epoch`` if none fails. Only lists and indexes are read.

    ``calls``: the user's functions on utterances may be called for it.

    Raises: NotKnown.
    """
    if graph._endless:
        raise NotKnown("the pipeline has no end")
    if not graph._skims:
        raise NotKnown("a node given to .through(…) stands after the batches")
    planned, tables = _by_plan(graph, strict=True, calls=calls), dict[Hashable, Any]()
    nodes = [planned.build(_lane(index, lanes, seed, epoch, 0, tables)) for index in range(lanes)]
    return [sum(1 for item in items_of(node) if not isinstance(item, list) or item) for node in nodes]


def _boundaries(node: Node | None) -> list[int] | None:
    while node is not None:
        found: list[int] | None = getattr(node, "boundaries", None)
        if found is not None:
            return list(found)
        node = getattr(node, "source", None)
    return None


def _lane(index: int, lanes: int, seed: int, epoch: int, pass_: int, tables: dict[Hashable, Any]) -> Lane:
    return Lane(Ledger(LENIENT), index, lanes, seed, epoch, pass_, tables=tables, mode=Mode(skimming=True))


def _lengths(item: Any, ledger: Ledger, rates: Counter[int], pads: str, size: Measure | None) -> list[int]:
    """Return the planned lengths in a batch. Utterances with a bad header fail, as they would when it is made.

    ``pads``: the stage that fails utterances of another sample rate than their batch; ``size``: the length, if not
    planned frames.
    """
    planned: list[tuple[int, int, Any]] = []
    for sample in item if isinstance(item, list) else [item]:
        try:
            plan = sample.planned() if isinstance(sample, Sample) else None
            for of in sample.chain.streams if isinstance(sample, Sample) else ():
                sample.stream(of)  # fails as it would when the batch is made
        except DataError as error:
            ledger.fail(error, "realize")
        else:
            rate = 0 if plan is None else _rate(plan, sample)
            rates.update([rate] if rate or _timed(plan) else [])
            length = size(sample) if size is not None else plan.length if plan is not None else 0
            planned.append((length, rate, sample))
    kept, odd = odd_rates([rate for _, rate, _ in planned]) if pads else (0, frozenset())
    for i in sorted(odd):
        like = next(sample.key for _, rate, sample in planned if rate == kept)
        ledger.handle(planned[i][2].failure(mixed_rates(planned[i][1], kept, like), pads), pads)
    return [length for i, (length, _, _) in enumerate(planned) if i not in odd]


def _timed(plan: Plan | None) -> bool:
    """Return whether the length is only known in seconds."""
    return plan is not None and plan.samples > 0 and plan.sample_rate == TICKS


def _rate(plan: Plan, sample: Sample) -> int:
    """Return the sample rate in Hz that the audio will have, or 0 if it is not known."""
    return plan.sample_rate if plan.samples and plan.sample_rate != TICKS else rates_of(sample.fields)[0]


# The graph that runs instead


def _by_plan(graph: Graph, strict: bool, calls: bool = True) -> Graph:
    """Return ``graph`` without the stages that make tensors.

    ``strict``: only lists and indexes may be read. ``calls``: the user's functions may be called.
    """
    stages: list[Stage] = []
    batched = False
    for stage in graph.stages:
        batched = batched or "batch" in stage.gives
        if batched and stage.on_tensors:
            continue
        stage = stage.with_branches(lambda _, branch: _by_plan(branch, strict, calls))
        if strict:
            if why := stage.hides_count(Graph(tuple(stages))._kind):
                raise NotKnown(why)
            if not calls and callable(getattr(stage, "function", None)):
                raise NotKnown(f"the function given to {stage.name} would be called for it: ask before iterating")
            if isinstance(stage, PerUtterance) and AUDIO & stage.writes:
                stage = _PlanOnly(stage)
        stages.append(stage)
        if strict and stage.refers:
            of = [one.of for one in graph.stages if isinstance(one, PerUtterance) and one.of and AUDIO & one.writes]
            stages.append(_Unopened(("wav", "feat", *of)))
    return Graph(tuple(stages))


@dataclass(frozen=True)
class _PlanOnly(Wrapped):
    """A stage that only plans lengths: its own stage must not run."""

    def apply(self, sample: Sample, draws: Draws) -> None:
        raise NotKnown(f"{self.name} has to run on {sample.key!r} before it is known what becomes of it")


@dataclass(frozen=True)
class _Unopened(Stage):
    name: ClassVar[str] = "unopened"

    names: tuple[str, ...]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _UnopenedNode(source, self.names)


class _UnopenedNode(Node):
    """Replaces audio and features of unknown length by something that cannot be read."""

    def __init__(self, source: Node, names: tuple[str, ...]) -> None:
        super().__init__(source)
        self.names = names

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        for name in self.names:
            value = sample.fields.get(name)
            if isinstance(value, str) or (isinstance(value, Ref) and value.info is None and not value.head):
                sample.fields[name] = _Unread(sample.key)
        return sample


class _Unread(Ref):
    """Stands for audio that must not be opened, though only that would show its length."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        super().__init__(None, 0, 1)  # type: ignore[arg-type]
        self.key = key

    @property
    def info(self) -> Any:
        raise self._error()

    @info.setter
    def info(self, value: Any) -> None: ...

    def read(self) -> bytes:
        raise self._error()

    def read_at(self, start: int, size: int) -> bytes:
        raise self._error()

    def _error(self) -> NotKnown:
        return NotKnown(f"the length of {self.key!r} shows only when its audio is opened (no `duration`, no index)")
