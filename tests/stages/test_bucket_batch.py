"""Bucket batches: WeNet's sizes, frame budgets, boundaries found from lengths, and nobody waits for ever."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import Given, drained, keys, raw_items, run, started
from hypothesis import example, given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.origin import Origin
from uio_pipes.core.sample import Sample
from uio_pipes.stages.batches.bucket_batch import BucketBatch

LENGTHS = st.lists(st.integers(1, 120), max_size=120)
BOUNDS = st.lists(st.integers(1, 120), max_size=5, unique=True).map(sorted)


def bucketed(lengths: list[int], **options: Any) -> list[list[int]]:
    node, _ = started(BucketBatch(**options), lengths)
    return [[int(sample["key"]) for sample in batch] for batch in drained(node, limit=2000)]


def as_wenet(lengths: list[int], bounds: list[int], sizes: list[int]) -> list[list[int]]:
    """WeNet's rule, as its page of facts has it: bucket i holds lengths below boundary i; the rest at the end."""
    buckets: list[list[int]] = [[] for _ in sizes]
    out = []
    for number, length in enumerate(lengths):
        at = next((i for i, bound in enumerate(bounds) if length < bound), len(bounds))
        buckets[at].append(number)
        if len(buckets[at]) == sizes[at]:
            out.append(buckets[at])
            buckets[at] = []
    return out + [bucket for bucket in buckets if bucket]


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, bounds=BOUNDS, data=st.data())
def test_sizes_are_wenet_s_buckets(lengths: list[int], bounds: list[int], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    assert bucketed(lengths, bucket_boundaries=bounds, bucket_batch_sizes=sizes) == as_wenet(lengths, bounds, sizes)


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, bounds=BOUNDS, budget=st.integers(120, 900), wait=st.integers(1, 60))
def test_frame_budget_is_kept_and_nothing_is_lost(
    lengths: list[int], bounds: list[int], budget: int, wait: int
) -> None:
    got = bucketed(lengths, bucket_boundaries=bounds, max_frames=budget, max_wait=wait)
    check(got, lengths, budget)
    for batch in got:
        assert len({next((i for i, b in enumerate(bounds) if lengths[n] < b), -1) for n in batch}) == 1


def check(got: list[list[int]], lengths: list[int], budget: int) -> None:
    assert all(got)
    assert sorted(n for batch in got for n in batch) == [n for n, frames in enumerate(lengths) if frames <= budget]
    assert all(max(lengths[n] for n in batch) * len(batch) <= budget for batch in got)


@settings(max_examples=100, deadline=None)
@given(
    lengths=LENGTHS,
    budget=st.integers(120, 900),
    buckets=st.integers(1, 12),
    wait=st.integers(1, 130) | st.just(10_000),
)
def test_found_boundaries_keep_the_budget_and_lose_nothing(
    lengths: list[int], budget: int, buckets: int, wait: int
) -> None:
    check(bucketed(lengths, max_frames=budget, num_buckets=buckets, max_wait=wait), lengths, budget)


def test_found_boundaries_share_the_frames_evenly() -> None:
    """Each of the buckets gets about as many frames; lengths differ little within a batch."""
    lengths = [10 + (i * 7919) % 991 for i in range(3000)]
    got = bucketed(lengths, max_frames=4000, num_buckets=5, max_wait=100_000)
    spread = [max(lengths[n] for n in b) / min(lengths[n] for n in b) for b in got if len(b) > 1]
    assert sorted(spread)[len(spread) // 2] < 1.8
    padded = sum(max(lengths[n] for n in b) * len(b) for b in got)
    assert sum(lengths) / padded > 0.8


def test_found_boundaries_of_equal_lengths() -> None:
    """Also where those that boundaries are found from have waited too long: they are still no batches of one."""
    assert [len(b) for b in bucketed([50] * 25, max_frames=500, num_buckets=4)] == [10, 10, 5]
    assert [len(b) for b in bucketed([50] * 20, max_frames=500, num_buckets=1, max_wait=3)] == [4, 4, 4, 4, 4]
    assert bucketed([], max_frames=500) == []


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, bounds=BOUNDS, wait=st.integers(1, 40))
def test_no_utterance_waits_for_more_than_max_wait_others(lengths: list[int], bounds: list[int], wait: int) -> None:
    """The oldest utterance of a batch came at most ``max_wait`` utterances before the newest that has been taken in."""
    node, _ = started(BucketBatch(bounds, max_frames=2000, max_wait=wait), lengths)
    for batch in drained(node, limit=2000):
        oldest = min(int(sample["key"]) for sample in batch)
        assert node.arrived - oldest <= wait + 1 or node.arrived == len(lengths)


