"""Hashes, draws, orders and packed numbers: the same for ever, since saved states and orders depend on them."""

import os
import subprocess
import sys
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.base.hashing import GOLDEN, MASK, SMALL, Draws, Permutation, mix64, pack, pick, stable_hash, unpack

WORDS = st.integers(0, MASK)


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ((), 0x4F0674F87B549197),
        ((0,), 0x490A32D6978C23C8),
        (("speed", 3, ("a.tar", 7)), 0x0805A246444B0058),
        (("上",), 0x283C0694040F60CF),
    ],
)
def test_hashes_never_change(parts: tuple[object, ...], value: int) -> None:
    assert stable_hash(*parts) == value


def test_a_hash_does_not_depend_on_the_process() -> None:
    program = "from uio_pipes.base.hashing import stable_hash; print(stable_hash('a', 1))"
    for seed in ("1", "2"):
        command, env = [sys.executable, "-c", program], {**os.environ, "PYTHONHASHSEED": seed}
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        assert int(out) == stable_hash("a", 1)


def test_parts_do_not_run_into_each_other() -> None:
    parts: list[tuple[object, ...]] = [("ab", "c"), ("a", "bc"), ("abc",), (("ab", "c"),), (1, 2), (12,), ("1", 2)]
    assert len({stable_hash(*p) for p in parts}) == len(parts)


def test_mix64_is_the_published_generator() -> None:
    """The first outputs of SplitMix64 with seed 0."""
    assert [mix64(i * GOLDEN & MASK) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(WORDS, WORDS)
def test_mix64_gives_different_words_for_different_words(a: int, b: int) -> None:
    assert (mix64(a) == mix64(b)) == (a == b)
    assert 0 <= mix64(a) <= MASK


@given(WORDS, st.integers(0, 10**9), st.integers(1, 2**40))
def test_a_choice_is_one_of_n(key: int, position: int, n: int) -> None:
    assert 0 <= pick(key, position, n) < n


def test_choices_and_draws_never_change() -> None:
    assert [pick(7, i, 10) for i in range(8)] == [3, 7, 3, 4, 1, 5, 5, 8]
    draws = Draws(7)
    assert [draws.below(100) for _ in range(8)] == [92, 61, 15, 70, 38, 4, 52, 13]
    assert (draws.uniform(), draws.uniform(-1, 1)) == (0.3384898626245558, 0.3968722904101014)
    assert draws.count == 10


@given(WORDS, st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_a_draw_is_within_its_bounds(seed: int, low: float, width: float) -> None:
    assert low <= Draws(seed).uniform(low, low + width) <= low + width
    assert 0 <= Draws(seed).uniform() < 1


def test_draws_are_even() -> None:
    draws, counts = Draws(3), [0] * 10
    for _ in range(10_000):
        counts[draws.below(10)] += 1
    assert min(counts) > 880, counts
    assert max(counts) < 1120, counts


def test_a_generator_depends_on_the_seed_alone() -> None:
    used = Draws(7)
    used.below(5)
    assert used.generator().integers(0, 1000, 9).tolist() == Draws(7).generator().integers(0, 1000, 9).tolist()
    assert Draws(8).generator().integers(0, 1000, 9).tolist() != Draws(7).generator().integers(0, 1000, 9).tolist()


SCRIPT = """
from uio_pipes import Loader, from_iterable
from uio_pipes.core.digests import Digest

def helper(sample):
    return sample

def changed(sample):
    return helper(sample)

pipeline = from_iterable([{"key": "a"}]).map(changed)
print(Loader(pipeline).state_dict(), Digest().add(changed).made().hex())
"""


@pytest.mark.slow
def test_functions_of_a_script_are_those_of_the_module_that_it_is(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for folder in (tmp_path, tmp_path / "package"):
        (folder / "train.py").write_text(SCRIPT)

    def told(*command: str) -> list[str]:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    imported, in_package = told("-c", "import train, package.train")
    assert told("train.py") == told("-m", "train") == [imported]
    assert told("-m", "package.train") == [in_package]
    for module, line in (("train", imported), ("package.train", in_package)):
        assert f"function={module}.changed" in line


# Shuffled numbers: each once, as keys choose


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


# Columns of whole numbers as strings


@given(st.lists(st.integers(0, 2**32 - 1)) | st.lists(st.integers(0, 2**16 - 1)))
def test_numbers_come_back(column: list[int]) -> None:
    assert unpack(pack(column)) == column
    assert pack(iter(column)) == pack(column)


@pytest.mark.parametrize(
    ("column", "text"), [([], "H"), ([0, 1, 65535], "HAAABAP//"), ([65536], "IAAABAA=="), ([2**32 - 1], "I/////w==")]
)
def test_strings_of_saved_states_never_change(column: list[int], text: str) -> None:
    assert pack(column) == text
    assert unpack(text) == column


@pytest.mark.parametrize("number", [-1, 2**32])
def test_numbers_that_do_not_fit_are_not_cut(number: int) -> None:
    with pytest.raises(OverflowError):
        pack([number])


@given(st.text(max_size=20))
def test_any_string_is_a_column_or_refused(text: str) -> None:
    try:
        column = unpack(text)
    except ValueError:
        return
    assert all(0 <= number < 2**32 for number in column)
