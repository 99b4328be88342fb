"""``bucket_batch``: batches of utterances of about one length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from uio_pipes.lane import Lane, Site
from uio_pipes.node import Buffer, Node
from uio_pipes.sample import Sample
from uio_pipes.stage import Stage, require
from uio_pipes.stages.dynamic_batch import over_budget

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["BucketBatch"]

LOOK = 1000  # utterances from which boundaries are found


@dataclass(frozen=True)
class BucketBatch(Stage):
    """Sort utterances into buckets by planned length; a bucket that is full is a batch.

    Args:
        bucket_boundaries: rising lengths in frames; bucket i holds lengths below boundary i, the last bucket the
            rest. None: found from the first 1,000 utterances of the lane, so that each bucket gets as many frames.
        bucket_batch_sizes: how many utterances fill each bucket, one more than boundaries (WeNet's way).
        max_frames: instead of sizes, a budget for longest × count that no batch exceeds.
        num_buckets: how many to make where boundaries are found.
        max_wait: a bucket whose oldest utterance has waited for this many others is given as it is.
    """

    name: ClassVar[str] = "bucket_batch"
    gives: ClassVar[str] = "batch"
    note: ClassVar[str] = "by the plan: nothing is decoded"

    bucket_boundaries: Sequence[int] | None = None
    bucket_batch_sizes: Sequence[int] | None = None
    max_frames: int | None = None
    num_buckets: int = 10
    max_wait: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bucket_boundaries", "bucket_batch_sizes"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        bounds, sizes = self.bucket_boundaries, self.bucket_batch_sizes
        rising = bounds is None or (all(b > 0 for b in bounds) and all(a < b for a, b in pairwise(bounds)))
        require(rising, self.name, "bucket_boundaries must rise and be above 0", bounds, "give frames, shortest first")
        one = (sizes is None) != (self.max_frames is None)
        require(one, self.name, "give either bucket_batch_sizes or max_frames", (sizes, self.max_frames), "choose one")
        if sizes is not None:
            count = self.num_buckets if bounds is None else len(bounds) + 1
            ok = len(sizes) == count and all(s >= 1 for s in sizes)
            require(
                ok, self.name, f"bucket_batch_sizes must be {count} numbers above 0", sizes, "one more than boundaries"
            )
        for name in ("max_frames", "num_buckets", "max_wait"):
            value = getattr(self, name)
            require(value is None or value >= 1, self.name, f"{name} must be 1 or more", value, "see the docstring")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _BucketNode(source, lane, self, site)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().bucket_batch([100, 200], max_frames=500, max_wait=12).pad()


class _BucketNode(Buffer):
    state_fields = ("boundaries", "waiting")

    def __init__(self, source: Node, lane: Lane, stage: BucketBatch, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.stage = stage

    def start(self) -> None:
        given = self.stage.bucket_boundaries
        self.boundaries: list[int] | None = None if given is None else list(given)
        self.waiting = 0  # arrived, not in a bucket yet: the last ones of the order

    def order(self) -> list[int]:
        return [n for bucket in self.buckets for n in bucket] + self.unsorted

    def rebuild(self, order: list[int]) -> None:
        self.buckets: list[list[int]] = [[] for _ in range(len(self.boundaries or ()) + 1)]
        sorted_ones = len(order) - self.waiting
        self.unsorted = order[sorted_ones:]
        for number in order[:sorted_ones]:
            self.buckets[self._bucket(number)].append(number)

    def next(self) -> list[Sample]:
        if self.boundaries is None:
            self._find_boundaries()
        while True:
            if self.held and self.age() > self.stage.max_wait and self.oldest not in self.unsorted:
                return self._give(self._bucket(self.oldest))
            number = self._arrival()
            if number is None:
                filled = [i for i, bucket in enumerate(self.buckets) if bucket]
                if not filled:
                    raise StopIteration
                return self._give(filled[0])
            at = self._bucket(number)
            batch = self._give(at) if self._overflows(at, number) else []
            self.buckets[at].append(number)
            if not batch and self._full(at):
                batch = self._give(at)
            if batch:
                return batch

    def _arrival(self) -> int | None:
        """The next utterance for the buckets; None at the end."""
        if self.unsorted:
            self.waiting -= 1
            return self.unsorted.pop(0)
        while True:
            try:
                number, item = self.pull()
            except StopIteration:
                return None
            length = self.length(item)
            budget = self.stage.max_frames
            if length is not None and (budget is None or not over_budget(self, item, length, budget)):
                self.hold(number, item)
                return number

    def _find_boundaries(self) -> None:
        """Boundaries between buckets of equal frames, from the first utterances (held in the meantime)."""
        arrived: list[int] = []
        while len(arrived) < LOOK and (number := self._arrival()) is not None:
            arrived.append(number)
        lengths = sorted(self._length(n) for n in arrived)
        total, seen = sum(lengths), 0
        found: list[int] = []
        for length in lengths:
            seen += length
            if seen * self.stage.num_buckets >= total * (len(found) + 1) and len(found) < self.stage.num_buckets - 1:
                found.append(length + 1)
        self.boundaries = found + [found[-1] + 1 if found else 1] * (self.stage.num_buckets - 1 - len(found))
        self.waiting = len(arrived)
        self.rebuild(arrived)

    def _length(self, number: int) -> int:
        return int(self.held[number].plan.length)

    def _bucket(self, number: int) -> int:
        assert self.boundaries is not None
        return bisect_right(self.boundaries, self._length(number))

    def _overflows(self, at: int, number: int) -> bool:
        bucket, budget = self.buckets[at], self.stage.max_frames
        if budget is None or not bucket:
            return False
        return max(self._length(n) for n in (*bucket, number)) * (len(bucket) + 1) > budget

    def _full(self, at: int) -> bool:
        sizes = self.stage.bucket_batch_sizes
        return sizes is not None and len(self.buckets[at]) >= sizes[at]

    def _give(self, at: int) -> list[Sample]:
        numbers, self.buckets[at] = self.buckets[at], []
        return [self.release(n) for n in numbers]
