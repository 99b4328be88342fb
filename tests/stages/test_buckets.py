"""Boundaries of buckets: the least padding there can be, and the first bucket that holds an utterance."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.stages.batches.buckets import CANDIDATES, count_of, even_boundaries, index_of, longest_of, pairs_of

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=40)
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
@given(bounds=PAIRS.map(lambda pairs: sorted(set(pairs))), pairs=PAIRS)
def test_an_utterance_goes_to_the_first_bucket_that_holds_both_and_else_to_the_last(
    bounds: list[tuple[int, int]], pairs: list[tuple[int, int]]
) -> None:
    index, count = index_of([list(pair) for pair in bounds], True), count_of(bounds, True)  # type: ignore[misc]
    for pair in pairs:
        holding = (i for i, (first, second) in enumerate(bounds) if pair[0] <= first and pair[1] <= second)
        assert index(pair) == next(holding, count - 1)


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
