"""``simulate``: plans what ranks and workers would get in an epoch, without decoding anything."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.printable import counted
from uio_pipes.core.lane import lanes_of, worker_of
from uio_pipes.core.stage import Branch
from uio_pipes.pipeline import Pipeline
from uio_pipes.reports.simulation import Bucket, Column, Rank, Simulation
from uio_pipes.run.epoch_end import UNEVEN
from uio_pipes.run.no_batches import Losses, no_batch, nothing_read
from uio_pipes.run.planning import LanePlan, plan_lanes


def simulate(
    pipeline: Pipeline,
    *,
    world_size: int = 1,
    num_workers: int = 0,
    lanes: int | None = None,
    seed: int = 0,
    epoch: int = 0,
    uneven: str | None = None,
    progress: Callable[[int, int], None] = lambda done, lanes: None,
) -> Simulation:
    """Plan ``epoch`` of ``Loader(pipeline, …)``, here for all ranks and workers. ``progress``: called after each lane.

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
    for plan in plan_lanes(pipeline, lanes, seed, epoch):
        plans.append(plan)
        progress(len(plans), lanes)
    rates = sum((plan.rates for plan in plans), Counter[int]())
    notes = [*pipeline._warnings(lanes), *_rate_notes(pipeline, rates.pop(0, 0))]
    reports = [report for plan in plans for report in plan.reports]
    losses = Losses.of((vars(plan) for plan in plans), next(iter(reports), ""))
    if losses.failures and not any(plan.lengths for plan in plans):
        raise nothing_read(epoch, losses.describe(pipeline))
    ranks = [_in_order([plans[i] for i in lanes_of(lanes, r, world_size)]) for r in range(world_size)]
    own = [len(rank.counts) for rank in ranks]
    if uneven != "join" and not min(own):
        raise no_batch(why=losses.describe(pipeline))
    if uneven == "repeat":
        again = _Again(pipeline, lanes, seed, epoch, world_size)
        ranks = [again.extend(rank, r, max(own)) for r, rank in enumerate(ranks)]
    steps = own if uneven == "join" else [{"stop": min, "repeat": max}[uneven](own)] * world_size
    seen = [rank.first(n) for rank, n in zip(ranks, steps, strict=True)]
    padded = sum(int(r.padded.sum()) for r in seen)
    cut_off = [r.counts[n:] for r, n in zip(ranks, steps, strict=True)] if uneven == "stop" else []
    buckets, fill = _buckets(pipeline, plans)
    return Simulation(
        world_size, num_workers, lanes, epoch, uneven, steps, own,
        padded=[r.padded for r in seen],
        counts=[r.counts for r in seen],
        lengths=np.concatenate([np.asarray(plan.lengths, np.int64) for plan in plans]),
        utterances=sum(int(r.counts.sum()) for r in seen),
        padding_ratio=1 - sum(int(r.frames.sum()) for r in seen) / padded if padded else 0.0,
        skew=_skew([r.padded for r in seen]),
        workers=_busiest(plans, world_size, num_workers),
        left_out=dict(sorted(losses.skipped.items())),
        failures=losses.failures,
        cut_off=(sum(int(counts.sum()) for counts in cut_off), sum(map(len, cut_off))),
        buckets=buckets,
        fill=fill,
        reports=reports,
        rates=dict(rates.most_common()),
        notes=notes,
    )  # fmt: skip


def reads_headers(pipeline: Pipeline) -> bool:
    """Return whether planning has to read through the shards."""
    return pipeline._opens_files


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
    return any(
        stage.sets_rate or (stage.branches and all(map(_resamples, stage.branches.values()))) for stage in graph.stages
    )


def _in_order(plans: list[LanePlan]) -> Rank:
    """Return a rank's batches in the epoch's order, by (k, lane), without those of which nothing is left."""
    columns = [np.asarray([p.counts, p.padded, p.frames], np.int64).reshape(3, -1) for p in plans]
    ks = np.concatenate([np.arange(c.shape[1]) for c in columns])
    lanes = np.concatenate([np.full(c.shape[1], p.lane) for c, p in zip(columns, plans, strict=True)])
    all_ = np.concatenate(columns, axis=1)[:, np.lexsort((lanes, ks))]
    all_ = all_[:, all_[0] > 0]
    return Rank(all_[0], all_[1], all_[2])


@dataclass(frozen=True)
class _Again:
    """Begins a rank's lanes again, pass after pass, until it has enough batches."""

    pipeline: Pipeline
    lanes: int
    seed: int
    epoch: int
    world_size: int

    def extend(self, rank: Rank, number: int, steps: int) -> Rank:
        pass_ = 0
        while len(rank.counts) < steps:
            pass_ += 1
            mine = lanes_of(self.lanes, number, self.world_size)
            more = _in_order(list(plan_lanes(self.pipeline, self.lanes, self.seed, self.epoch, mine, pass_)))
            if not len(more.counts):
                raise no_batch("use fewer ranks")
            pairs = zip(vars(rank).values(), vars(more).values(), strict=True)
            rank = Rank(*(np.concatenate(pair) for pair in pairs))
        return rank


def _skew(padded: list[Column]) -> float:
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
    found: dict[int, list[tuple[int, float | None]]] = {}
    bounds: list[int] = []
    for plan in plans:
        bounds = list(plan.boundaries or ()) or bounds
        for count, longest in zip(plan.counts, plan.longest, strict=True):
            if count:
                at = bisect_right(plan.boundaries or (), longest)
                found.setdefault(at, []).append((count, stage.fill(at, count, longest)))
    fills = [f for batches in found.values() for _, f in batches if f is not None]
    fill = sum(fills) / len(fills) if fills else None
    if not stage.in_buckets:
        return [], fill
    return [_bucket(at, bounds, found.get(at, [])) for at in range(len(bounds) + 1)], fill


def _bucket(at: int, bounds: list[int], batches: list[tuple[int, float | None]]) -> Bucket:
    fills = [f for _, f in batches if f is not None]
    low, high = bounds[at - 1] if at else 0, bounds[at] if at < len(bounds) else None
    return Bucket(low, high, len(batches), sum(n for n, _ in batches), sum(fills) / len(fills) if fills else None)
