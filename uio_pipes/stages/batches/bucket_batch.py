"""``bucket_batch``: batches of utterances of similar length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from uio_pipes.base.checks import in_words, is_whole, refuse, require
from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import FRAMES_AND_TOKENS, Length, Pair, names_of
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, least
from uio_pipes.stages.batches.buckets import (
    RISING,
    Buckets,
    as_tuple,
    count_of,
    even_boundaries,
    holds,
    index_of,
    is_pair,
    pairs_of,
    rising,
)
from uio_pipes.stages.batches.budget import BudgetBuffer, BudgetStage
from uio_pipes.stages.batches.window import WindowBatch

LOOK = 1000  # utterances by which boundaries are found


def bucket_batch(
    bucket_boundaries: Sequence[int] | Sequence[tuple[int, int]] | None = None,
    bucket_batch_sizes: Sequence[int] | None = None,
    max_frames: int | None = None,
    num_buckets: int | tuple[int, int] | None = None,
    max_wait: int | None = None,
    max_samples: int | None = None,
    quadratic: int | None = None,
    drop_last: bool = False,
    min_batch_size: int = 1,
    window: int | None = None,
    max_tokens: int | None = None,
    length: Length | Pair | None = None,
    max_cost: int | None = None,
    cost: Callable[..., float] | None = None,
) -> BucketBatch | WindowBatch:
    """Make batches of utterances of similar planned length, in random order, each as large as the budget allows.

    Give one budget: ``max_frames``, ``max_samples``, ``max_tokens`` or ``max_cost``. Then ``window`` utterances are
    held, sorted by length, and a batch is a run of neighbours from anywhere among them. This leaves the least padding,
    every batch is full, and no ``shuffle`` or ``sort`` is needed before. At each step, the batches of all lanes come
    from the same part of their windows and are equally full, by draws that lanes share without communication. So ranks
    that step together hardly wait for each other.

    With ``bucket_boundaries``, ``bucket_batch_sizes``, ``num_buckets`` or ``max_wait`` there are buckets instead:
    utterances are collected in them by length, and each full bucket is a batch. Lanes then fill theirs at different
    steps. Buckets can go by two lengths, such as frames and tokens, where both are padded: boundaries are then pairs,
    the most frames and the most tokens of a bucket. An utterance goes to the first bucket that holds it by both. One
    that is longer than all goes to the last one, within the budget; without a budget it is the failure
    ``over_budget``. ``max_frames`` bounds the longest first length × the number of utterances, ``max_tokens`` that of
    the second.

    Args:
        bucket_boundaries: rising lengths in frames; bucket i takes lengths below boundary i, and the last bucket
            the rest. Or rising pairs, such as ``[(500, 20), (500, 60), (1_000, 50)]``, the longest that each bucket
            takes. Default: None. Buckets then find theirs from the first 1,000 utterances of the lane: so that each
            bucket gets equally many frames, or pairs that leave little padding. ``uio simulate`` tells those of all.
        bucket_batch_sizes: how many utterances fill each bucket, one number more than there are boundaries (WeNet's
            way), or one for each pair. Default: None.
        max_frames: a budget in padded frames: the longest utterance × the number of utterances is never more.
            Default: None.
        num_buckets: how many buckets to make if boundaries are found automatically; a pair such as ``(10, 3)`` makes
            10 by frames, and of each of them 3 by tokens. Default: None, which is 10 if there are buckets.
        max_wait: a bucket whose oldest utterance has waited while this many others came is given although it is not
            full. Default: None, which is 10,000 if there are buckets.
        max_samples: a budget in padded audio samples, at the utterances' own rate; for waveforms only. Default:
            None.
        quadratic: count an utterance of length n as n + n² / quadratic, so that long utterances, whose attention
            costs the square of their length, come in smaller batches. A length in the unit of the budget (Lhotse's
            ``quadratic_duration``). Default: None, count n.
        drop_last: whether to leave out, at the end of a lane, the utterances of batches that are not full; they are
            then counted as ``drop_last``. Default: False.
        min_batch_size: fewest utterances of a batch; fewer are left out and counted as ``min_batch_size``. An
            utterance of which this many copies exceed the budget is the failure ``over_budget``. A bucket that has
            waited and holds fewer takes some from its neighbours; if fewer remain at the end of a lane, they join the
            last batch of buckets if its budget allows it. Default: 1.
        window: how many utterances to hold and choose neighbours from, if there are no buckets. None waits while more
            than 10 × as many others come. Default: None, which is 1,500.
        max_tokens: a budget in padded tokens instead; an utterance has as many as it has labels, or ``length`` says.
            Default: None.
        length: another length to go by, such as "tokens", "prompt.frames", or a function of all planned lengths, as
            in ``lambda n: n.frames // 4 + n.tokens``; or a tuple of these, for pairs and for ``cost``. Default: None,
            planned frames, or ``("frames", "tokens")`` for two.
        max_cost: a budget in what ``cost`` counts: ``cost(longest, …)`` × the number of utterances is never more.
            Default: None.
        cost: a function of lengths: what an utterance costs that is padded to them, which does not fall where one
            rises. Of frames, as in ``lambda frames: frames + frames**2 / 3_000``; of frames and tokens, as in
            ``lambda frames, tokens: frames // 4 * (tokens + 1)``, what a transducer's joint network computes; or of
            those that ``length`` names. Batches of a step then cost the same on all ranks. Default: None.
    """
    buckets: dict[str, Any] = {"bucket_boundaries": bucket_boundaries, "bucket_batch_sizes": bucket_batch_sizes}
    buckets |= {"num_buckets": num_buckets, "max_wait": max_wait}
    given = {name: value for name, value in buckets.items() if value is not None}
    both: dict[str, Any] = {
        "max_frames": max_frames, "max_samples": max_samples, "max_tokens": max_tokens, "max_cost": max_cost,
        "cost": cost, "quadratic": quadratic, "length": length, "min_batch_size": min_batch_size,
        "drop_last": drop_last,
    }  # fmt: skip
    if not given:
        return WindowBatch(**both | ({} if window is None else {"window": window}))
    sentence = f"{in_words(given)} cannot be combined with window, which has no buckets"
    refuse(window is not None, BucketBatch.name, sentence, "leave out these, or window")
    return BucketBatch(**given, **both)


@dataclass(frozen=True)
class BucketBatch(BudgetStage):
    """Collect utterances in buckets of similar planned length; for the arguments see :func:`bucket_batch`."""

    name: ClassVar[str] = "bucket_batch"

    bucket_boundaries: Sequence[int] | Sequence[tuple[int, int]] | None = None
    bucket_batch_sizes: Sequence[int] | None = None
    max_frames: int | None = None
    num_buckets: int | tuple[int, int] = 10
    max_wait: int = least(1, 10_000, "10,000 is the default")
    max_samples: int | None = None
    quadratic: int | None = None
    drop_last: bool = False
    min_batch_size: int = 1
    max_tokens: int | None = None
    length: Length | Pair | None = None
    max_cost: int | None = None
    cost: Callable[..., float] | None = None

    def __post_init__(self) -> None:
        for name in ("bucket_boundaries", "num_buckets", "length"):
            object.__setattr__(self, name, as_tuple(getattr(self, name)))
        bounds: Any = self.bucket_boundaries
        require(bounds is None or rising(bounds), self.name, RISING, bounds, "give frames, shortest first")
        number: Any = self.num_buckets
        ok = is_pair(number, 1) or (is_whole(number) and number >= 1)
        remedy = "10, or (10, 3) for frames and tokens"
        require(ok, self.name, "num_buckets must be 1 or more, or a pair of such numbers", number, remedy)
        both = bounds is not None and number != BucketBatch.num_buckets
        refuse(both, self.name, "num_buckets cannot be combined with bucket_boundaries", "leave one of them out")
        super().__post_init__()
        if self.bucket_batch_sizes is not None:
            object.__setattr__(self, "bucket_batch_sizes", tuple(self.bucket_batch_sizes))
        sentence = "buckets by cost, a function of two lengths, must be pairs"
        refuse(self.cost is not None and not self.in_pairs, self.name, sentence, "as in num_buckets=(10, 3)")
        sentence = "max_samples cannot be combined with pairs of lengths"
        refuse(self.max_samples is not None and self.in_pairs, self.name, sentence, "give max_frames or max_cost")
        sizes = self.bucket_batch_sizes
        both = sizes is not None and self.budget is not None
        refuse(both, self.name, "bucket_batch_sizes cannot be combined with a budget", "leave one of them out")
        budgets = "max_frames, max_samples, max_tokens or max_cost"
        neither = sizes is None and self.budget is None
        refuse(neither, self.name, "the size of a batch needs a limit", f"give {budgets}, or bucket_batch_sizes")
        if sizes is not None:
            least = self.min_batch_size
            sentence = "bucket_batch_sizes of pairs of lengths need bucket_boundaries"
            refuse(bounds is None and self.in_pairs, self.name, sentence, "give these, or a budget")
            count: Any = self.num_buckets if bounds is None else count_of(bounds, self.in_pairs)
            rule = f"bucket_batch_sizes must be {count} numbers above {least - 1}"
            remedy = "one more than boundaries (one for each pair), none below min_batch_size"
            require(len(sizes) == count and min(sizes) >= least, self.name, rule, sizes, remedy)

    @cached_property
    def in_pairs(self) -> bool:
        bounds: Any = self.bucket_boundaries
        return isinstance(bounds[0] if bounds else self.num_buckets if bounds is None else None, tuple)

    @property
    def lengths(self) -> int:
        return 2 if self.in_pairs else 1

    @property
    def sized_by(self) -> Length | Pair | None:
        return (self.length or FRAMES_AND_TOKENS) if self.in_pairs else super().sized_by

    def fill_ratio(self, bucket: int, count: int, longest: Any) -> float | None:
        sizes = self.bucket_batch_sizes
        if self.budget is not None:
            return self.budget.fill_ratio(count, longest)
        return None if sizes is None else count / sizes[bucket]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _BucketNode(source, lane, self, site)


def _as_lists(boundaries: Sequence[Any]) -> list[Any]:
    """Return boundaries as they are in a state, which is JSON."""
    return [list(one) if isinstance(one, tuple) else one for one in boundaries]


class _BucketNode(BudgetBuffer):
    state_fields = ("boundaries", "waiting")

    def __init__(self, source: Node, lane: Lane, stage: BucketBatch, site: Site) -> None:
        super().__init__(source, lane, site, stage, stage.budget)
        self.stage = stage
        given: Any = stage.bucket_boundaries
        self.given: list[Any] | None = None if given is None else _as_lists(given)

    def start(self) -> None:
        self.boundaries = self.given
        self.waiting = 0  # utterances that are in no bucket yet, the last ones of the order

    def order(self) -> list[int]:
        return [n for bucket in self.buckets.all for n in bucket.numbers] + list(self.unsorted)

    def rebuild(self, order: list[int]) -> None:
        sorted_ones = len(order) - self.waiting
        stage, bounds = self.stage, self.boundaries or []
        self.index = index_of(bounds, stage.in_pairs)
        count, sizes = count_of(bounds, stage.in_pairs), stage.bucket_batch_sizes or ()
        self.buckets = Buckets(count, self.budget, sizes, stage.min_batch_size)
        self.unsorted = deque(order[sorted_ones:])
        for number in order[:sorted_ones]:
            self.buckets.put(self._bucket(number), number, self.cost(number))

    def next(self) -> list[Sample]:
        if self.boundaries is None:
            self._find_boundaries()
        while len(batch := self._batch()) < self.stage.min_batch_size:
            self.leave_out(batch, "min_batch_size")  # they do not fit together, by two lengths
        return self.give(batch)

    def _batch(self) -> list[int]:
        while not self._overdue():
            arrived = self._arrival()
            if arrived is None:
                buckets = self.buckets
                for at in buckets.filled():
                    if self.stage.drop_last and not buckets.full(at):
                        self.leave_out(buckets.take(at, len(buckets.all[at].numbers)), "drop_last")
                if buckets.held < self.stage.min_batch_size:
                    self.leave_out(buckets.take_all(), "min_batch_size")
                    raise StopIteration
                return buckets.take_last()
            number, cost = arrived
            if batch := self.buckets.add(self._bucket(number), number, cost):
                return batch
        return self.buckets.take_whole(self._bucket(self.oldest))

    def _arrival(self) -> tuple[int, Any] | None:
        """Return number and cost of the next utterance for the buckets; None at the end."""
        if self.unsorted:
            self.waiting -= 1
            number = self.unsorted.popleft()
            return number, self.cost(number)
        return self.arrival()

    def _find_boundaries(self) -> None:
        """Find boundaries by the lengths of the first utterances, which are held."""
        arrived: list[int] = []
        while len(arrived) < LOOK and (found := self.arrival()) is not None:
            arrived.append(found[0])
        lengths, many = [self._length(n) for n in arrived], self.stage.num_buckets
        if isinstance(many, int):
            self.boundaries = even_boundaries(lengths, many)
        else:
            self.boundaries = _as_lists(pairs_of(np.array(lengths, np.int64).reshape(-1, 2), many))
        self.waiting = len(arrived)
        self.rebuild(arrived)

    def _length(self, number: int) -> Any:
        return self.length_of(self.held[number])

    def _bucket(self, number: int) -> int:
        return self.index(self._length(number))

    def unbounded(self, item: Sample, length: Any) -> int | None:
        if not self.stage.in_pairs or holds(self.given or [], length):
            return 0
        lengths = " and ".join(f"{n} {name}" for n, name in zip(length, names_of(self.stage.sized_by), strict=True))
        message = f"{lengths} fit into no bucket: add a larger bucket, or put .filter(…) before"
        self.lane.ledger.handle(item.failure(DataError("over_budget", message), self.name), self.name)
        return None

    def _overdue(self) -> bool:
        """True if the oldest utterance in a bucket has waited long enough, and there are enough for a batch."""
        oldest = self.arrived - self.age()
        waited = (self.unsorted[0] if self.unsorted else self.arrived) - oldest
        return waited > self.stage.max_wait and self.buckets.held >= self.stage.min_batch_size
