"""The buckets of ``bucket_batch``: partial batches by length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from uio_pipes.stages.budget import PartialBatch


class Buckets:
    """Bucket i holds lengths below boundary i, and the last one the rest.

    ``room(i, cost)`` returns how many utterances a batch of bucket i may have if the costliest one costs ``cost``.
    Every batch should have at least ``least`` utterances, and ``room`` is never less.
    """

    def __init__(self, boundaries: Sequence[int], room: Callable[[int, int], int], least: int) -> None:
        self.boundaries, self.room, self.least = boundaries, room, least
        self.all = [PartialBatch() for _ in range(len(boundaries) + 1)]
        self.held = 0

    def index(self, length: int) -> int:
        return bisect_right(self.boundaries, length)

    def put(self, at: int, number: int, cost: int) -> None:
        self.held += 1
        self.all[at].add(number, cost)

    def add(self, at: int, number: int, cost: int) -> list[int]:
        """Put a number into bucket ``at``, and return the batch that is full then, or []."""
        bucket = self.all[at]
        batch: list[int] = []
        if bucket.numbers and self.room(at, max(bucket.worst, cost)) <= len(bucket.numbers):
            batch = self.take(at, len(bucket.numbers))
        self.put(at, number, cost)
        return batch or (self.take(at, len(bucket.numbers)) if self.full(at) else [])

    def full(self, at: int) -> bool:
        bucket = self.all[at]
        return len(bucket.numbers) >= self.room(at, bucket.worst)

    def filled(self) -> list[int]:
        """Return the buckets that hold something, shortest first."""
        return [at for at, bucket in enumerate(self.all) if bucket.numbers]

    def take(self, at: int, count: int) -> list[int]:
        """Take ``count`` numbers from bucket ``at``; if it has too few, take the rest from the nearest buckets."""
        taken = self.all[at].take(count)
        if len(taken) < count:
            for near in sorted(range(len(self.all)), key=lambda other: abs(other - at)):
                taken += self.all[near].take(count - len(taken))
        self.held -= len(taken)
        return taken

    def take_whole(self, at: int) -> list[int]:
        """Take all of bucket ``at``, and at least ``least`` numbers."""
        return self.take(at, max(self.least, len(self.all[at].numbers)))

    def take_last(self) -> list[int]:
        """Take a batch of the numbers left, at least ``least``, so that as few as possible are left over in the end."""
        filled = self.filled()
        count = max(self.least, len(self.all[filled[0]].numbers))
        if 0 < self.held - count < self.least:
            worst = max(self.all[at].worst for at in filled)
            together = self.room(filled[-1], worst) >= self.held
            count = self.held if together else max(self.least, self.held - self.least)
        return self.take(filled[0], count)


def even_boundaries(lengths: Sequence[int], buckets: int) -> list[int]:
    """Return boundaries for so many buckets that each gets about equally many frames of ``lengths``."""
    total, seen = sum(lengths), 0
    found: list[int] = []
    for length in sorted(lengths):
        seen += length
        if seen * buckets >= total * (len(found) + 1) and len(found) < buckets - 1:
            found.append(length + 1)
    return found + [found[-1] + 1 if found else 1] * (buckets - 1 - len(found))
