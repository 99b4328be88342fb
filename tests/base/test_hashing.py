"""Hashes and draws: the same numbers for ever, since saved states and shuffled orders depend on them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.base.hashing import GOLDEN, MASK, Draws, mix64, pick, stable_hash

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


@pytest.mark.parametrize("run", [["train.py"], ["-m", "train"], ["-m", "package.train"]], ids=" ".join)
def test_functions_of_a_script_are_those_of_the_module_that_it_is(run: list[str], tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(SCRIPT)
    (tmp_path / "train.py").write_text(SCRIPT)
    module = run[-1].removesuffix(".py")
    told = [
        subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for how in (run, ["-c", f"import {module}"])
    ]
    assert told[0] == told[1]
    assert f"function={module}.changed" in told[0]
