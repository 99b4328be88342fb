"""Boundaries of buckets, batches of neighbours out of a sorted window, and batches of a fixed number."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
from helpers_bad import drained, keys, raw_items, run, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.batches.buckets import CANDIDATES, even_boundaries, index_of, longest_of, pairs_of
from uio_pipes.stages.batches.dynamic import Batch
from uio_pipes.stages.batches.window import LAG, WindowBatch

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=40)
Figures = npt.NDArray[np.float64]
PAIRS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), max_size=60)


def padded(lengths: list[int], longest: list[int]) -> int:
    return sum(next(high for high in longest if length <= high) for length in lengths)


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, buckets=st.integers(1, 4))
def test_no_other_boundaries_leave_less_padding(lengths: list[int], buckets: int) -> None:
    found = longest_of(np.array(lengths), buckets)
    assert len(found) == min(buckets, len(set(lengths)))
    assert found == sorted(found)
    others, last = sorted(set(lengths))[:-1], max(lengths)
    assert found[-1] == last
    ways = ([*some, last] for some in combinations(others, len(found) - 1))
    assert padded(lengths, found) == min(padded(lengths, way) for way in ways)


def test_many_different_lengths_cost_little_more() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(6, 0.6, 20_000), 20, 4_000).astype(np.int64)
    assert len(np.unique(lengths)) > 3 * CANDIDATES
    found = longest_of(lengths, 10)
    of = np.array(found)[np.searchsorted(found, lengths)]
    even = [bound - 1 for bound in even_boundaries(lengths.tolist(), 10)] + [int(lengths.max())]
    of_even = np.array(even)[np.searchsorted(even, lengths)]
    assert of.sum() - lengths.sum() < 0.9 * (of_even.sum() - lengths.sum())


@settings(max_examples=200, deadline=None)
@given(pairs=PAIRS, buckets=st.tuples(st.integers(1, 4), st.integers(1, 3)))
def test_found_pairs_rise_and_are_not_too_many(pairs: list[tuple[int, int]], buckets: tuple[int, int]) -> None:
    found = pairs_of(np.array(pairs, np.int64).reshape(-1, 2), buckets)
    assert found == sorted(set(found))
    assert len(found) <= buckets[0] * buckets[1]
    if len(pairs) < 100:  # none is an outlier
        assert all(any(a <= first and b <= second for first, second in found) for a, b in pairs)


def test_outliers_by_tokens_are_left_to_longer_buckets() -> None:
    """One of a hundred has ten times the tokens: it makes no bucket of short recordings longer."""
    short = [(100, 10)] * 198 + [(100, 100)] * 2
    assert pairs_of(np.array(short + [(1_000, 100)] * 100), (2, 1)) == [(100, 10), (1_000, 100)]


def test_padding_of_speech_by_two_lengths() -> None:
    """Tokens of speech of one length differ: 10 × 3 buckets halve their padding."""
    rng = np.random.default_rng(1)
    frames = np.clip(rng.lognormal(6.1, 0.65, 20_000), 50, 3_000).astype(np.int64)
    tokens = rng.poisson(frames * np.clip(rng.lognormal(-3.5, 0.3, 20_000), 0.005, 0.15))
    lengths = np.stack([frames, tokens], axis=1)

    def padding(pairs: list[tuple[int, int]]) -> float:
        at = [index_of(pairs, True)(pair) for pair in map(tuple, lengths.tolist())]
        return float(1 - tokens.sum() / np.array(pairs)[at, 1].sum())

    assert padding(pairs_of(lengths, (10, 3))) < 0.5 * padding(pairs_of(lengths, (10, 1)))


# Windows


def windowed(lengths: list[int], **options: object) -> list[list[int]]:
    node, _ = started(WindowBatch(**options), lengths)  # type: ignore[arg-type]
    return [[int(sample["key"]) for sample in batch] for batch in drained(node, limit=2000)]


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 120), max_size=150),
    budget=st.integers(120, 900),
    window=st.integers(1, 60),
    quadratic=st.sampled_from([None, 50]),
)
def test_budget_is_kept_and_nothing_is_lost(
    lengths: list[int], budget: int, window: int, quadratic: int | None
) -> None:
    got = windowed(lengths, max_frames=budget, window=window, quadratic=quadratic)

    def cost(n: int) -> float:
        return lengths[n] + (lengths[n] ** 2 / quadratic if quadratic else 0)

    assert all(max(map(cost, batch)) * len(batch) <= budget for batch in got)
    assert sorted(n for batch in got for n in batch) == [n for n in range(len(lengths)) if cost(n) <= budget]


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 120), min_size=80, max_size=200), window=st.integers(1, 8))
def test_none_waits_much_longer_than_ten_windows(lengths: list[int], window: int) -> None:
    arrived, most = window, 0
    for batch in windowed(lengths, max_frames=400, window=window):
        most = max(most, arrived - min(batch))
        arrived = min(len(lengths), arrived + len(batch))
    assert most <= LAG * window + 2 * window


def speech(count: int, seed: int) -> list[int]:
    drawn = np.random.default_rng(seed).lognormal(np.log(450), 0.55, count)
    return [int(x) for x in np.clip(drawn, 60, 3000)]


def test_padding_of_speech_is_below_3_percent() -> None:
    lengths = speech(6000, 1)
    batches = windowed(lengths, max_frames=12_000, window=1500)
    padded = sum(len(batch) * max(lengths[n] for n in batch) for batch in batches)
    assert 1 - sum(lengths) / padded < 0.03
    assert padded / len(batches) > 0.95 * 12_000


def of_steps(stage: WindowBatch, seeds: Callable[[int], int], measure: Callable[[list[int]], float]) -> Figures:
    """What ``measure`` says of 60 batches of each of 8 lanes, (lanes, steps); ``seeds`` of their draws."""
    rows = []
    for lane in range(8):
        lengths = speech(3500, lane)
        node, _ = started(stage, lengths, lane=(lane, 8), seed=seeds(lane))
        rows.append([measure([lengths[int(sample["key"])] for sample in node.next()]) for _ in range(60)])
    return np.array(rows, float)


def lost(costs: Figures) -> float:
    return float(1 - costs.mean(axis=0).sum() / costs.max(axis=0).sum())


def test_batches_of_a_step_are_alike_in_all_lanes_in_cost_and_in_length() -> None:
    stage = WindowBatch(max_frames=12_000)
    assert lost(of_steps(stage, lambda lane: 0, lambda batch: len(batch) * max(batch))) < 0.012  # 3 % by place alone
    assert lost(of_steps(stage, lambda lane: 0, lambda batch: len(batch) * max(batch) ** 2)) < 0.06
    assert lost(of_steps(stage, lambda lane: lane, lambda batch: len(batch) * max(batch) ** 2)) > 0.25


def test_cost_is_balanced_where_it_is_not_that_of_frames() -> None:
    def squared(frames: int) -> float:
        return frames + frames**2 / 500

    def of(stage: WindowBatch) -> float:
        return lost(of_steps(stage, lambda lane: 0, lambda batch: len(batch) * squared(max(batch))))

    assert of(WindowBatch(max_cost=24_000, cost=squared)) < 0.025 < 0.03 < of(WindowBatch(max_frames=12_000))


# Fixed numbers


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 50), size=st.integers(1, 20))
def test_all_come_in_order_and_only_the_last_batch_is_smaller(count: int, size: int) -> None:
    node, _ = started(Batch(size), [1] * count)
    batches = list(drained(node))
    assert [int(sample["key"]) for batch in batches for sample in batch] == list(range(count))
    assert [len(b) for b in batches] == [size] * (count // size) + [count % size] * (count % size > 0)


def test_without_pad_a_batch_is_a_list_of_dicts_with_everything_computed(tmp_path: Path) -> None:
    batches, loader = run(uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().fbank(20).batch(2))
    assert keys(batches) == ["R000", "R001", "R002"]
    assert all(type(sample) is dict and sample["feat"].shape[1] == 20 for batch in batches for sample in batch)
    assert loader.stats().utterances == 3


def test_a_failed_sample_leaves_its_batch_smaller_and_an_empty_batch_is_not_delivered(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 6)
    for i in (0, 2, 3):
        Path(items[i]["wav"]).write_bytes(b"no audio")
    for graph in (
        uio.from_raw_list(items).decode_audio().batch(2),
        uio.from_raw_list(items).decode_audio().batch(2).pad(),
    ):
        batches, loader = run(graph)
        assert [keys([b]) for b in batches] == [["R001"], ["R005", "R004"]] or keys(batches) == ["R001", "R004", "R005"]
        assert loader.stats().batches == 2
        assert loader.stats().failures == 3
