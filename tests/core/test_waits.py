"""How long the trainer waits for batches: three shares of them are told, of one rank and of several."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uio_pipes as uio
from uio_pipes.core.statistics import RunRecord, Waits, append, read

SLOW = 0.05  # seconds


def counted(seconds: np.ndarray[Any, Any]) -> Waits:
    waits = Waits()
    for one in seconds.tolist():
        waits.add(one)
    return waits


def test_shares_are_within_6_percent_of_the_exact_ones() -> None:
    draws = np.random.default_rng(3).lognormal(-6, 2, 20_000)
    waits = counted(draws)
    exact = np.percentile(draws, [50, 95, 99], method="inverted_cdf")
    assert [waits.p50, waits.p95, waits.p99] == pytest.approx(exact, rel=0.06)
    assert waits.seconds == pytest.approx(draws.sum())
    assert len(waits.counts) < 200, "however many batches there are"
    halves = [counted(half) for half in np.split(draws, 2)]
    assert sum((Counter(half.counts) for half in halves), Counter[int]()) == Counter(waits.counts)


def test_their_text_has_two_digits_and_no_exponent() -> None:
    assert str(counted(np.array([0.00123, 0.00123, 0.0412]))) == "1.2/42/42 ms"
    assert str(counted(np.array([12.3]))) == "11,885/11,885/11,885 ms"


def test_no_batch_was_waited_for() -> None:
    assert (Waits().p50, Waits().p99) == (0.0, 0.0)
    assert "p50" not in str(uio.Stats())


def slow(sample: uio.Sample) -> uio.Sample:
    if sample["key"] in ("U13", "U27"):
        time.sleep(SLOW)
    return sample


def loader() -> uio.Loader:
    items = [{"key": f"U{n}", "txt": "a"} for n in range(40)]
    return uio.Loader(uio.from_iterable(items).sharding_filter().map(slow).batch(1))


def test_a_loader_counts_from_next_to_batch_in_each_epoch() -> None:
    counts = loader()
    for batches, _ in enumerate(counts, 1):
        assert sum(counts.stats().waits.counts.values()) == batches
    stats = counts.stats()
    assert stats.waits.p50 < SLOW / 2 < SLOW * 0.94 <= stats.waits.p99
    assert stats.waits.seconds >= 2 * SLOW
    assert f"p50/p95/p99: {stats.waits})" in str(stats)
    counts.batch_at(3)
    assert sum(counts.stats().waits.counts.values()) == 40, "what is made again is not waited for"
    begun = iter(counts)
    next(begun)
    assert sum(counts.stats().waits.counts.values()) == 1, "of the new epoch"
    assert stats.waits.counts != counts.stats().waits.counts, "statistics that were given do not change"
    again = loader()
    again.load_state_dict(counts.state_dict())
    assert (again.stats().batches, again.stats().waits.counts) == (1, {}), "of another process, it is not known"


def test_a_record_keeps_them(tmp_path: Path) -> None:
    stats = uio.Stats(waits=counted(np.array([0.001, 0.2, 0.2])))
    record = RunRecord(1.0, 30.0, "h", 1, 0, 0, 1, 0, "running", 5, stats)
    append(tmp_path, record)
    (got,) = read(tmp_path / "rank-00000.jsonl")
    assert got == record
    assert got.stats.waits == stats.waits
