"""Sources counted beforehand: how their epochs are dealt."""

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.hashing import Permutation, pick, picks, stable_hash
from uio_pipes.core import roles
from uio_pipes.core.roles import ResampledOrder, balanced
from uio_pipes.sources.parquet.table import RowOrder
from uio_pipes.tools.reports.simulate import simulate

LENGTHS = st.lists(st.integers(1, 10**6), min_size=1, max_size=300)


@given(LENGTHS, st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_a_balanced_order_holds_each_item_once(lengths: list[int], lanes: int, key: int) -> None:
    order = Permutation(len(lengths), key).all()
    dealt = balanced(order, np.array(lengths), lanes)
    assert sorted(dealt.tolist()) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_lanes_differ_by_no_more_than_the_longest_item_and_a_share_of_the_last_run(
    lengths: list[int], lanes: int, key: int
) -> None:
    weights = np.array(lengths)
    dealt = balanced(Permutation(len(weights), key).all(), weights, lanes)
    sums = [int(weights[dealt[lane::lanes]].sum()) for lane in range(lanes)]
    assert max(sums) - min(sums) <= 2 * weights.max()


@given(LENGTHS, st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_only_items_of_one_run_change_places(lengths: list[int], lanes: int, key: int) -> None:
    order = Permutation(len(lengths), key).all()
    dealt = balanced(order, np.array(lengths), lanes)
    for first in range(0, len(order), lanes):
        assert set(order[first : first + lanes]) == set(dealt[first : first + lanes])


def dealt_one_by_one(order: list[int], weights: list[int], lanes: int) -> list[int]:
    """What a saved position counts in: the longest of a run to the lane that has the least, the first of equals."""
    out, totals = list(order), [0] * lanes
    for first in range(0, len(order), lanes):
        run = sorted(order[first : first + lanes], key=lambda item: -weights[item])
        for item, lane in zip(run, sorted(range(len(run)), key=totals[: len(run)].__getitem__), strict=True):
            out[first + lane] = item
            totals[lane] += weights[item]
    return out


@given(st.lists(st.integers(0, 9), max_size=300), st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_runs_that_are_sorted_at_once_are_dealt_as_one_by_one(lengths: list[int], lanes: int, key: int) -> None:
    order = Permutation(len(lengths), key).all()
    with patch.object(roles, "_RUNS", 3):
        dealt = balanced(order, np.array(lengths, np.int64), lanes)
    assert dealt.tolist() == dealt_one_by_one(order.tolist(), lengths, lanes)


@pytest.mark.parametrize("lanes", [2, 8, 64])
def test_lanes_of_speech_get_equal_shares(lanes: int) -> None:
    weights = np.random.default_rng(0).lognormal(1.5, 0.6, 20_000) * 16_000
    dealt = balanced(Permutation(len(weights), 7).all(), weights.astype(np.int64), lanes)
    sums = np.array([weights[dealt[lane::lanes]].sum() for lane in range(lanes)])
    assert np.ptp(sums) <= weights.max()
    assert np.ptp(sums) / sums.mean() < 0.05


@given(LENGTHS, st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_draws_are_dealt_to_lanes_that_get_equal_shares_and_stay_the_same_draws(
    lengths: list[int], lanes: int, key: int
) -> None:
    weights = np.array(lengths)
    order, plain = ResampledOrder(len(weights), key, weights, lanes), ResampledOrder(len(weights), key, None, lanes)
    dealt = [(order.draw(p), order[p]) for p in range(len(order))]
    assert sorted(dealt) == [(p, plain[p]) for p in range(len(plain))]
    sums = [sum(lengths[item] for _, item in dealt[lane::lanes]) for lane in range(lanes)]
    assert max(sums) - min(sums) <= 2 * max(lengths)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any), st.integers(1, 5), st.integers(0, 2**64 - 1))
def test_row_groups_are_drawn_until_there_are_as_many_rows(rows: list[int], lanes: int, key: int) -> None:
    order = RowOrder(rows, lanes, key, drawn=True)
    assert len(order) == sum(rows)
    groups = np.repeat(np.arange(len(rows)), rows)
    found = Counter((order.draw(p), order[p]) for p in range(len(order)))
    assert set(found.values()) == {1}, "of a group that is drawn, each row comes once"
    for draw in sorted({draw for draw, _ in found})[:-1]:
        numbers = sorted(number for of, number in found if of == draw)
        assert numbers == np.flatnonzero(groups == groups[numbers[0]]).tolist()


def test_all_are_drawn_equally_often() -> None:
    drawn = np.bincount(np.concatenate([picks(stable_hash(n), 1_000, 1_000) for n in range(200)]), minlength=1_000)
    assert (drawn.mean(), drawn.min() > 130, drawn.max() < 270) == (200, True, True)
    assert [pick(2**64 - 5, p, 2**32 - 1) for p in range(9)] == picks(2**64 - 5, 9, 2**32 - 1).tolist()


def test_rounds_within_rounds_of_draws_can_be_simulated() -> None:
    rows = [{"key": f"u{i}", "wav": "none.wav", "txt": "t", "duration": 1.0} for i in range(4)]
    drawn = uio.from_raw_list(rows, resampled=True).repeat(2)
    mixed = uio.mix({"a": drawn, "b": drawn.repeat(3)}, stop="cycle").repeat(2)
    assert simulate(mixed.decode_audio().batch(2).pad()).utterances >= 2 * 24
