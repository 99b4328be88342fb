"""The buffer shuffle, a bounded permutation, uniform enough; the sort, shortest first within each buffer."""

from pathlib import Path

import numpy as np
import pytest
from helpers_bad import drained, keys, raw_items, run, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.order.shuffle import Shuffle, Sort


def shuffled(count: int, size: int, seed: int = 0) -> list[int]:
    node, _ = started(Shuffle(size), [1] * count, seed)
    return [int(sample["key"]) for sample in drained(node)]


@settings(max_examples=150, deadline=None)
@given(count=st.integers(0, 300), size=st.integers(1, 60), seed=st.integers(0, 2**63))
def test_a_permutation_that_lets_no_sample_wait_longer_than_told(count: int, size: int, seed: int) -> None:
    got = shuffled(count, size, seed)
    assert sorted(got) == list(range(count))
    for place, number in enumerate(got):
        arrived = min(count, place + size)  # how many had come when it left
        assert arrived - number <= 3 * size + 1
        assert number < arrived


def test_size_1_keeps_the_order() -> None:
    assert shuffled(20, 1) == list(range(20))


def test_seed_chooses() -> None:
    assert shuffled(50, 20, 1) == shuffled(50, 20, 1) != shuffled(50, 20, 2)


def test_a_buffer_as_large_as_the_data_is_a_uniform_shuffle() -> None:
    """First places over many seeds: chi-squared with 9 degrees of freedom, below its 99.99 % quantile."""
    counts = np.bincount([shuffled(10, 10, seed)[0] for seed in range(1000)], minlength=10)
    assert ((counts - 100) ** 2 / 100).sum() < 33.7
    counts = np.bincount([shuffled(10, 10, seed)[-1] for seed in range(1000)], minlength=10)
    assert ((counts - 100) ** 2 / 100).sum() < 33.7


def test_lanes_epochs_and_second_stages_shuffle_differently(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 1) * 40
    items = [{**item, "key": f"{i:02d}"} for i, item in enumerate(items)]
    graph = uio.from_raw_list(items).shuffle(20)
    loader = uio.Loader(graph)
    first, second = keys(loader), keys(loader)
    assert sorted(first) == sorted(second) == [f"{i:02d}" for i in range(40)]
    assert first != second
    assert keys(run(graph.shuffle(20))[0]) not in (first, second)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_files_and_list_items_can_be_shuffled(tmp_path: Path, size: int) -> None:
    items = raw_items(tmp_path, 7)
    batches, _ = run(uio.list_files(items).shuffle(size).load_from_raw())
    assert sorted(keys(batches)) == [item["key"] for item in items]


# sort


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), max_size=120), size=st.integers(1, 40))
def test_each_buffer_comes_shortest_first_and_equal_ones_in_their_order(lengths: list[int], size: int) -> None:
    node, _ = started(Sort(size), lengths)
    got = [int(sample["key"]) for sample in drained(node)]
    want = [
        n
        for i in range(0, len(lengths), size)
        for n in sorted(range(len(lengths))[i : i + size], key=lengths.__getitem__)
    ]
    assert got == want


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(0, 5), max_size=60), size=st.integers(1, 20))
def test_what_has_no_frame_is_a_failure_and_the_rest_comes(lengths: list[int], size: int) -> None:
    node, ledger = started(Sort(size), lengths)
    got = sorted(int(sample["key"]) for sample in drained(node))
    assert got == [i for i, n in enumerate(lengths) if n]
    assert ledger.skipped == ({"too_short": lengths.count(0)} if 0 in lengths else {})


def test_plans_are_after_the_speeds_drawn_before(tmp_path: object) -> None:
    items = [{"key": str(i), "wav": "/nowhere.wav", "txt": "t", "duration": 1} for i in range(30)]
    lengths: list[int] = []
    graph = uio.from_raw_list(items).decode_audio().speed_perturb([0.5, 1.0, 2.0]).sort(30)
    run(graph.filter(lambda s: lengths.append(s.plan.length)))
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 3
