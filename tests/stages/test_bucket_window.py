"""Batches of neighbours out of a sorted window, and lanes that take them from the same place."""

from pathlib import Path

import numpy as np
import pytest
from contract import Case, check_cuts, record
from corpus import Corpus
from helpers_bad import drained, raw_items, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.batches.bucket_batch import BucketBatch

LENGTHS = st.lists(st.integers(1, 120), max_size=150)


def windowed(lengths: list[int], **options: object) -> list[list[int]]:
    node, _ = started(BucketBatch(**options), lengths)  # type: ignore[arg-type]
    return [[int(sample["key"]) for sample in batch] for batch in drained(node, limit=2000)]


@settings(max_examples=200, deadline=None)
@given(
    lengths=LENGTHS,
    budget=st.integers(120, 900),
    window=st.integers(1, 60),
    wait=st.integers(1, 300),
    sync=st.booleans(),
    quadratic=st.sampled_from([None, 50]),
)
def test_budget_is_kept_and_nothing_is_lost(
    lengths: list[int], budget: int, window: int, wait: int, sync: bool, quadratic: int | None
) -> None:
    got = windowed(lengths, max_frames=budget, window=window, max_wait=wait, sync=sync, quadratic=quadratic)

    def cost(n: int) -> float:
        return lengths[n] + (lengths[n] ** 2 / quadratic if quadratic else 0)

    assert all(max(map(cost, batch)) * len(batch) <= budget for batch in got)
    assert sorted(n for batch in got for n in batch) == [n for n in range(len(lengths)) if cost(n) <= budget]


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 120), min_size=80, max_size=200), wait=st.integers(1, 80))
def test_none_waits_longer_than_max_wait_and_a_batch(lengths: list[int], wait: int) -> None:
    arrived, most = 30, 0
    for batch in windowed(lengths, max_frames=400, window=30, max_wait=wait):
        most = max(most, arrived - min(batch))
        arrived = min(len(lengths), arrived + len(batch))
    assert most <= wait + 400  # one batch holds at most 400 utterances of one frame, and brings in as many


def speech(count: int, seed: int) -> list[int]:
    drawn = np.random.default_rng(seed).lognormal(np.log(450), 0.55, count)
    return [int(x) for x in np.clip(drawn, 60, 3000)]


def test_padding_of_speech_is_below_3_percent() -> None:
    lengths = speech(6000, 1)
    batches = windowed(lengths, max_frames=12_000, window=1500)
    padded = sum(len(batch) * max(lengths[n] for n in batch) for batch in batches)
    assert 1 - sum(lengths) / padded < 0.03
    assert padded / len(batches) > 0.95 * 12_000


def test_sync_takes_batches_of_one_length_in_all_lanes() -> None:
    def spread(sync: bool) -> float:
        stage = BucketBatch(max_frames=12_000, window=1500, sync=sync)
        longest = []
        for lane in range(8):
            lengths = speech(3500, lane)
            node, _ = started(stage, lengths, lane=(lane, 8))
            longest.append([max(lengths[int(s["key"])] for s in node.next()) for _ in range(60)])
        steps = np.array(longest)
        return float(((steps.max(0) - steps.min(0)) / steps.max(0)).mean())

    assert spread(sync=True) < 0.15 < 0.5 < spread(sync=False)


def test_order_changes_with_the_epoch(tmp_path: Path) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 60)).decode_audio().bucket_batch(max_frames=50, window=20).pad()
    loader = uio.Loader(pipeline, seed=1)
    first, second = ([batch["keys"] for batch in loader] for _ in range(2))
    assert first != second
    assert sorted(k for keys in first for k in keys) == sorted(k for keys in second for k in keys)


@pytest.mark.parametrize("lanes", [1, 3])
def test_goes_on_exactly(plain_corpus: Corpus, lanes: int) -> None:
    graph = uio.from_shard_list(plain_corpus.list, shuffle=True).decode_audio().shuffle(10)
    case = Case(graph.bucket_batch(max_frames=500, window=12, sync=True).pad(), {"lanes": lanes})
    recorded = record(case)
    check_cuts(recorded, range(len(recorded.digests) + 1))
