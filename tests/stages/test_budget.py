"""Rules that every type of batch keeps with every option: the budget, the minimum, and no utterance lost."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers_bad import Given, drained, raw_items, run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage
from uio_pipes.stages.batches.bucket_batch import BucketBatch
from uio_pipes.stages.batches.dynamic import Batch, DynamicBatch
from uio_pipes.stages.batches.window import WindowBatch

RATE = 8000


class Waveforms(Given):
    """As ``Given``, waveforms of the given numbers of samples (that share one number in memory)."""

    def next(self) -> Sample:
        sample = super().next()
        wav = torch.zeros(1).expand(self.lengths[int(sample.key)])
        return Sample({"key": sample.key, "wav": wav, "sample_rate": RATE}, sample.origin, self.run_key, self.chain)


class Rules(NamedTuple):
    """A stage, and what it promises, as plain numbers."""

    stage: Stage
    unit: str = "frames"
    most: int | None = None  # None: no budget
    quadratic: int | None = None
    least: int = 1
    drop_last: bool = False

    def cost(self, size: int) -> Fraction:
        return size + Fraction(size * size, self.quadratic) if self.quadratic else Fraction(size)

    def fits(self, sizes: Sequence[int]) -> bool:
        return self.most is None or len(sizes) * self.cost(max(sizes)) <= self.most


class Run:
    """A node over ``lengths`` in one lane, run to its end."""

    def __init__(self, rules: Rules, lengths: Sequence[int]) -> None:
        self.ledger = Ledger()
        lane = Lane(self.ledger)
        source = (Waveforms if rules.unit == "samples" else Given)(lengths, lane)
        node: Node = rules.stage.build(source, lane, Site(rules.stage.name, 0))
        node.reset(None)
        self.batches = [[int(sample["key"]) for sample in batch] for batch in drained(node)]


@st.composite
def budgets(draw: st.DrawFn) -> dict[str, Any]:
    unit = draw(st.sampled_from(["frames", "samples"]))
    options: dict[str, Any] = {
        f"max_{unit}": draw(st.integers(1, 600) | st.integers(100, 300)) * (80 if unit == "samples" else 1)
    }
    options["quadratic"] = draw(st.none() | st.integers(1, 300).map(lambda q: q * (80 if unit == "samples" else 1)))
    return options


@st.composite
def rules(
    draw: st.DrawFn, kinds: Sequence[str] = ("batch", "dynamic", "window", "bucket", "sizes"), most_least: int = 5
) -> Rules:
    kind = draw(st.sampled_from(kinds))
    drop, least = draw(st.booleans()), draw(st.integers(1, most_least))
    if kind == "batch":
        return Rules(Batch(draw(st.integers(1, 9)), drop_last=drop), drop_last=drop)
    ends = {"drop_last": drop, "min_batch_size": least}
    bounds = draw(st.none() | st.lists(st.integers(1, 120), max_size=5, unique=True).map(sorted))
    placed = {"bucket_boundaries": bounds, "max_wait": draw(st.integers(1, 60))}
    placed |= {"num_buckets": 4} if bounds is None else {}
    if kind == "sizes":
        count = 4 if bounds is None else len(bounds) + 1
        sizes = draw(st.lists(st.integers(least, 9), min_size=count, max_size=count))
        return Rules(BucketBatch(**placed, **ends, bucket_batch_sizes=sizes), least=least, drop_last=drop)
    budget = draw(budgets())
    made: dict[str, Callable[[], Stage]] = {
        "dynamic": lambda: DynamicBatch(**budget, **ends),
        "window": lambda: WindowBatch(**budget, **ends, window=draw(st.integers(least, 60))),
        "bucket": lambda: BucketBatch(**placed, **budget, **ends),
    }
    stage = made[kind]()
    unit = "frames" if "max_frames" in budget else "samples"
    return Rules(stage, unit, budget[f"max_{unit}"], budget["quadratic"], least, drop)


def speech(seed: int, count: int) -> list[int]:
    """Lengths as corpora have them: mostly middling, some long."""
    return np.clip(np.random.default_rng(seed).lognormal(3.5, 0.6, count), 1, 120).astype(int).tolist()


LENGTHS = st.lists(st.integers(0, 120), max_size=60) | st.builds(speech, st.integers(0, 2**32), st.integers(40, 120))


def in_unit(rule: Rules, lengths: list[int]) -> list[int]:
    """Sizes in frames as waveforms' samples, where those are counted: not whole multiples of 10 ms."""
    return [max(0, 80 * n - n % 7) for n in lengths] if rule.unit == "samples" else lengths


