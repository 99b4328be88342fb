"""Dynamic batches: padded frames never above the budget, planned and real."""

from pathlib import Path

import pytest
from helpers_bad import drained, keys, raw_items, run, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.batches.dynamic import DynamicBatch


@settings(max_examples=200, deadline=None)
@given(lengths=st.lists(st.integers(0, 120), max_size=80), budget=st.integers(1, 400))
def test_never_above_the_budget_none_empty_none_lost_in_order(lengths: list[int], budget: int) -> None:
    node, ledger = started(DynamicBatch(budget), lengths)
    batches = [[int(sample["key"]) for sample in batch] for batch in drained(node)]
    assert all(batches)
    assert all(max(lengths[n] for n in batch) * len(batch) <= budget for batch in batches)
    assert [n for batch in batches for n in batch] == [n for n, frames in enumerate(lengths) if 0 < frames <= budget]
    assert sum(ledger.skipped.values()) == ledger.failures == sum(not 0 < n <= budget for n in lengths)
    assert ledger.skipped.get("over_budget", 0) == sum(n > budget for n in lengths)


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 100), min_size=2, max_size=60), budget=st.integers(100, 400))
def test_a_batch_ends_only_where_the_next_one_would_not_fit(lengths: list[int], budget: int) -> None:
    node, _ = started(DynamicBatch(budget), lengths)
    batches = [[int(sample["key"]) for sample in batch] for batch in drained(node)]
    for batch in batches[:-1]:
        more = [*batch, batch[-1] + 1]
        assert max(lengths[n] for n in more) * len(more) > budget


def test_wenet_s_default_is_12000() -> None:
    node, _ = started(DynamicBatch(), [1000] * 25)
    assert [len(b) for b in drained(node)] == [12, 12, 1]


@pytest.mark.parametrize("budget", [25, 60, 500])
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_real_frames_are_within_the_budget_after_speeds(tmp_path: Path, budget: int, features: bool, seed: int) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 40)).decode_audio().resample(16_000).speed_perturb([0.9, 1.0, 1.1])
    graph = graph.fbank(20) if features else graph
    batches, loader = run(graph.shuffle(10).sort(7).dynamic_batch(budget).pad(), seed=seed)
    for batch in batches:
        padded = batch["feats"].shape[1] if features else -(-batch["pcm"].shape[1] // 160)
        assert padded * len(batch["keys"]) <= budget
    stats = loader.stats()
    assert len(set(keys(batches))) + stats.skipped.get("over_budget", 0) == 40
    assert stats.padded == sum(b["feats"].shape[0] * b["feats"].shape[1] for b in batches) if features else True


def test_over_the_budget_by_itself_is_a_failure_that_tells_both_numbers(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().dynamic_batch(5)
    with pytest.raises(uio.DataError, match=r"20 frames.*\(5\).*max_frames") as error:
        run(graph, failures="raise")
    assert (error.value.reason, error.value.member) == ("over_budget", "R000")


def test_without_any_length_it_says_what_is_missing(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 1)).map(lambda s: {"key": s["key"]}).dynamic_batch(5)
    with pytest.raises(uio.PipelineError, match="no length"):
        run(graph)
