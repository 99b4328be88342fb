"""``simulate``: plans what ranks and workers would get in an epoch, without decoding anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from uio_pipes.base.errors import PipelineError, TooManyFailures
from uio_pipes.base.urls import counted
from uio_pipes.core.capabilities import Branch, MakesBatches, branches_of
from uio_pipes.core.lane import lanes_of, worker_of
from uio_pipes.core.ledger import Failures, Report, Tally, add_tallies, kind_of
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.epoch_end import UNEVEN
from uio_pipes.run.no_batches import Losses, no_batch, nothing_out, nothing_read
from uio_pipes.run.planning import LanePlan, plan_lanes
from uio_pipes.stages.audio.effects import Resample
from uio_pipes.stages.batches.bucket_batch import BucketBatch
from uio_pipes.stages.batches.buckets import count_of, index_of
from uio_pipes.tools.reports.simulation import (
    BatchColumn,
    Bucket,
    SimulatedRank,
    SimulatedStretch,
    Simulation,
    padding_of,
)

STRETCHES = 10  # that the epoch is told in


def simulate(
    pipeline: Pipeline,
    *,
    world_size: int = 1,
    num_workers: int = 0,
    lanes: int | None = None,
    seed: int = 0,
    epoch: int = 0,
    uneven: str | None = None,
    steps: int | None = None,
    progress: Callable[[int, int], None] = lambda done, lanes: None,
) -> Simulation:
    """Plan ``epoch`` of ``Loader(pipeline, …)``, here for all ranks and workers; or only its first ``steps``.

    ``progress`` is called after each lane.

    Raises: PipelineError or ListError, as the loader would.
    """
    lanes = lanes or world_size * max(1, num_workers)
    uneven = uneven or ("stop" if world_size > 1 else "join")
    if uneven not in UNEVEN:
        raise PipelineError(f"uneven must be one of {UNEVEN}, not {uneven!r}")
    if not 1 <= world_size <= lanes or num_workers < 0:
        raise PipelineError(
            f"{lanes} lanes cannot feed {world_size} ranks of {num_workers} workers: lanes must be at least world_size"
        )
    pipeline._check_lanes(lanes)
    plans: list[LanePlan] = []
    most = None if steps is None else -(-steps // (lanes // world_size))
    for plan in plan_lanes(pipeline, lanes, seed, epoch, ranks=world_size, most=most):
        plans.append(plan)
        progress(len(plans), lanes)
    rates = sum((plan.rates for plan in plans), Counter[int]())
    notes = [*dict.fromkeys(pipeline._warnings(lanes)), *_rate_notes(pipeline, rates.pop(0, 0)), *_verdicts(plans)]
    reports = [report for plan in plans for report in plan.reports]
    losses = Losses.of((vars(plan) for plan in plans), next(iter(reports), ""))
    if losses.failures and not any(plan.lengths for plan in plans):
        raise nothing_read(epoch, losses.describe(pipeline))
    losses.utterances = sum(len(plan.frames_of) for plan in plans)
    examples = {kind_of(one.error, one.stage): one for one in reversed(reports) if isinstance(one, Report)}
    try:
        losses.check(Failures(), pipeline, examples, losses.shares)
    except TooManyFailures as error:
        notes.append(f"a loader stops here: {error}")
    names = sorted({name for plan in plans for name in plan.sources})
    ranks = [_in_order([plans[i] for i in lanes_of(lanes, r, world_size)], names) for r in range(world_size)]
    ranks = ranks if steps is None else [rank.first(steps) for rank in ranks]
    own = [len(rank.counts) for rank in ranks]
    if uneven != "join" and not min(own):
        raise no_batch(why=losses.describe(pipeline))
    if not any(own):
        raise nothing_out(losses.skipped)
    if uneven == "repeat":
        again = _Again(
            pipeline, lanes, seed, epoch, world_size, names, Counter({plan.lane: len(plan.counts) for plan in plans})
        )
        ranks = [again.extend(rank, r, max(own)) for r, rank in enumerate(ranks)]
    made = own if uneven == "join" else [{"stop": min, "repeat": max}[uneven](own)] * world_size
    seen = [rank.first(n) for rank, n in zip(ranks, made, strict=True)]
    padded, total = (sum(getattr(r, name).sum(axis=1) for r in seen) for name in ("padded", "total"))
    cut_off = [r.counts[n:] for r, n in zip(ranks, made, strict=True)] if uneven == "stop" else []
    buckets, fill = _buckets(pipeline, plans)
    return Simulation(
        world_size, num_workers, lanes, epoch, uneven, made, own,
        padded=[r.padded[0] for r in seen],
        counts=[r.counts for r in seen],
        lengths=np.concatenate([np.asarray(plan.lengths, np.int64) for plan in plans]),
        utterances=sum(int(r.counts.sum()) for r in seen),
        units=plans[0].units,
        hours=sum(sum(plan.frames_of) for plan in plans) / 360_000,
        padding=padding_of(total, padded),
        largest=_largest(plans),
        skew=_skew([r.padded[0] for r in seen]),
        workers=_busiest(plans, world_size, num_workers),
        left_out=dict(sorted(losses.skipped.items())),
        failures=losses.failures,
        cut_off=(sum(int(counts.sum()) for counts in cut_off), sum(map(len, cut_off))),
        buckets=buckets,
        fill=fill,
        apart=np.concatenate([plan.apart for plan in plans]),
        along=_along(seen, names) if len(names) > 1 or pipeline._follows_steps else [],
        reports=reports,
        rates=dict(rates.most_common()),
        notes=notes,
    )  # fmt: skip


def reads_headers(pipeline: Pipeline) -> bool:
    """Return whether planning has to read through the shards."""
    return pipeline._opens_files


def _verdicts(plans: list[LanePlan]) -> Iterator[str]:
    """Yield what a loader would warn of at the end of the epoch, such as unknown labels."""
    tallies: dict[str, Tally] = {}
    for plan in plans:
        add_tallies(tallies, plan.tallies)
    told = ((place, tally.verdict(last=True)) for place, tally in tallies.items())
    return (f"{place}: {text}" for place, text in told if text is not None)


def _rate_notes(pipeline: Pipeline, timed: int) -> list[str]:
    """Return a note if there are utterances whose length is only known in seconds, and whose rates may differ."""
    if not timed or _resamples(pipeline):
        return []
    return [
        f"the sample rates of {counted(timed, 'utterance')} are not known here, as `duration` gives the lengths: "
        "uio inspect shows them, and .resample(16_000) before the features makes them one"
    ]


def _resamples(graph: Branch) -> bool:
    """Return whether all audio gets one sample rate."""
    branches = [branches_of(stage).values() for stage in graph.stages]
    return any(isinstance(stage, Resample) for stage in graph.stages) or any(
        inner and all(map(_resamples, inner)) for inner in branches
    )


def _in_order(plans: list[LanePlan], names: list[str]) -> SimulatedRank:
    """Return a rank's batches in the epoch's order, by (k, lane), without those of which nothing is left."""
    rows = [
        [p.counts, p.sizes[0].longest, *(s.padded for s in p.sizes), *(s.total for s in p.sizes), *_sources(p, names)]
        for p in plans
    ]
    columns = [np.asarray(row, np.int64).reshape(len(row), -1) for row in rows]
    ks = np.concatenate([np.arange(c.shape[1]) for c in columns])
    lanes = np.concatenate([np.full(c.shape[1], p.lane) for c, p in zip(columns, plans, strict=True)])
    all_ = np.concatenate(columns, axis=1)[:, np.lexsort((lanes, ks))]
    all_ = all_[:, all_[0] > 0]
    units = len(plans[0].units)
    padded, total, sources = np.split(all_[2:], [units, 2 * units])
    return SimulatedRank(all_[0], all_[1], padded, total, sources)


def _sources(plan: LanePlan, names: list[str]) -> list[Any]:
    """Return how many utterances of its batches are from each source."""
    return [plan.sources.get(name, [0] * len(plan.counts)) for name in names]


def _along(ranks: list[SimulatedRank], names: list[str]) -> list[SimulatedStretch]:
    """Return the epoch in stretches of equally many steps."""
    ends = np.linspace(0, max(len(rank.counts) for rank in ranks), STRETCHES + 1).astype(int)
    found = []
    for first, end in pairwise(np.unique(ends)):
        parts = [rank.between(first, end) for rank in ranks]
        counts, longest, padded = (
            np.concatenate(columns)
            for columns in zip(*((p.counts, p.longest, p.padded[0]) for p in parts), strict=True)
        )
        of = sum(p.sources.sum(axis=1) for p in parts)
        shares = dict(zip(names, (of / max(1, of.sum())).tolist(), strict=True))
        means = (float(counts.mean()), float(padded.mean())) if len(counts) else (0.0, 0.0)
        found.append(SimulatedStretch(int(first), int(end) - 1, *means, int(longest.max(initial=0)), shares))
    return found


def _largest(plans: list[LanePlan]) -> tuple[int, ...]:
    """Return utterances and longest lengths of the batch with the highest product of these."""
    batches = (numbers for p in plans for numbers in zip(p.counts, *(s.longest for s in p.sizes), strict=True))
    return max(batches, key=lambda numbers: prod(max(1, n) for n in numbers))


@dataclass(frozen=True)
class _Again:
    """Begins a rank's lanes again, pass after pass, until it has enough batches."""

    pipeline: Pipeline
    lanes: int
    seed: int
    epoch: int
    world_size: int
    names: list[str]
    made: Counter[int]  # batches of each lane so far

    def extend(self, rank: SimulatedRank, number: int, steps: int) -> SimulatedRank:
        pass_ = 0
        while len(rank.counts) < steps:
            pass_ += 1
            mine = lanes_of(self.lanes, number, self.world_size)
            given = self.pipeline, self.lanes, self.seed, self.epoch
            plans = list(plan_lanes(*given, mine, pass_, self.world_size, made=self.made))
            self.made.update({plan.lane: len(plan.counts) for plan in plans})
            more = _in_order(plans, self.names)
            if not len(more.counts):
                raise no_batch("use fewer ranks")
            pairs = zip(vars(rank).values(), vars(more).values(), strict=True)
            rank = SimulatedRank(*(np.concatenate(pair, axis=-1) for pair in pairs))
        return rank