# By two lengths

PAIRS = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 40)), max_size=80)
PAIR_BOUNDS = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 40)), min_size=1, max_size=6, unique=True)
BUDGETS: list[dict[str, Any]] = [
    {"max_frames": 400},
    {"max_frames": 900, "quadratic": 60},
    {"max_tokens": 150},
    {"max_cost": 4_000, "cost": lambda frames, tokens: frames // 2 * (tokens + 1)},
    {"max_cost": 300, "cost": lambda frames, tokens: frames + tokens**2 / 7},
]


class Pairs(Given):
    """Utterances of so many frames and tokens."""

    lengths: list[tuple[int, int]]  # type: ignore[assignment]

    def next(self) -> Sample:
        if self.position >= len(self.lengths):
            raise StopIteration
        number, self.position = self.position, self.position + 1
        frames, tokens = self.lengths[number]
        fields = {"key": str(number), "feat": torch.zeros(1).expand(frames, 1), "label": [7] * tokens}
        return Sample(fields, Origin(number), self.run_key, self.chain)


class Ran:
    """A node over ``pairs`` in one lane, run to its end."""

    def __init__(self, stage: BucketBatch, pairs: list[tuple[int, int]]) -> None:
        self.ledger = Ledger()
        lane = Lane(self.ledger)
        node = stage.build(Pairs(pairs, lane), lane, Site(stage.name, 0))  # type: ignore[arg-type]
        node.reset(None)
        self.batches = [[int(sample["key"]) for sample in batch] for batch in drained(node)]


def cost_of(budget: dict[str, Any]) -> Callable[[int, int], float]:
    """The cost of an utterance that is padded to two lengths, as the documentation has it."""
    quadratic = budget.get("quadratic")
    of_one = (lambda n: n + n * n / quadratic) if quadratic else (lambda n: n)
    named = {"max_frames": lambda f, t: of_one(f), "max_tokens": lambda f, t: of_one(t), "max_cost": budget.get("cost")}
    return next(named[name] for name in budget if name.startswith("max_"))  # type: ignore[return-value]


@st.composite
def in_pairs(draw: st.DrawFn) -> BucketBatch:
    bounds = draw(st.none() | PAIR_BOUNDS.map(sorted))
    many = {} if bounds else {"num_buckets": draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))}
    budget = draw(st.sampled_from(BUDGETS))
    ends = {"drop_last": draw(st.booleans()), "min_batch_size": draw(st.integers(1, 4))}
    return BucketBatch(bounds, max_wait=draw(st.integers(1, 60)), **many, **budget, **ends)


def budget_of(stage: BucketBatch) -> tuple[Callable[[int, int], float], int]:
    names = ("max_frames", "max_tokens", "max_cost", "quadratic", "cost")
    budget = {name: value for name in names if (value := getattr(stage, name)) is not None}
    return cost_of(budget), next(value for name, value in budget.items() if name.startswith("max_"))


LONG_IN_ONE_EACH = [(100, 1), (2, 39), (100, 1), (2, 39)]


