"""Plans the batches of an epoch without decoding anything.

The graph runs as it is, up to the batches: sources, filters, shuffle, sort and batching see the same utterances with
the same planned lengths as in training, so that the batches are the same. Stages that make tensors are left out.
"""

from __future__ import annotations

import gc
import sys
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import TICKS
from uio_pipes.base.errors import DataError, PipelineError, UioError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import MakesBatches, Uncountable, with_branches
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import Lane, Mode, Site
from uio_pipes.core.ledger import MAKING, Failures, Ledger, Tally
from uio_pipes.core.realize import Measure, Pair, measure_of, names_of
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import Settings
from uio_pipes.core.stage import Node, Stage, Trait
from uio_pipes.io.references import Ref
from uio_pipes.run.lane_runner import items_of
from uio_pipes.stages.batches.dynamic import Batch
from uio_pipes.stages.batches.rows import mixed_rates, odd_rates, rates_of
from uio_pipes.stages.reading.loading import Loading

AUDIO = frozenset(["wav", "feat", "*"])
LENIENT = Failures(max_failures=sys.maxsize, max_consecutive_failures=sys.maxsize)


class NotKnown(UioError):
    """The number of batches is known only after the pipeline has run; the message explains why."""


class Sizes:
    """The batches of one lane by one length: the ``longest`` in each batch, the sum, and the same with padding; and
    the ``lengths`` of all utterances, batch after batch."""

    def __init__(self) -> None:
        self.longest, self.total, self.padded, self.lengths = (array("l") for _ in range(4))

    def add(self, lengths: list[int], padded: int | None = None) -> None:
        """Add a batch; ``padded``: if it is not padded to the longest."""
        longest = max(lengths, default=0)
        self.longest.append(longest)
        self.total.append(sum(lengths))
        self.padded.append(longest * len(lengths) if padded is None else padded)
        self.lengths.extend(lengths)


@dataclass
class LanePlan:
    """The batches of one lane, by their number k.

    Attributes:
        units: names of the lengths that batches go by, planned frames or one or two others.
        counts: utterances in each batch. sizes: their lengths, by each of the units.
        longest: key of the utterance with most frames in each batch.
        frames_of: planned frames of all utterances, batch after batch.
        skipped, failures, reports: what was left out before the batches, as in the statistics of a loader.
        lost: utterances lost by settings, by stage and reason.
        boundaries: of the buckets of ``bucket_batch``.
        sources: utterances in each batch from each source of a mix, by its path.
        apart: how many utterances apart those come that are neighbours in a file.
        rates: utterances by sample rate in Hz, as in their headers; 0 if a ``duration`` gave the length instead.
    """

    lane: int
    units: tuple[str, ...] = ("frames",)
    counts: array[int] = field(default_factory=lambda: array("l"))
    sizes: list[Sizes] = field(default_factory=list)
    longest: list[str] = field(default_factory=list)
    frames_of: array[int] = field(default_factory=lambda: array("l"))
    skipped: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    boundaries: list[Any] | None = None
    sources: dict[str, array[int]] = field(default_factory=dict)
    apart: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    _origins: array[int] = field(default_factory=lambda: array("q"), repr=False)
    rates: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.sizes = [Sizes() for _ in self.units]

    @property
    def padded(self) -> array[int]:
        """The length of each batch, padding included, by the first of the units."""
        return self.sizes[0].padded

    @property
    def frames(self) -> array[int]:
        """The length of each batch without padding, by the first of the units."""
        return self.sizes[0].total

    @property
    def lengths(self) -> array[int]:
        """The lengths of all utterances, batch after batch, by the first of the units."""
        return self.sizes[0].lengths

    def add_sources(self, item: Any) -> None:
        """Count the sources of the next batch, and note where its utterances come from."""
        origins = [one.origin for one in (item if isinstance(item, list) else [item]) if isinstance(one, Sample)]
        there = Counter([origin.source for origin in origins])
        for name in there.keys() - self.sources.keys():
            self.sources[name] = array("l", [0]) * len(self.counts)
        for name, counts in self.sources.items():
            counts.append(there[name])
        numbers = {name: number for number, name in enumerate(self.sources)}
        self._origins.extend([n for o in origins for n in (numbers[o.source], o.pass_ % 2**63, o.item, o.offset)])

    def measure_mixing(self) -> None:
        """Find how far apart utterances come that are neighbours in their file; forget where they come from."""
        of = np.array(self._origins, np.int64).reshape(-1, 4)
        order = np.lexsort(of.T[::-1])
        same_file = (of[order[1:], :3] == of[order[:-1], :3]).all(axis=1)
        self.apart, self._origins = np.abs(np.diff(order))[same_file], array("q")

    def take(self, ledger: Ledger) -> None:
        """Take over what the ledger of the lane counted."""
        self.skipped, self.failures, self.reports = ledger.skipped, ledger.failures, ledger.reports
        self.tallies, self.lost = ledger.tallies, ledger.lost


