"""``simulate``: plans what ranks and workers would get in an epoch, without decoding anything."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import PipelineError, TooManyFailures
from uio_pipes.base.urls import plural
from uio_pipes.core.capabilities import Branch, MakesBatches, branches_of
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.ledger import Failures, Report, Tally, add_tallies, kind_of
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.dealing import Deal
from uio_pipes.run.empty_epochs import Losses, no_batch, nothing_out, nothing_read
from uio_pipes.run.epoch_end import UNEVEN
from uio_pipes.run.planning import LanePlan, plan_lanes
from uio_pipes.stages.audio.effects import Resample
from uio_pipes.stages.batches.bucket_batch import BucketBatch
from uio_pipes.stages.batches.buckets import index_of, longest_of, pairs_of
from uio_pipes.tools.reports.simulation import (
    Bucket,
    SimulatedRank,
    SimulatedStretch,
    Simulation,
    lost,
    mend,
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
    uneven = uneven or (pipeline._uneven if world_size > 1 else "join")
    if uneven not in UNEVEN:
        raise PipelineError(f"uneven must be {in_words(UNEVEN, 'or')}, not {uneven!r}")
    if world_size < 1 or num_workers < 0 or (world_size > lanes and uneven != "share"):
        raise PipelineError(
            f"{lanes} lanes cannot feed {world_size} ranks of {num_workers} workers: lanes must be at least world_size"
        )
    pipeline._check_lanes(lanes)
    plans: list[LanePlan] = []
    most = None if steps is None else -(-steps // (lanes // world_size or 1)) * -(-world_size // lanes)
    for plan in plan_lanes(pipeline, lanes, seed, epoch, ranks=world_size, most=most):
        plans.append(plan)
        progress(len(plans), lanes)
    rates = sum((plan.rates for plan in plans), Counter[int]())
    notes = list(_notes(pipeline, plans, rates.pop(0, 0)))
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
    batches = {plan.lane: [k for k, count in enumerate(plan.counts) if count] for plan in plans}
    dealt = [lanes_of(lanes, rank, world_size) for rank in range(world_size)]
    own = [min(sum(len(batches[lane]) for lane in mine), steps or sum(map(len, batches.values()))) for mine in dealt]
    if uneven == "share":
        orders, _ = shared(batches, {plan.lane: len(plan.counts) for plan in plans}, world_size)
    else:
        orders = [sorted((k, lane) for lane in mine for k in batches[lane]) for mine in dealt]
    ranks = [_in_order(plans, names, order) for order in orders]
    ranks = ranks if steps is None else [rank.between(0, steps) for rank in ranks]
    if uneven != "join" and not min(len(order) for order in orders):
        raise no_batch(why=losses.describe(pipeline))
    if not any(own):
        raise nothing_out(losses.skipped)
    there = [len(rank.counts) for rank in ranks]
    made = there if uneven == "join" else [min(there)] * world_size
    seen = [rank.between(0, n) for rank, n in zip(ranks, made, strict=True)]
    padded, total = (sum(getattr(r, name).sum(axis=1) for r in seen) for name in ("padded", "total"))
    cut_off = [r.counts[n:] for r, n in zip(ranks, made, strict=True)] if uneven != "join" else []
    buckets, fill = _buckets(pipeline, plans)
    skew, squared = (lost([r.padded[0] * r.longest**power for r in seen]) for power in (0, 1))
    usual = float(np.concatenate([r.padded[0] for r in seen]).mean())
    notes += filter(None, [mend(pipeline, skew, squared, usual)])
    sizes = (numbers for p in plans for numbers in zip(p.counts, *(s.longest for s in p.sizes), strict=True))
    return Simulation(
        world_size, num_workers, lanes, epoch, uneven, made, own,
        padded=[r.padded[0] for r in seen],
        counts=[r.counts for r in seen],
        lengths=np.concatenate([np.asarray(plan.lengths, np.int64) for plan in plans]),
        utterances=sum(int(r.counts.sum()) for r in seen),
        units=plans[0].units,
        hours=sum(sum(plan.frames_of) for plan in plans) / 360_000,
        padding=padding_of(total, padded),
        largest=max(sizes, key=lambda numbers: prod(max(1, n) for n in numbers)),
        skew=skew,
        skew_squared=squared,
        left_out=dict(sorted(losses.skipped.items())),
        failures=losses.failures,
        cut_off=(sum(int(counts.sum()) for counts in cut_off), sum(map(len, cut_off))),
        buckets=buckets,
        fill=fill,
        boundaries=_boundaries(pipeline, plans),
        apart=np.concatenate([plan.apart for plan in plans]),
        along=_along(seen, names) if len(names) > 1 or pipeline._follows_steps else [],
        reports=reports,
        rates=dict(rates.most_common()),
        notes=notes,
    )  # fmt: skip


def _notes(pipeline: Pipeline, plans: list[LanePlan], timed: int) -> Iterator[str]:
    """Yield what a loader would warn of, before the epoch, or, as of unknown labels, at its end.

    ``timed``: utterances whose length is only known in seconds, so that their rates may differ.
    """
    yield from dict.fromkeys(pipeline._warnings(len(plans)))
    if timed and not _resamples(pipeline):
        yield (
            f"the sample rates of {plural(timed, 'utterance')} are not known here, as `duration` gives the lengths: "
            "uio inspect shows them, and .resample(16_000) before the features makes them one"
        )
    tallies: dict[str, Tally] = {}
    for plan in plans:
        add_tallies(tallies, plan.tallies)
    for place, tally in tallies.items():
        if (text := tally.verdict(last=True)) is not None:
            yield f"{place}: {text}"


def _resamples(graph: Branch) -> bool:
    """Return whether all audio gets one sample rate."""
    branches = [branches_of(stage).values() for stage in graph.stages]
    return any(isinstance(stage, Resample) for stage in graph.stages) or any(
        inner and all(map(_resamples, inner)) for inner in branches
    )


def shared(
    batches: Mapping[int, list[int]], ends: Mapping[int, int], world: int
) -> tuple[list[list[tuple[int, int]]], int]:
    """Return each rank's batches under ``uneven="share"`` as (k, lane), and how often the ranks deal lanes anew: see
    :mod:`uio_pipes.run.dealing`. ``ends``: the number at which each lane ends.
    """
    orders, deals = [list[tuple[int, int]]() for _ in range(world)], 0
    left = {lane: deque((k, lane) for k in ks) for lane, ks in batches.items()}

    def going(lanes: Sequence[int]) -> list[int]:
        """Return those of a rank's lanes whose end it has not seen, as other batches come before."""
        due = min((left[lane][0] for lane in lanes if left[lane]), default=None)
        return [lane for lane in lanes if left[lane] or (due is not None and (ends[lane], lane) > due)]

    deal = Deal(tuple(sorted(left)), world)
    while deal.lanes and not deal.in_turns:
        mine = [deal.of(rank) for rank in range(world)]
        each = [sorted(one for lane in lanes for one in left[lane]) for lanes in mine]
        for order, some in zip(orders, each, strict=True):
            for one in some[: min(map(len, each))]:
                left[one[1]].popleft()
                order.append(one)
        deal, deals = Deal(tuple(sorted(lane for lanes in mine for lane in going(lanes))), world), deals + 1
    while deal.lanes and not deal.last:
        places = {lane: ranks for lane, _, ranks in deal.places}
        for _ in range(min(len(left[lane]) // ranks for lane, ranks in places.items())):
            for order, (lane, *_) in zip(orders, deal.places, strict=True):
                order.append(left[lane].popleft())
        short = {lane: len(left[lane]) for lane, ranks in places.items() if len(left[lane]) < ranks}
        lanes = tuple(lane for lane in deal.lanes if left[lane])
        deal = Deal(lanes, world, {lane: n for lane, n in {**deal.short, **short}.items() if lane in lanes})
        deals += 1
    for order, (lane, *_) in zip(orders, deal.places, strict=False):
        order.append(left[lane].popleft())
    return orders, deals


def _in_order(plans: list[LanePlan], names: list[str], order: list[tuple[int, int]]) -> SimulatedRank:
    """Return a rank's batches, (k, lane) in their order."""
    columns = {}
    for p in plans:
        rows: list[Any] = [p.counts, p.sizes[0].longest, *(s.padded for s in p.sizes), *(s.total for s in p.sizes)]
        rows += [p.sources.get(name) or [0] * len(p.counts) for name in names]
        columns[p.lane] = np.asarray(rows, np.int64).reshape(len(rows), -1)
    rows_of = 2 + 2 * len(plans[0].units) + len(names)
    all_ = np.array([columns[lane][:, k] for k, lane in order], np.int64).reshape(-1, rows_of).T
    units = len(plans[0].units)
    padded, total, sources = np.split(all_[2:], [units, 2 * units])
    return SimulatedRank(all_[0], all_[1], padded, total, sources)


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


def _buckets(pipeline: Pipeline, plans: list[LanePlan]) -> tuple[list[Bucket], float | None]:
    """Return the buckets of ``bucket_batch``, and how full batches are on average, compared with their budget."""
    stage = next((s for s in reversed(pipeline.stages) if s.gives == "batch"), None)
    if stage is None:
        return [], None
    of: dict[tuple[int, Any], list[_Planned]] = defaultdict(list)
    units = len(plans[0].units)
    for plan in plans:
        bounds = plan.boundaries or []  # lanes that find theirs have different ones
        index, ranges = index_of(bounds, units > 1), list(pairwise([0, *bounds, None]))
        if units > 1:
            ranges = [(0, tuple(high)) for high in bounds] or [(0, None)]
        for k, utterances in enumerate(plan.counts):
            longest, *sizes = zip(*((s.longest[k], s.total[k], s.padded[k]) for s in plan.sizes), strict=True)
            if utterances:
                length = longest if units > 1 else longest[0]
                at = index(length)
                full = stage.fill_ratio(at, utterances, length) if isinstance(stage, MakesBatches) else None
                of[ranges[at]].append((utterances, full, sizes))
    fill = _mean_fill([batch for batches in of.values() for batch in batches])
    if not isinstance(stage, BucketBatch):
        return [], fill
    found = []
    for low, high in sorted(of, key=lambda one: (one[0], one[1] is None, one[1])):
        batches = of[low, high]
        padding = padding_of(*np.sum([batch[2] for batch in batches], axis=0))
        utterances = sum(batch[0] for batch in batches)
        found.append(Bucket(low, high, len(batches), utterances, _mean_fill(batches), padding))
    return found, fill


def _boundaries(pipeline: Pipeline, plans: list[LanePlan]) -> list[Any]:
    """Return boundaries for all utterances, where each lane finds its own."""
    stage = next((one for one in reversed(pipeline.stages) if isinstance(one, BucketBatch)), None)
    if stage is None or stage.bucket_boundaries is not None:
        return []
    lengths = np.concatenate([np.asarray([of.lengths for of in p.sizes], np.int64) for p in plans], axis=1).T
    if isinstance(stage.num_buckets, tuple):
        return pairs_of(lengths, stage.num_buckets)
    return [longest + 1 for longest in longest_of(lengths[:, 0], stage.num_buckets)[:-1]]


# Of a batch: utterances, how full it is, and its sizes by each length, without and with padding.
_Planned = tuple[int, float | None, list[tuple[int, ...]]]


def _mean_fill(batches: list[_Planned]) -> float | None:
    fills = [full for _, full, _ in batches if full is not None]
    return sum(fills) / len(fills) if fills else None