@settings(max_examples=400, deadline=None)
@given(rule=rules(), lengths=LENGTHS)
def test_budget_minimum_and_count_are_kept_and_what_is_left_out_is_counted(rule: Rules, lengths: list[int]) -> None:
    sizes = in_unit(rule, lengths)
    ran = Run(rule, sizes)
    skipped = Counter(ran.ledger.skipped)
    for batch in ran.batches:
        assert len(batch) >= rule.least
        assert rule.fits([sizes[n] for n in batch])
    given_out = [n for batch in ran.batches for n in batch]
    fit = [n for n, size in enumerate(sizes) if rule.stage.name == "batch" or (size and rule.fits([size] * rule.least))]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= set(fit)
    left_out = skipped["drop_last"] + skipped["min_batch_size"]
    assert len(given_out) + left_out == len(fit)
    assert skipped["over_budget"] + skipped["too_short"] + len(fit) == len(sizes)
    assert skipped["min_batch_size"] < rule.least
    assert rule.drop_last or not skipped["drop_last"]
    assert sum(skipped.values()) == len(sizes) - len(given_out)


@settings(max_examples=150, deadline=None)
@given(rule=rules(["dynamic"]), lengths=LENGTHS)
def test_a_dynamic_batch_ends_only_where_the_next_would_not_fit(rule: Rules, lengths: list[int]) -> None:
    sizes = in_unit(rule, lengths)
    ran = Run(rule, sizes)
    if rule.least == 1 and not rule.drop_last:
        everything = [n for batch in ran.batches for n in batch]
        assert everything == [n for n, size in enumerate(sizes) if size and rule.fits([size])], "in their order"
    for batch, after in zip(ran.batches, ran.batches[1:], strict=False):
        assert not rule.fits([sizes[n] for n in [*batch, after[0]]])


@settings(max_examples=150, deadline=None)
@given(rule=rules(["dynamic", "window", "bucket", "sizes"], most_least=1), lengths=LENGTHS)
def test_drop_last_leaves_out_only_what_another_one_would_have_fitted_into(rule: Rules, lengths: list[int]) -> None:
    sizes = in_unit(rule, lengths)
    kept, everything = (
        Run(rule._replace(stage=replace(rule.stage, drop_last=d)), sizes).batches for d in (True, False)
    )
    assert kept == [batch for batch in everything if batch in kept]
    for batch in everything:
        longest = max(sizes[n] for n in batch)
        assert batch in kept or rule.fits([longest] * (len(batch) + 1))


# by hand


def batches_of(stage: Stage, sizes: list[int], unit: str = "frames") -> tuple[list[list[int]], dict[str, int]]:
    ran = Run(Rules(stage, unit), sizes)
    return ran.batches, ran.ledger.skipped


def test_quadratic_doubles_the_cost_of_an_utterance_as_long_as_it_is() -> None:
    """Lhotse: effective length = n + n² / quadratic. 100 + 100² / 100 = 200; 50 + 25 = 75."""
    assert batches_of(DynamicBatch(400), [100] * 5)[0] == [[0, 1, 2, 3], [4]]
    assert batches_of(DynamicBatch(400, quadratic=100), [100] * 5)[0] == [[0, 1], [2, 3], [4]]
    assert batches_of(DynamicBatch(400, quadratic=100), [50] * 6)[0] == [[0, 1, 2, 3, 4], [5]]
    got, _ = batches_of(BucketBatch([60], max_frames=400, quadratic=100), [50, 100] * 5)
    assert got == [[1, 3], [5, 7], [0, 2, 4, 6, 8], [9]]


def test_quadratic_is_exact_at_the_border() -> None:
    """7 + 49 / 3 = 23.33…, three of them are exactly 70."""
    assert len(batches_of(DynamicBatch(70, quadratic=3), [7] * 3)[0]) == 1
    assert len(batches_of(DynamicBatch(69, quadratic=3), [7] * 3)[0]) == 2


def test_samples_are_counted_to_the_last_one() -> None:
    one = partial(batches_of, sizes=[1001, 999, 1001], unit="samples")
    assert one(DynamicBatch(max_samples=3003))[0] == [[0, 1, 2]]
    assert one(DynamicBatch(max_samples=3002))[0] == [[0, 1], [2]]
    assert one(BucketBatch([5000], max_samples=3003))[0] == [[0, 1, 2]]
    assert one(BucketBatch([5000], max_samples=3002))[0] == [[0, 1], [2]]


def test_dynamic_minimum_leaves_out_only_the_end_of_the_lane() -> None:
    got, skipped = batches_of(DynamicBatch(100, min_batch_size=3), [30, 30, 30, 34, 30, 30, 30, 10])
    assert got == [[0, 1, 2], [4, 5, 6]]
    assert skipped == {"over_budget": 1, "min_batch_size": 1}


def test_buckets_at_the_end_join_up_to_the_minimum() -> None:
    stage = partial(BucketBatch, [20, 40])
    sizes = [10, 30, 31, 50, 11, 51]
    assert batches_of(stage(max_frames=1000), sizes)[0] == [[0, 4], [1, 2], [3, 5]]
    assert batches_of(stage(max_frames=1000, min_batch_size=3), sizes)[0] == [[0, 4, 1], [2, 3, 5]]
    assert batches_of(stage(max_frames=1000, min_batch_size=4), sizes)[0] == [[0, 4, 1, 2, 3, 5]]
    got, skipped = batches_of(stage(max_frames=204, min_batch_size=4), sizes)
    assert (got, skipped) == ([[0, 4, 1, 2]], {"min_batch_size": 2})


