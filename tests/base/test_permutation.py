"""Shuffled numbers: each once, as keys choose, alike everywhere."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.base.hashing import SMALL, Permutation

KEYS = st.integers(0, 2**64 - 1)


@settings(max_examples=40, deadline=None)
@given(n=st.one_of(st.integers(0, 300), st.integers(SMALL - 2, SMALL + 5000), st.integers(10**5, 4 * 10**5)), key=KEYS)
def test_each_number_comes_once(n: int, key: int) -> None:
    assert np.array_equal(np.sort(Permutation(n, key).all()), np.arange(n))


@settings(max_examples=30, deadline=None)
@given(n=st.one_of(st.integers(1, 300), st.integers(SMALL + 1, 3 * 10**5)), key=KEYS, data=st.data())
def test_one_number_is_that_of_the_whole(n: int, key: int, data: st.DataObject) -> None:
    order = Permutation(n, key)
    position = data.draw(st.integers(0, n - 1))
    assert order[position] == order.all()[position]
    assert len(order) == n
    with pytest.raises(IndexError):
        order[n]


def test_keys_give_all_orders_of_a_short_list_alike_often() -> None:
    seen = Counter(tuple(Permutation(4, key * 0x9E3779B97F4A7C15 % 2**64).all().tolist()) for key in range(4800))
    assert set(seen) == set(permutations(range(4)))
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 50  # chi-squared, 23 degrees: p > 0.001


def test_a_long_order_has_no_visible_pattern() -> None:
    n = 200_000
    order = Permutation(n, 5).all().astype(float)
    assert abs(np.corrcoef(np.arange(n), order)[0, 1]) < 0.01
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.01
    where = np.histogram2d(np.arange(n), order, bins=20)[0]
    assert ((where - n / 400) ** 2 / (n / 400)).sum() < 480  # 361 degrees of freedom: p > 0.0001
    assert np.mean(Permutation(n, 6).all() == order) < 1e-4


def test_the_order_is_the_same_in_every_version() -> None:
    assert Permutation(10, 7).all().tolist() == PINNED
    assert [Permutation(7_500_000, 7)[i] for i in (0, 1, 7_499_999)] == PINNED_LONG


PINNED = [1, 8, 5, 7, 0, 9, 4, 6, 3, 2]
PINNED_LONG = [1748453, 4491240, 3284478]