def _skew(padded: list[BatchColumn]) -> float:
    """Return the share of their time, in padded frames, that ranks wait for the slowest one at each step."""
    steps = max(map(len, padded))
    table = np.zeros((len(padded), steps), np.int64)
    there = np.zeros_like(table, bool)
    for row, mask, values in zip(table, there, padded, strict=True):
        row[: len(values)], mask[: len(values)] = values, True
    busy, held = int(table.sum()), int((table.max(axis=0) * there.sum(axis=0)).sum()) if steps else 0
    return 1 - busy / held if held else 0.0


def _busiest(plans: list[LanePlan], world_size: int, num_workers: int) -> float:
    loads = Counter[tuple[int, int]]()
    for plan in plans:
        worker = (plan.lane % world_size, worker_of(plan.lane, world_size, num_workers))
        loads[worker] += sum(plan.padded)
    mean = sum(loads.values()) / len(loads)
    return max(loads.values()) / mean if mean else 1.0


def _buckets(pipeline: Pipeline, plans: list[LanePlan]) -> tuple[list[Bucket], float | None]:
    """Return the buckets of ``bucket_batch``, and how full batches are on average, compared with their budget."""
    stage = next((s for s in reversed(pipeline.stages) if s.gives == "batch"), None)
    if stage is None:
        return [], None
    of: dict[tuple[int, Any], list[_Planned]] = {}
    in_pairs = len(plans[0].units) > 1
    for plan in plans:
        bounds = plan.boundaries or []  # lanes that find theirs have different ones
        index, ranges = index_of(bounds, in_pairs), _ranges(bounds, in_pairs)
        of |= {one: of.get(one, []) for one in ranges if plan.counts}
        for k, utterances in enumerate(plan.counts):
            longest, total, padded = zip(*((s.longest[k], s.total[k], s.padded[k]) for s in plan.sizes), strict=True)
            if utterances:
                length = longest if in_pairs else longest[0]
                at = index(length)
                full = stage.fill_ratio(at, utterances, length) if isinstance(stage, MakesBatches) else None
                batch = _Planned(utterances, full, (total, padded))
                of[ranges[at]].append(batch)
    fill = _mean_fill([batch for batches in of.values() for batch in batches])
    if not isinstance(stage, BucketBatch):
        return [], fill
    rising = sorted(of, key=lambda one: (one[0], one[1] is None, one[1]))
    return [_bucket(*one, of[one], len(plans[0].units)) for one in rising], fill


def _ranges(bounds: list[Any], in_pairs: bool) -> list[tuple[int, Any]]:
    """Return ``low`` and ``high`` of each bucket."""
    highs: list[Any] = [tuple(one) if in_pairs else one for one in bounds]
    return [
        (highs[at - 1] if at and not in_pairs else 0, highs[at] if at < len(highs) else None)
        for at in range(count_of(bounds, in_pairs))
    ]


class _Planned(NamedTuple):
    """A batch, and the ``sizes`` of it: without and with padding, by each length."""

    utterances: int
    fill: float | None
    sizes: tuple[tuple[int, ...], tuple[int, ...]]


def _mean_fill(batches: list[_Planned]) -> float | None:
    fills = [batch.fill for batch in batches if batch.fill is not None]
    return sum(fills) / len(fills) if fills else None


def _bucket(low: int, high: Any, batches: list[_Planned], units: int) -> Bucket:
    sizes = np.sum([batch.sizes for batch in batches] or np.zeros((1, 2, units), np.int64), axis=0)
    utterances = sum(batch.utterances for batch in batches)
    return Bucket(low, high, len(batches), utterances, _mean_fill(batches), padding_of(*sizes))
