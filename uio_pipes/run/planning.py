"""What an epoch's batches will be, without making one: the graph runs by plan, and nothing is decoded.

The graph is run as it is, up to the batches: sources, filters, shuffle, sort and batching see the same utterances with
the same planned lengths as in training, so that the batches are the same. What would make tensors of them is left out.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.errors import DataError, PipelineError, UioError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger, Policy
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import PerUtterance, Stage
from uio_pipes.io.local import Ref
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.sources.from_iterable import FromIterable
from uio_pipes.sources.load_from_raw import LoadFromRaw
from uio_pipes.sources.load_records import LoadRecords
from uio_pipes.sources.open_files import OpenFiles
from uio_pipes.stages.flat_map import FlatMap
from uio_pipes.stages.map import Map
from uio_pipes.stages.mix import _Several
from uio_pipes.stages.pad import Pad
from uio_pipes.stages.rates import mixed_rates, odd_rates, rate_of
from uio_pipes.stages.through import Through

__all__ = ["LanePlan", "NotKnown", "count_batches", "plan_lanes"]

AUDIO = frozenset(["wav", "feat", "*"])
LENIENT = Policy(max_failures=sys.maxsize, max_consecutive_failures=sys.maxsize)


class NotKnown(UioError):
    """Only running tells how many batches there are; the message says why, and what would tell."""


@dataclass
class LanePlan:
    """The batches of one lane, by number k. Lengths are planned ones, in frames.

    Attributes:
        counts: utterances in each batch; longest, frames: length of the longest, sum of lengths.
        lengths: of all utterances, batch after batch.
        skipped, failures, reports: what was left out on the way, as in the statistics of a loader.
        boundaries: of the buckets, where ``bucket_batch`` found them itself.
        rates: utterances by sample rate in Hz, where headers tell it; 0: a ``duration`` told the length instead.
    """

    lane: int
    counts: array[int] = field(default_factory=lambda: array("l"))
    longest: array[int] = field(default_factory=lambda: array("l"))
    frames: array[int] = field(default_factory=lambda: array("l"))
    lengths: array[int] = field(default_factory=lambda: array("l"))
    skipped: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    reports: list[str] = field(default_factory=list)
    boundaries: list[int] | None = None
    rates: Counter[int] = field(default_factory=Counter)

    def add(self, lengths: list[int]) -> None:
        """One more batch."""
        self.counts.append(len(lengths))
        self.longest.append(max(lengths, default=0))
        self.frames.append(sum(lengths))
        self.lengths.extend(lengths)


def plan_lanes(
    pipeline: Pipeline, lanes: int, seed: int, epoch: int, only: Iterable[int] | None = None, pass_: int = 0
) -> Iterator[LanePlan]:
    """The batches of each lane (or of ``only`` these) in ``epoch``. Headers are read where no index tells a length.

    Raises: PipelineError if the graph has no end, or a node of the user's stands behind the batches.
    """
    if pipeline._endless:
        raise PipelineError("the pipeline has no end (repeat(), or a mix with stop='endless'): add .take(…) to plan it")
    if not pipeline._skims:
        raise PipelineError("what a node given to .through(…) behind the batches does cannot be planned: leave it out")
    graph, tables = _by_plan(pipeline, strict=False), dict[Hashable, Any]()
    first: Node | None = None
    pads = any(isinstance(stage, Pad) for stage in pipeline.stages)
    for index in range(lanes) if only is None else only:
        lane = _lane(index, lanes, seed, epoch, pass_, tables)
        plan = LanePlan(index)
        node = graph.build(lane)
        first = first or node  # keeps the shuffled order, which lanes share
        for item in _items(node):
            plan.add(_lengths(item, lane.ledger, plan.rates, pads))
        plan.skipped, plan.failures, plan.reports = lane.ledger.skipped, lane.ledger.failures, lane.ledger.reports
        plan.boundaries = _boundaries(node)
        yield plan


def count_batches(pipeline: Pipeline, lanes: int, seed: int, epoch: int, calls: bool = True) -> list[int]:
    """How many batches each lane gives in ``epoch`` if none fails; nothing but lists and indexes is read.

    ``calls``: whether the user's functions on utterances may be called for it.

    Raises: NotKnown.
    """
    if pipeline._endless:
        raise NotKnown("the pipeline has no end")
    if not pipeline._skims:
        raise NotKnown("a node given to .through(…) stands behind the batches")
    graph, tables = _by_plan(pipeline, strict=True, calls=calls), dict[Hashable, Any]()
    nodes = [graph.build(_lane(index, lanes, seed, epoch, 0, tables)) for index in range(lanes)]
    return [sum(1 for item in _items(node) if not isinstance(item, list) or item) for node in nodes]


def _boundaries(node: Node | None) -> list[int] | None:
    while node is not None:
        found: list[int] | None = getattr(node, "boundaries", None)
        if found is not None:
            return list(found)
        node = getattr(node, "source", None)
    return None


def _lane(index: int, lanes: int, seed: int, epoch: int, pass_: int, tables: dict[Hashable, Any]) -> Lane:
    return Lane(Ledger(LENIENT, skimming=True), index, lanes, seed, epoch, pass_, tables=tables)


def _items(node: Node) -> Iterator[Any]:
    with one_thread():
        node.reset(None)
        while True:
            try:
                item = node.next()
            except StopIteration:
                return
            yield item


def _lengths(item: Any, ledger: Ledger, rates: Counter[int], pads: bool) -> list[int]:
    """Planned lengths of the utterances in a batch; those whose header is bad fail, as they would when it is made."""
    planned: list[tuple[int, int, Any]] = []
    for sample in item if isinstance(item, list) else [item]:
        try:
            plan = sample.planned() if isinstance(sample, Sample) else None
        except DataError as error:
            ledger.fail(error, "realize")
        else:
            rate = 0 if plan is None else _rate(plan, sample)
            rates.update([rate] if rate or _timed(plan) else [])
            planned.append((plan.length if plan is not None else 0, rate, sample))
    kept, odd = odd_rates([rate for _, rate, _ in planned]) if pads else (0, frozenset())
    for i in sorted(odd):
        like = next(sample.key for _, rate, sample in planned if rate == kept)
        ledger.handle(planned[i][2].failure(mixed_rates(planned[i][1], kept, like), Pad.name), Pad.name)
    return [length for i, (length, _, _) in enumerate(planned) if i not in odd]


def _timed(plan: Plan | None) -> bool:
    """Whether the length is known as seconds alone."""
    return plan is not None and plan.samples > 0 and plan.sample_rate == TICKS


def _rate(plan: Plan, sample: Sample) -> int:
    """The rate in Hz that the audio will have; 0 where nothing tells."""
    return plan.sample_rate if plan.samples and plan.sample_rate != TICKS else rate_of(sample.fields)


# The graph that is run instead


def _by_plan(pipeline: Pipeline, strict: bool, calls: bool = True) -> Pipeline:
    """``pipeline`` without what makes tensors. ``strict``: nothing but lists and indexes may be read.

    ``calls``: the user's functions may be called.
    """
    stages: list[Stage] = []
    batched = False
    for stage in pipeline.stages:
        batched = batched or "batch" in stage.gives
        if batched and isinstance(stage, (Pad, Map)):
            continue
        if isinstance(stage, _Several):
            stage = replace(stage, pipelines={name: _by_plan(p, strict, calls) for name, p in stage.branches.items()})
        if strict:
            _refuse(stage, Pipeline(tuple(stages))._kind)
            if not calls and callable(getattr(stage, "function", None)):
                raise NotKnown(f"the function given to {stage.name} would be called for it: ask before iterating")
            if isinstance(stage, PerUtterance) and AUDIO & stage.writes:
                stage = _PlanOnly(stage)
        stages.append(stage)
        if strict and isinstance(stage, (LoadFromRaw, LoadRecords)):
            stages.append(_Unopened())
    return Pipeline(tuple(stages))


def _refuse(stage: Stage, kind: str) -> None:
    if isinstance(stage, OpenFiles):
        raise NotKnown("what is in shards and other archives shows only when they are read")
    if isinstance(stage, FromIterable) and not isinstance(stage.items, (list, tuple)):
        raise NotKnown(f"what a {type(stage.items).__name__} yields shows only when it is gone through")
    if isinstance(stage, Through) or (isinstance(stage, FlatMap) and kind != "sample"):
        raise NotKnown(f"what the user's own {stage.name} gives shows only when it runs")


@dataclass(frozen=True)
class _PlanOnly(PerUtterance):
    """A stage whose length rule is asked, and which must not run."""

    inner: PerUtterance

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return self.inner.reads

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return self.inner.writes

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        return self.inner.plan(plan, sample, draws)

    def apply(self, sample: Sample, draws: Draws) -> None:
        raise NotKnown(f"{self.name} has to run on {sample.key!r} before it is known what becomes of it")


@dataclass(frozen=True)
class _Unopened(Stage):
    name: ClassVar[str] = "unopened"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _UnopenedNode(source)


class _UnopenedNode(Node):
    """Lets audio and features pass whose length is known, and others only as something that cannot be read."""

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        for name in ("wav", "feat"):
            value = sample.fields.get(name)
            if isinstance(value, str) or (isinstance(value, Ref) and value.info is None and not value.head):
                sample.fields[name] = _Unread(sample.key)
        return sample


class _Unread(Ref):
    """Audio that is not there to be read: nothing but opening it would tell its length."""

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
