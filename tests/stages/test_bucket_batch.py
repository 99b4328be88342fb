"""Bucket batches: WeNet's sizes, frame budgets, boundaries found from lengths, and nobody waits for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers_bad import drained, keys, raw_items, run, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.bucket_batch import BucketBatch

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
@given(lengths=LENGTHS, budget=st.integers(120, 900), buckets=st.integers(1, 12))
def test_found_boundaries_keep_the_budget_and_lose_nothing(lengths: list[int], budget: int, buckets: int) -> None:
    check(bucketed(lengths, max_frames=budget, num_buckets=buckets), lengths, budget)


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, budget=st.integers(120, 900), wait=st.integers(1, 130))
def test_found_boundaries_with_a_short_wait(lengths: list[int], budget: int, wait: int) -> None:
    check(bucketed(lengths, max_frames=budget, num_buckets=4, max_wait=wait), lengths, budget)


def test_while_boundaries_are_sought_nobody_waits() -> None:
    """The utterances that boundaries are found from have arrived long ago, and are still no batches of one."""
    assert [len(b) for b in bucketed([50] * 20, max_frames=500, num_buckets=1, max_wait=3)] == [4, 4, 4, 4, 4]


def test_found_boundaries_with_sizes() -> None:
    got = bucketed([10 + i % 50 for i in range(1500)], bucket_batch_sizes=[4, 3, 2], num_buckets=3)
    assert sorted(n for batch in got for n in batch) == list(range(1500))
    assert max(map(len, got)) == 4


def test_found_boundaries_share_the_frames_evenly() -> None:
    """Each of the buckets gets about as many frames; lengths differ little within a batch."""
    lengths = [10 + (i * 7919) % 991 for i in range(3000)]
    got = bucketed(lengths, max_frames=4000, num_buckets=5, max_wait=100_000)
    spread = [max(lengths[n] for n in b) / min(lengths[n] for n in b) for b in got if len(b) > 1]
    assert sorted(spread)[len(spread) // 2] < 1.8
    padded = sum(max(lengths[n] for n in b) * len(b) for b in got)
    assert sum(lengths) / padded > 0.8


def test_found_boundaries_of_equal_lengths() -> None:
    assert [len(b) for b in bucketed([50] * 25, max_frames=500, num_buckets=4)] == [10, 10, 5]
    assert bucketed([], max_frames=500) == []


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, bounds=BOUNDS, wait=st.integers(1, 40))
def test_no_utterance_waits_for_more_than_max_wait_others(lengths: list[int], bounds: list[int], wait: int) -> None:
    """The oldest utterance of a batch came at most ``max_wait`` utterances before the newest that has been taken in."""
    node, _ = started(BucketBatch(bounds, max_frames=2000, max_wait=wait), lengths)
    for batch in drained(node, limit=2000):
        oldest = min(int(sample["key"]) for sample in batch)
        assert node.arrived - oldest <= wait + 1 or node.arrived == len(lengths)


def test_a_lonely_one_is_given_when_it_has_waited() -> None:
    got = bucketed([5] + [50] * 30, bucket_boundaries=[10], bucket_batch_sizes=[9, 3], max_wait=7)
    assert got.index([0]) == 2


def test_too_long_for_the_budget_is_a_failure() -> None:
    node, ledger = started(BucketBatch([50], max_frames=100), [10, 101, 100, 0])
    assert sorted(int(sample["key"]) for batch in drained(node) for sample in batch) == [0, 2]
    assert ledger.skipped == {"over_budget": 1, "too_short": 1}


@pytest.mark.parametrize("options", [{"max_frames": 120}, {"bucket_batch_sizes": [4, 3, 2]}])
def test_real_frames_are_within_the_budget(tmp_path: Path, options: dict[str, Any]) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 40)).decode_audio().speed_perturb([0.9, 1.0, 1.1]).fbank(20)
    batches, loader = run(graph.bucket_batch([20, 25], **options).pad())
    assert len(set(keys(batches))) == 40
    for batch in batches:
        if "max_frames" in options:
            assert batch["feats"].shape[0] * batch["feats"].shape[1] <= 120
        bucket = {(n >= 20) + (n >= 25) for n in batch["feats_lengths"].tolist()}
        assert len(bucket) == 1
    assert loader.stats().utterances == 40


def test_state_in_the_middle_of_finding_boundaries(tmp_path: Path) -> None:
    """Stop and go on, batch by batch, where boundaries were found from the data."""
    items = raw_items(tmp_path, 30, samples=400)
    graph = uio.from_raw_list(items).decode_audio().bucket_batch(max_frames=40, num_buckets=3).pad()
    whole = keys(run(graph)[0])
    got: list[str] = []
    state = uio.Loader(graph).state_dict()
    while True:
        loader = uio.Loader(graph)
        loader.load_state_dict(state)
        batch = next(iter(loader), None)
        if batch is None:
            break
        got += batch["keys"]
        state = loader.state_dict()
    assert got == whole
