"""Masks: their bounds, their distribution, and what they set to 0."""

import random
from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.dsp.features import apply_masks, spec_aug_masks


@given(
    seed=st.integers(0, 2**32),
    frames=st.integers(1, 400),
    bins=st.integers(1, 80),
    counts=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    longest=st.tuples(st.integers(1, 60), st.integers(1, 30)),
)
def test_spans_lie_inside(seed: int, frames: int, bins: int, counts: tuple[int, int], longest: tuple[int, int]) -> None:
    time, freq = spec_aug_masks(random.Random(seed).randrange, frames, bins, *counts, *longest)
    assert (len(time), len(freq)) == counts
    assert all(0 <= start < end <= frames and end - start <= longest[0] for start, end in time)
    assert all(0 <= start < end <= bins and end - start <= longest[1] for start, end in freq)
    masked = apply_masks(torch.ones(frames, bins), time, freq)
    for t in range(0, frames, 7):
        for f in range(0, bins, 3):
            hidden = any(s <= t < e for s, e in time) or any(s <= f < e for s, e in freq)
            assert masked[t, f] == (0.0 if hidden else 1.0)


def test_every_start_and_length_is_as_likely() -> None:
    time, _ = spec_aug_masks(random.Random(0).randrange, 20, 1, 40000, 0, 5, 1)
    starts = Counter(start for start, _ in time)
    lengths = Counter(end - start for start, end in time if start < 15)
    assert set(starts) == set(range(20))
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert all(abs(n - 2000) < 250 for n in starts.values())
    assert all(abs(n - 6000) < 450 for n in lengths.values())


def test_order_of_the_draws() -> None:
    asked: list[int] = []

    def draw(n: int) -> int:
        asked.append(n)
        return n - 1

    assert spec_aug_masks(draw, 100, 80) == ([(99, 100)] * 2, [(79, 80)] * 2)
    assert asked == [100, 50, 100, 50, 80, 10, 80, 10]


def test_masks_are_applied_in_place() -> None:
    feat = torch.ones(4, 3)
    assert apply_masks(feat, [(1, 3)], [(0, 1)]) is feat
    assert feat.tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0], [0, 1, 1]]