def test_a_large_bucket_at_the_end_leaves_enough_for_the_batch_after_it() -> None:
    """Eight are left: not 5 and 3, of which the 3 would be lost, nor 8, for which the budget is too small."""
    stage = BucketBatch([20], max_frames=140, min_batch_size=4)
    assert batches_of(stage, [10, 30, 10, 30, 10, 30, 10, 10]) == ([[0, 2, 4, 6], [7, 1, 3, 5]], {})


def test_a_bucket_that_waited_takes_from_its_neighbours() -> None:
    stage = BucketBatch([20, 40], max_frames=400, max_wait=4, min_batch_size=3)
    got, _ = batches_of(stage, [10, 50, 50, 30, 30])
    assert got[0] == [0, 3, 4]


def test_drop_last_of_batch() -> None:
    assert batches_of(Batch(3, drop_last=True), [1] * 8) == ([[0, 1, 2], [3, 4, 5]], {"drop_last": 2})
    assert batches_of(Batch(3, drop_last=True), [1] * 6) == ([[0, 1, 2], [3, 4, 5]], {})


def test_drop_last_keeps_a_last_batch_that_is_full() -> None:
    assert batches_of(DynamicBatch(100, drop_last=True), [50] * 4) == ([[0, 1], [2, 3]], {})
    assert batches_of(DynamicBatch(100, drop_last=True), [50] * 3) == ([[0, 1]], {"drop_last": 1})
    got = batches_of(BucketBatch([20], max_frames=60, drop_last=True), [10, 30, 10, 30, 30])
    assert got == ([[1, 3]], {"drop_last": 3})


def test_over_the_budget_tells_all_numbers() -> None:
    ledger_of = partial(Run, lengths=[90])
    for options, texts in (
        ({"max_frames": 80}, ["90 frames", "(80)", "max_frames"]),
        ({"max_frames": 170, "quadratic": 90}, ["90 frames (that cost 180)", "(170)"]),
        ({"max_frames": 100, "min_batch_size": 2}, ["in a batch of at least 2", "(100)"]),
        ({"max_samples": 89}, ["90 samples", "(89)", "max_samples"]),
    ):
        unit = "samples" if "max_samples" in options else "frames"
        ran = ledger_of(Rules(DynamicBatch(**options), unit))
        assert ran.ledger.skipped == {"over_budget": 1}
        assert all(text in ran.ledger.reports[0] for text in texts)


@pytest.mark.parametrize("stage", [DynamicBatch, partial(BucketBatch, [50])])
def test_samples_of_features_or_of_seconds_are_refused_with_the_remedy(stage: Any, tmp_path: Path) -> None:
    items = [{"key": "a", "wav": "none", "txt": "", "duration": 1.5}]
    graph = uio.from_raw_list(items).decode_audio()
    with pytest.raises(uio.PipelineError, match=r"features.*max_frames"):
        list(uio.Loader(graph.fbank().then(stage(max_samples=16_000))))
    with pytest.raises(uio.PipelineError, match=r"`duration`.*resample"):
        list(uio.Loader(graph.then(stage(max_samples=16_000))))


@pytest.mark.parametrize("stage", [DynamicBatch, partial(BucketBatch, [25])])
@pytest.mark.parametrize("seed", range(2))
def test_made_batches_are_within_the_budget(stage: Any, seed: int, tmp_path: Path) -> None:
    audio = uio.from_raw_list(raw_items(tmp_path, 30)).decode_audio().resample(16_000).speed_perturb([0.9, 1.0, 1.1])
    batches, loader = run(audio.then(stage(max_samples=16_000, min_batch_size=2)).pad(), seed=seed)
    assert loader.stats().utterances + loader.stats().skipped.get("min_batch_size", 0) == 30
    assert all(batch["pcm"].numel() <= 16_000 and len(batch["keys"]) >= 2 for batch in batches)
    batches, _ = run(audio.then(stage(max_frames=60)).pad(), seed=seed)
    assert all(-(-batch["pcm"].shape[1] // 160) * len(batch["keys"]) <= 60 for batch in batches), "10 ms each"
    batches, loader = run(audio.fbank(8).then(stage(max_frames=150, quadratic=50)).pad(), seed=seed)
    assert loader.stats().utterances == 30
    assert loader.stats().padded == sum(batch["feats"].shape[0] * batch["feats"].shape[1] for batch in batches)
    for batch in batches:
        count, longest, _ = batch["feats"].shape
        assert count * (longest + longest**2 / 50) <= 150


def test_seconds_are_rounded_up_to_samples_behind_resample() -> None:
    """1.5 s may stand for anything up to 1.6 s."""
    items = [{"key": str(i), "wav": "none", "txt": "", "duration": 1.5} for i in range(4)]
    graph = uio.from_raw_list(items).decode_audio().resample(16_000)
    for samples, count in ((2 * 25_610, 2), (2 * 25_599, 1)):
        lane = Lane(Ledger())
        node = graph.dynamic_batch(max_samples=samples).build(lane)
        node.reset(None)
        assert len(node.next()) == count