def plan_lanes(
    graph: Graph,
    lanes: int,
    seed: int,
    epoch: int,
    only: Iterable[int] | None = None,
    pass_: int = 0,
    ranks: int = 1,
    most: int | None = None,
    made: Mapping[int, int] | None = None,
    by: Pair | None = None,
) -> Iterator[LanePlan]:
    """Plan the batches of each lane (or of ``only`` these) in ``epoch``. Headers are read if no index has the lengths.

    ``ranks``: for which steps are counted, where something follows the step; ``most``: batches of a lane to plan;
    ``made``: batches of each lane in earlier passes; ``by``: other lengths to tell than those that batches go by.

    Raises: PipelineError if the graph has no end, or a node of the user's stands after the batches.
    """
    if graph._endless and most is None:
        raise PipelineError("the pipeline has no end (repeat(), or a mix with stop='endless'): add .take(…) to plan it")
    if not graph._skims:
        raise PipelineError("what a node given to .through(…) after the batches does cannot be planned: leave it out")
    planned, tables = _by_plan(graph, strict=False), dict[Hashable, Any]()
    first: Node | None = None
    pads = next((stage.name for stage in graph.stages if Trait.ONE_RATE in stage.traits), "")
    making = [stage for stage in graph.stages if isinstance(stage, MakesBatches) and stage.sized_by is not None]
    batching: MakesBatches = making[-1] if making else Batch()
    counted_by = by or batching.sized_by
    size = None if counted_by is None else measure_of(counted_by)
    for index in range(lanes) if only is None else only:
        lane = _lane(index, lanes, seed, epoch, pass_, tables, ranks, before=(made or {}).get(index, 0))
        plan = LanePlan(index, names_of(counted_by))
        node = planned.build(lane)
        first = first or node  # keeps the shuffled order, which lanes share
        with _seldom_collected():
            for item in islice(items_of(node, lane.settings), most):
                lengths = _lengths(item, lane.ledger, plan, pads, size)
                plan.add_sources(item)
                plan.counts.append(len(lengths))
                plan.sizes[0].add(first_ones := [one[0] for one in lengths], batching.padded(first_ones, item))
                for number, sizes in enumerate(plan.sizes[1:], 1):
                    sizes.add([one[number] for one in lengths])
        plan.take(lane.ledger)
        plan.measure_mixing()
        plan.boundaries = _boundaries(node)
        yield plan


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let Python look for cycles seldom: plans are made of many small objects without any, and for each few thousand
    of them it would look through all that the process holds."""
    usual = gc.get_threshold()
    gc.set_threshold(usual[0] and max(usual[0], 50_000), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def count_batches(
    graph: Graph,
    lanes: int,
    seed: int,
    epoch: int,
    calls: bool = True,
    ranks: int = 1,
) -> list[int]:
    """Return how many batches each lane gives in ``epoch`` if none fails. Only lists and indexes are read.

    ``calls``: the user's functions on utterances may be called for it.

    Raises: NotKnown.
    """
    if graph._endless:
        raise NotKnown("the pipeline has no end")
    if not graph._skims:
        raise NotKnown("a node given to .through(…) stands after the batches")
    planned, tables = _by_plan(graph, strict=True, calls=calls), dict[Hashable, Any]()
    made = [_lane(index, lanes, seed, epoch, 0, tables, ranks) for index in range(lanes)]
    nodes = [(planned.build(lane), lane.settings) for lane in made]
    return [sum(1 for item in items_of(*node) if not isinstance(item, list) or item) for node in nodes]


def _boundaries(node: Node | None) -> list[Any] | None:
    while node is not None:
        found: list[Any] | None = getattr(node, "boundaries", None)
        if found is not None:
            return list(found)
        node = getattr(node, "source", None)
    return None


def _lane(
    index: int,
    lanes: int,
    seed: int,
    epoch: int,
    pass_: int,
    tables: dict[Hashable, Any],
    ranks: int = 1,
    before: int = 0,
) -> Lane:
    mode, settings = Mode(skimming=True, saved=False), Settings({"before": before}, index, lanes, ranks)
    return Lane(Ledger(LENIENT), index, lanes, seed, epoch, pass_, tables=tables, mode=mode, settings=settings)


def _lengths(item: Any, ledger: Ledger, lane: LanePlan, pads: str, size: Measure | None) -> list[tuple[int, ...]]:
    """Return the planned lengths in a batch, one or two of each utterance. Those with a bad header fail, as they would
    when it is made. The plan of the lane takes rates and frames.

    ``pads``: the stage that fails utterances of another sample rate than their batch; ``size``: the length, if not
    planned frames.
    """
    planned: list[tuple[Any, int, int, Any]] = []
    for sample in item if isinstance(item, list) else [item]:
        try:
            plan, of = (sample.planned(), sample.chain.streams) if isinstance(sample, Sample) else (None, ())
            streams = [sample.stream(one) for one in of] if of else []  # fails as when it is made
            frames = sum(one.length for one in streams if one is not None) if plan is None else plan.length
            length = frames if size is None else size(sample)
        except DataError as error:
            ledger.fail(error, MAKING)
        else:
            rate = 0  # in Hz, of the audio as it will be, if that is known
            if plan is not None:
                rate = plan.sample_rate if plan.samples and plan.sample_rate != TICKS else rates_of(sample.fields)[0]
            if rate or (plan is not None and plan.samples > 0 and plan.sample_rate == TICKS):  # known in seconds
                lane.rates[rate] += 1
            planned.append((length, frames, rate, sample))
    kept, odd = odd_rates([rate for _, _, rate, _ in planned]) if pads else (0, frozenset())
    for i in sorted(odd):
        like = next(sample.key for _, _, rate, sample in planned if rate == kept)
        ledger.handle(planned[i][3].failure(mixed_rates(planned[i][2], kept, like), pads), pads)
    good = [one for i, one in enumerate(planned) if i not in odd] if odd else planned
    lane.frames_of.extend([frames for _, frames, _, _ in good])
    if isinstance(item, list):
        lane.longest.append(getattr(max(good, key=itemgetter(1))[3], "key", "") if good else "")
    return [length if isinstance(length, tuple) else (length,) for length, *_ in good]


# The graph that runs instead


def _by_plan(graph: Graph, strict: bool, calls: bool = True) -> Graph:
    """Return ``graph`` without the stages that make tensors.

    ``strict``: only lists and indexes may be read. ``calls``: the user's functions may be called.
    """
    stages: list[Stage] = []
    batched = False
    for stage in graph.stages:
        batched = batched or "batch" in stage.gives
        if batched and Trait.ON_TENSORS in stage.traits:
            continue
        stage = with_branches(stage, lambda _, branch: _by_plan(branch, strict, calls))
        if strict:
            if isinstance(stage, Uncountable) and (why := stage.uncountable_reason(Graph(tuple(stages))._kind)):
                raise NotKnown(why)
            if not calls and callable(getattr(stage, "function", None)):
                raise NotKnown(f"the function given to {stage.name} would be called for it: ask before iterating")
            if isinstance(stage, Op) and not AUDIO.isdisjoint(stage.writes):
                stage = _PlanOnly(stage)
        stages.append(stage)
        if strict and isinstance(stage, Loading):
            of = [one.of for one in graph.stages if isinstance(one, Op) and one.of and not AUDIO.isdisjoint(one.writes)]
            stages.append(_Unopened(("wav", "feat", *of)))
    return Graph(tuple(stages))


@dataclass(frozen=True)
class _PlanOnly(Op):
    """A stage in place of another one, under its name, which only plans lengths: that one must not run."""

    inner: Op

    def __post_init__(self) -> None:
        for name in ("name", "of", "reads", "writes", "plan"):
            object.__setattr__(self, name, getattr(self.inner, name))

    def apply(self, sample: Sample, draws: Draws) -> None:
        raise NotKnown(f"{self.name} has to run on {sample.key!r} before it is known what becomes of it")


@dataclass(frozen=True)
class _Unopened(Flow):
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
