"""The buckets of ``bucket_batch``: partial batches by length, or by two lengths."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.checks import is_whole
from uio_pipes.stages.batches.budget import Budget, PaddedBudget, PartialBatch, PartialPairs

CANDIDATES = 400  # lengths at which a bucket may end
OUTLIERS = 100  # of so many utterances, one that is too long by its second length for the buckets of its first

Boundaries = Sequence[int] | Sequence[tuple[int, int]]


class Buckets:
    """``count`` buckets. A batch is bounded by the ``budget``, or else by the ``sizes`` of the buckets.

    Every batch has at least ``least`` utterances, unless those of two lengths do not fit together.
    """

    def __init__(self, count: int, budget: Budget | None, sizes: Sequence[int], least: int) -> None:
        self.budget, self.sizes, self.least = budget, sizes, least
        kind = PartialPairs if isinstance(budget, PaddedBudget) else PartialBatch
        self.all = [kind() for _ in range(count)]
        self.held = 0

    def room(self, at: int, cost: Any) -> int:
        """Return how many utterances a batch of bucket ``at`` may have if the costliest one costs ``cost``."""
        return self.sizes[at] if self.budget is None else self.budget.room(cost)

    def put(self, at: int, number: int, cost: Any) -> None:
        self.held += 1
        self.all[at].add(number, cost)

    def add(self, at: int, number: int, cost: Any) -> list[int]:
        """Put a number into bucket ``at``, and return the batch if it is now full, or []."""
        bucket = self.all[at]
        batch: list[int] = []
        if bucket.numbers and self.room(at, bucket.larger(bucket.worst, cost)) <= len(bucket.numbers):
            batch = self.take(at, len(bucket.numbers))
        self.put(at, number, cost)
        return batch or (self.take(at, len(bucket.numbers)) if self.full(at) else [])

    def full(self, at: int) -> bool:
        bucket = self.all[at]
        return len(bucket.numbers) >= self.room(at, bucket.worst)

    def filled(self) -> list[int]:
        """Return the buckets that are not empty, shortest first."""
        return [at for at, bucket in enumerate(self.all) if bucket.numbers]

    def take(self, at: int, count: int) -> list[int]:
        """Take ``count`` numbers from bucket ``at``; if it has too few, take others from the nearest buckets, if they
        fit."""
        taken = self.all[at].take(count)
        if len(taken.numbers) < count:
            for near in sorted(range(len(self.all)), key=lambda other: abs(other - at)):
                self._move(near, taken, count)
        self.held -= len(taken.numbers)
        return taken.numbers

    def _move(self, at: int, batch: PartialBatch, count: int) -> None:
        """Move numbers from bucket ``at`` to ``batch``, up to ``count`` in all, and no further than the budget."""
        bucket = self.all[at]
        for cost in bucket.costs[: count - len(batch.numbers)]:
            worst = batch.larger(batch.worst, cost)
            if self.budget is not None and self.budget.room(worst) <= len(batch.numbers):
                return
            batch.add(bucket.take(1).numbers[0], cost)

    def take_all(self) -> list[int]:
        self.held = 0
        return [number for bucket in self.all for number in bucket.take(len(bucket.numbers)).numbers]

    def take_whole(self, at: int) -> list[int]:
        """Take all of bucket ``at``, and at least ``least`` numbers if as many fit together."""
        return self.take(at, max(self.least, len(self.all[at].numbers)))

    def take_last(self) -> list[int]:
        """Take a batch of the numbers left, at least ``least``, so that as few as possible are left over in the end."""
        filled = self.filled()
        count = max(self.least, len(self.all[filled[0]].numbers))
        if 0 < self.held - count < self.least:
            larger = self.all[0].larger
            worst = reduce(larger, (self.all[at].worst for at in filled))
            together = self.room(filled[-1], worst) >= self.held
            count = self.held if together else max(self.least, self.held - self.least)
        return self.take(filled[0], count)


def index_of(boundaries: Boundaries, in_pairs: bool) -> Callable[[Any], int]:
    """Return the function that gives the bucket of a length, or of a pair of lengths."""
    if not in_pairs:
        return partial(bisect_right, boundaries)
    pairs: list[Any] = [tuple(pair) for pair in boundaries]  # type: ignore[arg-type]
    last = max(0, len(pairs) - 1)
    return lambda lengths: min(_holding(pairs, lengths), last)


def _holding(pairs: list[tuple[int, int]], lengths: tuple[int, int]) -> int:
    """Return the first of ``pairs`` that is as long as ``lengths`` in both; the number of them if none is."""
    at = bisect_left(pairs, lengths)
    while at < len(pairs) and pairs[at][1] < lengths[1]:
        at += 1
    return at


def holds(boundaries: Sequence[tuple[int, int]], lengths: tuple[int, int]) -> bool:
    """True if there is a bucket for these lengths."""
    return any(first >= lengths[0] and second >= lengths[1] for first, second in boundaries)


def count_of(boundaries: Sequence[Any], in_pairs: bool) -> int:
    """Return the number of buckets."""
    return max(1, len(boundaries)) if in_pairs else len(boundaries) + 1


# Finding boundaries


def even_boundaries(lengths: Sequence[int], buckets: int) -> list[int]:
    """Return boundaries for so many buckets that each gets about equally many frames of ``lengths``."""
    total, seen = sum(lengths), 0
    found: list[int] = []
    for length in sorted(lengths):
        seen += length
        if seen * buckets >= total * (len(found) + 1) and len(found) < buckets - 1:
            found.append(length + 1)
    return found + [found[-1] + 1 if found else 1] * (buckets - 1 - len(found))


def longest_of(lengths: npt.NDArray[np.int64], buckets: int) -> list[int]:
    """Return the longest length of each bucket, of so many at most that leave the least padding of ``lengths``.

    Padding is that to the longest of a bucket. This is exact if there are no more different lengths than
    ``CANDIDATES``; of more, those at even steps may be the longest of a bucket.
    """
    values, counts = np.unique(lengths, return_counts=True)
    if len(values) > CANDIDATES:
        steps = np.arange(1, CANDIDATES + 1) * len(values) // CANDIDATES - 1
        counts, values = np.diff(np.cumsum(counts)[steps], prepend=0), values[steps]
    ends = np.cumsum(counts)
    # padded[i, j]: the length of a bucket of the values from i to j, padding included
    padded = values * (ends - (ends - counts)[:, None]).astype(np.float64)
    padded[np.tri(len(values), k=-1, dtype=bool)] = np.inf
    best, before = padded[0], list[Any]()
    for _ in range(min(buckets, len(values)) - 1):
        ways = best[:-1, None] + padded[1:]
        before.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    at = len(values) - 1
    found = [int(values[at])]
    for choice in reversed(before):
        at = int(choice[at])
        found.append(int(values[at]))
    return found[::-1]


def pairs_of(lengths: npt.NDArray[np.int64], buckets: tuple[int, int]) -> list[tuple[int, int]]:
    """Return pairs of longest lengths for these (N, 2) ``lengths``: by the first, and within each by the second.

    Those that are longest by the second, one of a hundred, are left to buckets of a longer first length.
    """
    found: list[tuple[int, int]] = []
    shorter, firsts = 0, longest_of(lengths[:, 0], buckets[0]) if len(lengths) else []
    for longest in firsts:
        within = np.sort(lengths[(lengths[:, 0] > shorter) & (lengths[:, 0] <= longest), 1])
        kept = len(within) if longest == firsts[-1] else len(within) - len(within) // OUTLIERS
        found += [(longest, second) for second in longest_of(within[:kept], buckets[1])]
        shorter = longest
    return found


# Boundaries that are given


RISING = "bucket_boundaries must be a list of whole numbers, or of pairs of them, that rise and are above 0"


def rising(bounds: Any) -> bool:
    """True if ``bounds`` is a tuple that keeps the rule ``RISING``."""
    return (
        isinstance(bounds, tuple)
        and (all(is_whole(b) and b > 0 for b in bounds) or all(is_pair(b, 0) and b[0] > 0 for b in bounds))
        and all(a < b for a, b in pairwise(bounds))
    )


def is_pair(value: Any, least: int) -> bool:
    """True if it is a tuple of two whole numbers, ``least`` or more."""
    return isinstance(value, tuple) and len(value) == 2 and all(is_whole(n) and n >= least for n in value)


def as_tuple(value: Any) -> Any:
    """Return lists and arrays, and those in them, as tuples; NumPy's whole numbers as ints."""
    if isinstance(value, (np.ndarray, np.integer)):
        value = value.tolist()
    return tuple(map(as_tuple, value)) if isinstance(value, (list, tuple)) else value
