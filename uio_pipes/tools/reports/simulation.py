"""The report of ``simulate``: batches, padding and waiting of each rank in an epoch, with charts, and the line that
mends the waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.checks import in_words
from uio_pipes.core.capabilities import MakesBatches
from uio_pipes.core.graph import Graph
from uio_pipes.core.schedule import Schedule, show
from uio_pipes.core.statistics import LEAVE_OUT_LESS, LEAVE_OUT_NOTHING
from uio_pipes.stages.batches.window import WindowBatch
from uio_pipes.tools.reports.page import Chart, in_groups

Costs = Sequence[npt.NDArray[Any]]
LOSES = 0.03  # of the time: what loses more can be mended
KEPT = ("max_frames", "max_samples", "max_tokens", "max_cost", "cost", "quadratic", "length")
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
        skew: share of the time, in padded length, that ranks wait for the slowest one at each step. skew_squared: the
            same in padded length × the longest, as attention takes it.
        left_out: utterances by reason, failures included, as far as headers show them (an utterance that fails only in
            decoding counts as good). cut_off: utterances and batches after the common end.
        apart: for utterances that are neighbours in a file, how many utterances apart they come in their lane.
        along: the epoch in stretches of equally many steps, if it has several sources, or something follows the step.
        rates: utterances by sample rate in Hz, where headers give it, also those left out as ``mixed_rates``.
        boundaries: of buckets with the least padding of all utterances, where ``bucket_batch`` finds those of a lane.
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
    skew_squared: float
    left_out: dict[str, int]
    failures: int
    cut_off: tuple[int, int]
    buckets: list[Bucket]
    fill: float | None
    boundaries: list[Any]
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
    def largest_sources(self) -> list[str]:
        """The names of the sources, those first that have the largest shares along the epoch."""
        shares = Counter[str]()
        for stretch in self.along:
            shares.update(stretch.shares)
        return [name for name, _ in shares.most_common()]

    @property
    def remedy(self) -> str:
        """Advice on how to cut off less; empty if nothing is cut off."""
        if not self.cut_off[0]:
            return ""
        return LEAVE_OUT_NOTHING if self.uneven == "share" else LEAVE_OUT_LESS

    def summary(self) -> dict[str, Any]:
        """Return the plan for JSON, without lists over utterances or batches."""
        same = (
            "world_size", "num_workers", "lanes", "epoch", "uneven", "steps", "own", "utterances", "hours", "skew",
            "skew_squared", "left_out", "delivered_share", "remedy", "notes", "fill", "boundaries", "rates",
        )  # fmt: skip
        unit = self.units[0]
        return {name: getattr(self, name) for name in same} | {
            "padding_ratio": self.padding[0],
            "padding": dict(zip(self.units, self.padding, strict=True)),
            "largest_batch": dict(zip(("utterances", *self.units), self.largest, strict=True)),
            f"padded_{unit}_per_batch": spread(np.concatenate(self.padded)),
            "utterances_per_batch": spread(np.concatenate(self.counts)),
            f"{unit}_per_utterance": spread(self.lengths),
            "failures_known_from_headers": self.failures,
            "cut_off": {"utterances": self.cut_off[0], "batches": self.cut_off[1]},
            "buckets": [vars(b) for b in self.buckets],
            "neighbours_apart": spread(self.apart),
            "along": [vars(stretch) for stretch in self.along],
        }


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
        _histogram(f"Padded {unit} of a batch (padding {run.padding[0]:.1%})", np.concatenate(run.padded), unit),
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


# Waiting for the slowest rank


def lost(costs: Costs) -> float:
    """Return the share of their time that ranks wait for the slowest one of each step, by the ``costs`` of batches."""
    steps = max(map(len, costs))
    table = np.zeros((len(costs), steps))
    there = np.zeros_like(table, bool)
    for row, mask, values in zip(table, there, costs, strict=True):
        row[: len(values)], mask[: len(values)] = values, True
    busy, held = table.sum(), (table.max(axis=0) * there.sum(axis=0)).sum() if steps else 0
    return float(1 - busy / held) if held else 0.0


def mend(pipeline: Graph, share: float, squared: float, usual: float) -> str:
    """Return what ranks lose by padded length, and by its product with the longest one's; and the line that mends it.
    "" if nothing does.

    ``usual``: the mean padded length of a batch.
    """
    at, stage = next(((i, s) for i, s in enumerate(pipeline.stages) if isinstance(s, MakesBatches)), (0, None))
    if stage is None or stage.name == "pack" or max(share, squared) <= LOSES:
        return ""
    told = f"ranks that step together wait {share:.1%} of the time for the slowest one"
    if isinstance(stage, WindowBatch):
        return f"{told}: a window of {2 * stage.window:_} makes their batches more alike" if share > LOSES else ""
    before = takewhile(lambda s: s.name in ("shuffle", "sort"), reversed(pipeline.stages[:at]))
    given = {name: value for name in KEPT if (value := getattr(stage, name, None)) is not None}
    if not set(KEPT[:4]) & given.keys() or any(isinstance(v, Schedule) for v in given.values()):
        given = {"max_tokens" if "tokens" in str(stage.sized_by) else "max_frames": int(float(f"{usual:.2g}"))}
    line = ", ".join(f"{name}={show(value)}" for name, value in given.items())
    places = in_words(f".{s.name}(…)" for s in [*reversed([*before]), stage])
    attention = f", or {squared:.1%} where time goes by length × length, as in attention"
    return f"{told}{attention}: .bucket_batch({line}) in place of {places} makes their batches alike"
