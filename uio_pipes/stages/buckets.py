"""The buckets of ``bucket_batch``: batches in the making, by length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from uio_pipes.stages.budget import Filling

__all__ = ["Buckets", "even_boundaries"]


class Buckets:
    """Bucket i holds lengths below boundary i, the last one the rest."""

    def __init__(self, boundaries: Sequence[int]) -> None:
        self.boundaries = boundaries
        self.all = [Filling() for _ in range(len(boundaries) + 1)]
        self.held = 0

    def index(self, length: int) -> int:
        return bisect_right(self.boundaries, length)

    def add(self, at: int, number: int, cost: int) -> None:
        self.held += 1
        self.all[at].add(number, cost)

    def filled(self) -> list[int]:
        """Which buckets hold something, shortest first."""
        return [at for at, bucket in enumerate(self.all) if bucket.numbers]

    def take(self, at: int, count: int) -> list[int]:
        """The first ``count`` numbers of bucket ``at``; what it lacks comes from its nearest neighbours."""
        taken: list[int] = []
        for near in sorted(range(len(self.all)), key=lambda other: abs(other - at)):
            if len(taken) == count:
                break
            taken += self.all[near].take(count - len(taken))
        self.held -= len(taken)
        return taken


def even_boundaries(lengths: Sequence[int], buckets: int) -> list[int]:
    """Boundaries between as many buckets, each with about as many frames of ``lengths``."""
    total, seen = sum(lengths), 0
    found: list[int] = []
    for length in sorted(lengths):
        seen += length
        if seen * buckets >= total * (len(found) + 1) and len(found) < buckets - 1:
            found.append(length + 1)
    return found + [found[-1] + 1 if found else 1] * (buckets - 1 - len(found))
