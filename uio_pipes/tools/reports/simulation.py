"""The reports of ``simulate``: batches, padding and waiting of each rank in an epoch, with charts; and of ``buckets``:
the boundaries that leave the least padding, by the planned lengths of utterances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.core.capabilities import MakesBatches, with_branches
from uio_pipes.core.graph import Graph
from uio_pipes.core.realize import FRAMES_AND_TOKENS, Length, Pair
from uio_pipes.core.statistics import LEAVE_OUT_LESS
from uio_pipes.run.planning import plan_utterances
from uio_pipes.stages.batches.buckets import count_of, index_of, longest_of, pairs_of
from uio_pipes.tools.reports.page import Chart, in_groups

BatchColumn = npt.NDArray[np.int64]
SHOWN = (0, 5, 50, 95, 100)  # percentiles of a distribution


@dataclass(frozen=True)
class Bucket:
    """A bucket of lengths: ``low`` <= length < ``high`` (None: no bound); by two lengths, ``high`` is the pair of the
    longest. ``fill``: mean fill of its batches; ``padding``: their share of padding, by each length."""

    low: int
    high: Any
    batches: int
    utterances: int
    fill: float | None
    padding: tuple[float, ...]

    @property
    def name(self) -> str:
        """Its lengths in words."""
        pair = isinstance(self.high, (list, tuple))
        return f"up to {self.high[0]} × {self.high[1]}" if pair else f"{self.low} to {self.high or '…'}"


@dataclass(frozen=True)
class SimulatedRank:
    """The batches of one rank, in order: utterances; the longest by the first unit; lengths with padding and their sum,
    a row for each unit; utterances from each source, a row for each."""

    counts: BatchColumn
    longest: BatchColumn
    padded: BatchColumn
    total: BatchColumn
    sources: BatchColumn

    def first(self, steps: int) -> SimulatedRank:
        return self.between(0, steps)

    def between(self, first: int, end: int) -> SimulatedRank:
        return SimulatedRank(*(column[..., first:end] for column in vars(self).values()))


@dataclass(frozen=True)
class SimulatedStretch:
    """The steps ``first`` to ``last`` of the epoch: means of a batch, its utterances and its ``padded`` length; the
    longest utterance; shares of the utterances by source."""

    first: int
    last: int
    utterances: float
    padded: float
    longest: int
    shares: dict[str, float]


@dataclass(frozen=True)
class Simulation:
    """The plan of an epoch. Lengths are planned ones, of what batches go by: frames (10 ms of audio, or feature frames)
    unless they go by another length, or by two.

    Attributes:
        units: names of these lengths. What is told of one length is by the first.
        steps: batches that each rank delivers. own: batches that its lanes have in one pass.
        padded: padded length of each batch that is delivered, by rank. lengths: of all utterances planned.
        hours: of audio planned. padding: share of padding, by each length.
        largest: the batch with the highest product of its utterances and their longest lengths: these numbers.
        skew: share of the time, in padded length, that ranks wait for the slowest one at each step.
        workers: padded length of the busiest worker, divided by the mean of all workers.
        left_out: utterances by reason, failures included, as far as headers show them (an utterance that fails only in
            decoding counts as good). cut_off: utterances and batches after the common end.
        apart: for utterances that are neighbours in a file, how many utterances apart they come in their lane.
        along: the epoch in stretches of equally many steps, if it has several sources, or something follows the step.
        rates: utterances by sample rate in Hz, where headers give it, also those left out as ``mixed_rates``.
        notes: warnings that a loader would give before it begins, or, of unknown labels, at the end.
    """

    world_size: int
    num_workers: int
    lanes: int
    epoch: int
    uneven: str
    steps: list[int]
    own: list[int]
    padded: list[BatchColumn]
    counts: list[BatchColumn]
    lengths: BatchColumn
    utterances: int
    units: tuple[str, ...]
    hours: float
    padding: tuple[float, ...]
    largest: tuple[int, ...]
    skew: float
    workers: float
    left_out: dict[str, int]
    failures: int
    cut_off: tuple[int, int]
    buckets: list[Bucket]
    fill: float | None
    apart: BatchColumn
    along: list[SimulatedStretch]
    reports: list[str]
    rates: dict[int, int]
    notes: list[str]

    @property
    def delivered_share(self) -> float:
        """The share of the planned utterances that is delivered."""
        return 1 - self.cut_off[0] / len(self.lengths) if len(self.lengths) else 1.0

    @property
    def padding_ratio(self) -> float:
        """The share of padding, by the first length."""
        return self.padding[0]

    @property
    def largest_sources(self) -> list[str]:
        """The names of the sources, those first that have the largest shares along the epoch."""
        shares = Counter[str]()
        for stretch in self.along:
            shares.update(stretch.shares)
        return [name for name, _ in shares.most_common()]

    @property
    def remedy(self) -> str:
        """Advice on how to cut off less; empty if nothing is cut off."""
        return LEAVE_OUT_LESS if self.cut_off[0] else ""

    def summary(self) -> dict[str, Any]:
        """Return the plan for JSON, without lists over utterances or batches."""
        scalars = ("world_size", "num_workers", "lanes", "epoch", "uneven", "steps", "own", "utterances")
        out: dict[str, Any] = {name: getattr(self, name) for name in scalars}
        unit = self.units[0]
        out["hours"] = self.hours
        out["padding_ratio"], out["skew"], out["busiest_worker"] = self.padding_ratio, self.skew, self.workers
        out["padding"] = dict(zip(self.units, self.padding, strict=True))
        out["largest_batch"] = dict(zip(("utterances", *self.units), self.largest, strict=True))
        out[f"padded_{unit}_per_batch"] = spread(np.concatenate(self.padded))
        out["utterances_per_batch"] = spread(np.concatenate(self.counts))
        out[f"{unit}_per_utterance"] = spread(self.lengths)
        out["left_out"] = dict(self.left_out)
        out["failures_known_from_headers"] = self.failures
        out["cut_off"] = {"utterances": self.cut_off[0], "batches": self.cut_off[1]}
        out["delivered_share"], out["remedy"], out["notes"] = self.delivered_share, self.remedy, list(self.notes)
        out["buckets"] = [vars(b) for b in self.buckets]
        out["fill"] = self.fill
        out["neighbours_apart"] = spread(self.apart)
        out["along"] = [vars(stretch) for stretch in self.along]
        out["rates"] = dict(self.rates)
        return out


def padding_of(total: Iterable[int], padded: Iterable[int]) -> tuple[float, ...]:
    """Return the share of padding by each length, of lengths without and with it."""
    return tuple(float(1 - t / p) if p else 0.0 for t, p in zip(total, padded, strict=True))


def spread(values: BatchColumn) -> dict[str, float]:
    """Return the mean and some percentiles."""
    if not len(values):
        return {}
    points = np.percentile(values, SHOWN, method="nearest")
    return {"mean": float(values.mean()), **{f"p{p}": int(v) for p, v in zip(SHOWN, points, strict=True)}}


POINTS = 200  # most points of a curve
BINS = 40


def of_simulation(run: Simulation) -> list[Chart]:
    """Return the charts of a plan."""
    unit = run.units[0]
    steps = {"batches of its lanes": run.own, f"steps ({run.uneven})": run.steps}
    charts = [
        Chart("Steps of each rank", [str(rank) for rank in range(run.world_size)], steps, ("rank", "steps"), "bars"),
        _histogram(f"Padded {unit} of a batch (padding {run.padding_ratio:.1%})", np.concatenate(run.padded), unit),
        _waits(run),
    ]
    if run.buckets:
        names, fill = [b.name.removeprefix("up to ") for b in run.buckets], [b.fill or 0 for b in run.buckets]
        label = "up to " * (len(run.units) > 1) + " × ".join(run.units)
        charts.append(Chart("Fill of the buckets", names, {"fill": fill}, (label, "fill"), "bars"))
    else:
        timed = unit == "frames"
        label, scale = ("seconds", 100) if timed else (unit, 1)
        charts.append(_histogram("Utterances planned", run.lengths, label, "utterances", scale))
    return charts + (_along(run) if run.along else [])


def _histogram(title: str, values: BatchColumn, unit: str, counted: str = "batches", scale: int = 1) -> Chart:
    counts, edges = np.histogram(values, bins=min(BINS, int(np.ptp(values)) + 1))
    middles = ((edges[1:] + edges[:-1]) / 2 / scale).tolist()
    return Chart(title, middles, {counted: counts.tolist()}, (unit, counted), "bars")


def _along(run: Simulation) -> list[Chart]:
    """Return the shares of the sources, and the lengths, step by step."""
    middles, unit = [(s.first + s.last) / 2 for s in run.along], run.units[0]
    groups = in_groups(run.largest_sources)
    shares = {name or "all": [sum(s.shares[one] for one in of) for s in run.along] for name, of in groups.items()}
    lengths: dict[str, Sequence[float]] = {
        "of a batch, padded (mean)": [s.padded for s in run.along],
        "of the longest utterance": [s.longest for s in run.along],
    }
    return [
        Chart("Shares of the sources", middles, shares, ("step", "share of the utterances"), "areas"),
        Chart(f"{unit.capitalize()} along the epoch", middles, lengths, ("step", unit)),
    ]


def _waits(run: Simulation) -> Chart:
    """Return the mean of the ranks and what the slowest has more, for each step (or for means of neighbouring ones)."""
    steps = min(map(len, run.padded))
    table = np.stack([padded[:steps] for padded in run.padded])
    width = max(1, -(-steps // POINTS))
    kept = steps - steps % width
    highest, mean = (row[:kept].reshape(-1, width).mean(1) for row in (table.max(0), table.mean(0)))
    series = {"mean of the ranks": mean.tolist(), "waiting for the slowest": (highest - mean).tolist()}
    at = (np.arange(len(mean)) * width).tolist()
    title = f"Ranks wait {run.skew:.1%} of the time"
    return Chart(title, at, series, ("step", f"padded {run.units[0]}"), "areas")


LengthArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BucketOf:
    """A bucket: the ``longest`` lengths in it, and its utterances, their frames and their share of padding."""

    longest: tuple[int, ...]
    utterances: int
    frames: int
    padding: tuple[float, ...]


@dataclass(frozen=True)
class FoundBuckets:
    """Boundaries for ``bucket_batch``, by the lengths that ``units`` name.

    ``padding``: share of padding by each of them, if each bucket is padded to its longest; ``left_out``: utterances by
    reason, ``failures`` of them by failing.
    """

    units: tuple[str, ...]
    boundaries: list[Any]
    buckets: list[BucketOf]
    padding: tuple[float, ...]
    left_out: dict[str, int]
    failures: int
    reports: list[str]

    @property
    def utterances(self) -> int:
        return sum(bucket.utterances for bucket in self.buckets)

    def summary(self) -> dict[str, Any]:
        """Return it for JSON; ``bucket_batch(bucket_boundaries=FILE)`` reads the first two."""
        return {
            "bucket_boundaries": self.boundaries, "lengths": list(self.units), "utterances": self.utterances,
            "padding": dict(zip(self.units, self.padding, strict=True)), "left_out": self.left_out,
            "buckets": [vars(bucket) for bucket in self.buckets],
        }  # fmt: skip


def find_buckets(graph: Graph, num_buckets: int | tuple[int, int], most: int | None = None) -> FoundBuckets:
    """Find boundaries for all utterances before the batches of ``graph``, or for the first ``most``.

    They go by the lengths by which ``graph`` makes batches; or else by frames, or by frames and tokens for a pair.

    Raises: PipelineError; ListError if there is no utterance.
    """
    if graph._endless and most is None:
        raise PipelineError("the pipeline has no end (repeat(), or a mix with stop='endless'): say how many to look at")
    plan = plan_utterances(graph._before_batches, _lengths_of(graph, num_buckets), most)
    if not plan.lengths:
        why = f": {plan.reports[0]}" if plan.reports else ""
        raise ListError(f"no utterance has a length by which to put it into a bucket{why}")
    lengths = np.asarray([sizes.lengths for sizes in plan.sizes], np.int64).T
    in_pairs = isinstance(num_buckets, tuple)
    boundaries: list[Any]
    if isinstance(num_buckets, tuple):
        boundaries = pairs_of(lengths, num_buckets)
    else:
        boundaries = [longest + 1 for longest in longest_of(lengths[:, 0], num_buckets)[:-1]]
    index, frames = index_of(boundaries, in_pairs), np.asarray(plan.frames_of, np.int64)
    different, number = np.unique(lengths, axis=0, return_inverse=True)
    at = np.asarray([index(tuple(row) if in_pairs else row[0]) for row in different.tolist()])[number.reshape(-1)]
    of = [at == number for number in range(count_of(boundaries, in_pairs))]
    buckets = [_bucket(lengths[here], frames[here]) for here in of if here.any()]
    padded = np.sum([bucket.utterances * np.asarray(bucket.longest) for bucket in buckets], axis=0)
    padding = padding_of(lengths.sum(axis=0), padded)
    return FoundBuckets(plan.units, boundaries, buckets, padding, plan.skipped, plan.failures, plan.reports)


def shuffled(graph: Graph) -> Graph:
    """Return ``graph`` with its lists shuffled, so that its first utterances are a sample of all."""
    stages = [with_branches(stage, lambda _, branch: shuffled(branch)) for stage in graph.stages]
    return type(graph)(
        tuple(replace(s, shuffle=True) if "shuffle" in [f.name for f in fields(s)] else s for s in stages)  # type: ignore[call-arg]
    )


def _lengths_of(graph: Graph, num_buckets: int | tuple[int, int]) -> Length | Pair | None:
    """Return the lengths by which ``graph`` makes batches, if they are as many as those of the buckets."""
    making = [stage.sized_by for stage in graph.stages if isinstance(stage, MakesBatches)]
    of: Any = next((size for size in reversed(making) if size is not None), None)
    if isinstance(num_buckets, tuple):
        return of if isinstance(of, tuple) else FRAMES_AND_TOKENS
    return None if isinstance(of, tuple) else of


def _bucket(lengths: LengthArray, frames: LengthArray) -> BucketOf:
    longest = lengths.max(axis=0)
    padding = padding_of(lengths.sum(axis=0), len(lengths) * longest)
    return BucketOf(tuple(map(int, longest)), len(lengths), int(frames.sum()), padding)