@settings(max_examples=400, deadline=None)
@given(stage=in_pairs(), pairs=PAIRS)
@example(BucketBatch([(120, 40)], max_cost=3_000, cost=BUDGETS[3]["cost"], min_batch_size=2), LONG_IN_ONE_EACH)
def test_two_lengths_keep_the_budget_and_lose_nothing_uncounted(
    stage: BucketBatch, pairs: list[tuple[int, int]]
) -> None:
    cost, most = budget_of(stage)
    ran = Ran(stage, pairs)
    for batch in ran.batches:
        assert len(batch) >= stage.min_batch_size
        assert len(batch) * cost(max(pairs[n][0] for n in batch), max(pairs[n][1] for n in batch)) <= most
    out = [n for batch in ran.batches for n in batch]
    fit = {n for n, pair in enumerate(pairs) if stage.min_batch_size * max(1, cost(*pair)) <= most}
    assert len(out) == len(set(out))
    assert set(out) <= fit
    skipped = Counter(ran.ledger.skipped)
    assert skipped["over_budget"] == len(pairs) - len(fit)
    assert sum(skipped.values()) == len(pairs) - len(out)
    assert set(skipped) <= {"over_budget", "drop_last", "min_batch_size"}
    if stage.min_batch_size == 1:
        assert not skipped["min_batch_size"]
        assert stage.drop_last or len(out) == len(fit)


@settings(max_examples=150, deadline=None)
@given(bounds=PAIR_BOUNDS.map(sorted), pairs=PAIRS, wait=st.integers(1, 60))
def test_a_batch_is_of_one_bucket(bounds: list[tuple[int, int]], pairs: list[tuple[int, int]], wait: int) -> None:
    def bucket(pair: tuple[int, int]) -> int:
        return next((i for i, (f, t) in enumerate(bounds) if pair[0] <= f and pair[1] <= t), len(bounds) - 1)

    for batch in Ran(BucketBatch(bounds, max_frames=400, max_wait=wait), pairs).batches:
        assert len({bucket(pairs[n]) for n in batch}) == 1


@settings(max_examples=150, deadline=None)
@given(bounds=PAIR_BOUNDS.map(sorted), pairs=PAIRS, data=st.data())
def test_sizes_of_pairs_and_what_fits_no_bucket(
    bounds: list[tuple[int, int]], pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=len(bounds), max_size=len(bounds)))
    ran = Ran(BucketBatch(bounds, sizes), pairs)
    of = [[n for n, p in enumerate(pairs) if _first(bounds, p) == i] for i in range(len(bounds))]
    for batch in ran.batches:
        (at,) = {_first(bounds, pairs[n]) for n in batch}
        assert len(batch) <= sizes[at]  # type: ignore[index]
    assert sorted(n for batch in ran.batches for n in batch) == sorted(n for some in of for n in some)
    assert ran.ledger.failures == len(pairs) - sum(map(len, of))
    if ran.ledger.reports:
        assert re.search(r"tokens fit into no bucket: add a larger bucket.*\.filter", ran.ledger.reports[0])


def _first(bounds: list[tuple[int, int]], pair: tuple[int, int]) -> int | None:
    return next((i for i, (first, second) in enumerate(bounds) if pair[0] <= first and pair[1] <= second), None)


def labelled(items: list[dict[str, Any]], seen: list[str]) -> uio.Pipeline:
    def tokenize(text: str) -> list[int]:
        seen.append(text)
        return list(range(1, 2 + int(text[1:]) % 7))

    return uio.from_raw_list(items).decode_audio().fbank(8).tokenize(tokenize)


@pytest.mark.parametrize("buckets", [{"bucket_boundaries": [(22, 3), (22, 8), (40, 8)]}, {"num_buckets": (2, 2)}])
def test_real_tensors_are_within_the_budget_of_both(tmp_path: Path, buckets: dict[str, Any]) -> None:
    seen: list[str] = []
    graph = labelled(raw_items(tmp_path, 40), seen)
    cost = {"max_cost": 400, "cost": lambda frames, tokens: frames * (tokens + 1)}
    batches, loader = run(graph.bucket_batch(**buckets, **cost).pad())
    assert len(set(keys(batches))) == loader.stats().utterances == len(seen) == 40, "tokenized once"
    for batch in batches:
        assert len(batch["keys"]) * batch["feats"].shape[1] * (batch["target"].shape[1] + 1) <= 400


