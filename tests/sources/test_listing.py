"""Sources counted beforehand: how their epochs are dealt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.base.hashing import Permutation
from uio_pipes.core.roles import balanced

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


@pytest.mark.parametrize("lanes", [2, 8, 64])
def test_lanes_of_speech_get_equal_shares(lanes: int) -> None:
    weights = np.random.default_rng(0).lognormal(1.5, 0.6, 20_000) * 16_000
    dealt = balanced(Permutation(len(weights), 7).all(), weights.astype(np.int64), lanes)
    sums = np.array([weights[dealt[lane::lanes]].sum() for lane in range(lanes)])
    assert np.ptp(sums) <= weights.max()
    assert np.ptp(sums) / sums.mean() < 0.05