def test_planning_two_lengths_decodes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [item | {"duration": 0.2} for item in raw_items(tmp_path, 12)]
    for item in items:
        Path(item["wav"]).unlink()
    graph = labelled(items, []).bucket_batch(num_buckets=(2, 2), max_frames=60).pad()
    assert len(uio.Loader(graph)) > 1


def test_any_two_lengths(tmp_path: Path) -> None:
    items = [item | {"prompt": item["wav"]} for item in raw_items(tmp_path, 20)]
    graph = labelled(items, []).decode_audio(of="prompt").fbank(10, of="prompt")

    def half(n: uio.Lengths) -> float:
        return n.tokens / 2

    batches, _ = run(graph.bucket_batch(num_buckets=(2, 2), max_frames=80, length=["prompt.frames", half]).pad())
    assert len(keys(batches)) == 20
    assert all(batch["prompt_feats"].shape[0] * batch["prompt_feats"].shape[1] <= 80 for batch in batches)


def test_boundaries_may_be_numpy_s() -> None:
    stage = BucketBatch([(20, 5), (50, 9)], max_frames=100)
    for same in (np.array([[20, 5], [50, 9]]), [(np.int64(20), np.int64(5)), (50, 9)]):
        assert BucketBatch(same, max_frames=100).describe(stable=True) == stage.describe(stable=True)  # type: ignore[arg-type]
    for wrong in (np.array(5), np.array([0.5]), [np.bool_(True)]):
        with pytest.raises(uio.PipelineError, match="must be a list of whole numbers"):
            BucketBatch(wrong, max_frames=100)  # type: ignore[arg-type]


def test_what_a_cost_cannot_tell_is_a_failure_or_of_a_batch_an_error_of_the_run() -> None:
    def ran(cost: Any, *pairs: tuple[int, int], most: int = 9) -> Ran:
        return Ran(BucketBatch([(9, 3)], max_cost=most, cost=cost), list(pairs))

    with pytest.raises(uio.PipelineError, match="cost returned None for 5 and 2; it must return a number"):
        ran(lambda frames, tokens: None, (5, 2))
    with pytest.raises(uio.PipelineError, match=r"as cost failed for 5 frames and 3 tokens: KeyError: \(5, 3\)"):
        ran(lambda frames, tokens: {(5, 2): 1, (4, 3): 1}[frames, tokens], (5, 2), (4, 3), most=90)
    ledger = ran(lambda frames, tokens: frames // tokens, (5, 0), (5, 2)).ledger
    assert ledger.skipped == {"cost_failed": 1}
    told = "the function given as cost failed for 5 frames and 0 tokens: ZeroDivisionError: "
    assert f"bucket_batch: {told}" in ledger.reports[0]
    (report,) = ran(lambda frames, tokens: frames * tokens, (5, 2)).ledger.reports
    assert "5 frames and 2 tokens (that cost 10) exceed the budget of a whole batch (9); raise max_cost" in report


@pytest.mark.parametrize("length", [("frames", "tokens"), ("tokens", "frames")])
def test_of_two_lengths_one_may_be_nothing(length: tuple[str, str]) -> None:
    given = [{"key": f"U{i}", "feat": torch.zeros(0 if i == 1 else 5, 2), "label": [1] * (i % 3)} for i in range(6)]
    loader = uio.Loader(
        uio.from_iterable(given).bucket_batch(num_buckets=(1, 1), max_cost=10**6, cost=_sum, length=length)
    )
    assert sorted(sample["key"] for batch in loader for sample in batch) == ["U0", "U2", "U3", "U4", "U5"]
    assert loader.stats().skipped == {"too_short": 1}


def _sum(first: int, second: int) -> int:
    return first + second
