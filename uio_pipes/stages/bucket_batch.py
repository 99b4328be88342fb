"""``bucket_batch``: batches of utterances of about the same length."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.lengths import Length
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import added
from uio_pipes.core.state_kinds import Kind, listed, whole
from uio_pipes.stages.bucket_window import WindowNode
from uio_pipes.stages.buckets import Buckets, even_boundaries
from uio_pipes.stages.budget import Budget, BudgetBuffer, BudgetStage

LOOK = 1000  # utterances by which boundaries are found


@dataclass(frozen=True)
class BucketBatch(BudgetStage):
    """Collect utterances in buckets of similar planned length; each full bucket is a batch.

    With ``window`` there are no buckets: that many utterances are held, sorted by length, and a batch is a run of
    neighbours from anywhere among them, as many as the budget allows. This leaves the least padding, and every
    batch is full. Give either ``bucket_batch_sizes`` or one of the budgets ``max_frames`` and ``max_samples``.

    Args:
        bucket_boundaries: rising lengths in frames; bucket i takes lengths below boundary i, and the last bucket
            the rest. Default: None, which finds boundaries from the first 1,000 utterances of the lane so that each
            bucket gets equally many frames.
        bucket_batch_sizes: how many utterances fill each bucket, one number more than there are boundaries (WeNet's
            way). Default: None.
        max_frames: a budget in padded frames: the longest utterance × the number of utterances is never more.
            Default: None.
        num_buckets: how many buckets to make if boundaries are found automatically. Default: 10.
        max_wait: a bucket whose oldest utterance has waited while this many others came is given although it is not
            full. Default: 10,000.
        max_samples: a budget in padded audio samples, at the utterances' own rate; for waveforms only. Default:
            None.
        quadratic: count an utterance of length n as n + n² / quadratic, so that long utterances, whose attention
            costs the square of their length, come in smaller batches. A length in the unit of the budget (Lhotse's
            ``quadratic_duration``). Default: None, count n.
        drop_last: whether to leave out, at the end of a lane, the utterances of buckets that are not full; they are
            then counted as ``drop_last``. Default: False.
        min_batch_size: fewest utterances of a batch. A bucket that has waited and holds fewer takes some from its
            neighbours; if fewer remain at the end of a lane, they join the last batch if its budget allows it, and
            otherwise are counted as ``min_batch_size``. An utterance of which this many copies exceed the budget is
            the failure ``over_budget``. Default: 1.
        window: how many utterances to hold and choose neighbours from; 1,500 is usual. Needs a budget, and excludes
            the options of buckets. Default: None, use buckets.
        sync: let all lanes take their batches from the same part of their windows at each step, by a draw that they
            share without communication; ranks that step together then work on utterances of similar length. Needs
            ``window``. Default: False.
        max_tokens: a budget in padded tokens instead; an utterance has as many as it has labels, or ``length`` says.
            Default: None.
        length: another length to go by, such as "tokens", "prompt.frames", or a function of all planned lengths, as
            in ``lambda n: n.frames // 4 + n.tokens``. Default: None, planned frames.
    """

    name: ClassVar[str] = "bucket_batch"
    in_buckets: ClassVar[bool] = True

    bucket_boundaries: Sequence[int] | None = None
    bucket_batch_sizes: Sequence[int] | None = None
    max_frames: int | None = None
    num_buckets: int = 10
    max_wait: int = 10_000
    max_samples: int | None = None
    quadratic: int | None = None
    drop_last: bool = False
    min_batch_size: int = 1
    window: int | None = None
    sync: bool = False
    max_tokens: int | None = added(None)
    length: Length | None = added(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bucket_boundaries", "bucket_batch_sizes"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        for name in ("num_buckets", "max_wait"):
            value = getattr(self, name)
            require(value >= 1, self.name, f"{name} must be 1 or more", value, "see the docstring")
        bounds, sizes = self.bucket_boundaries, self.bucket_batch_sizes
        rising = bounds is None or (all(b > 0 for b in bounds) and all(a < b for a, b in pairwise(bounds)))
        require(rising, self.name, "bucket_boundaries must rise and be above 0", bounds, "give frames, shortest first")
        one = (sizes is None) != (self.budget is None)
        given = (sizes, self.max_frames, self.max_samples, self.max_tokens)
        rule = "give either bucket_batch_sizes or max_frames or max_samples or max_tokens"
        require(one, self.name, rule, given, "choose one")
        self._check_window()
        if sizes is not None:
            count, least = self.num_buckets if bounds is None else len(bounds) + 1, self.min_batch_size
            rule = f"bucket_batch_sizes must be {count} numbers above {least - 1}"
            remedy = "one more than boundaries, none below min_batch_size"
            require(len(sizes) == count and min(sizes) >= least, self.name, rule, sizes, remedy)

    def _check_window(self) -> None:
        if self.window is None:
            require(not self.sync, self.name, "sync needs a window to choose from", self.window, "give window=1_500")
            return
        require(self.window >= 1, self.name, "window must be 1 or more", self.window, "1,500 is usual")
        given = [n for n in ("bucket_boundaries", "bucket_batch_sizes") if getattr(self, n) is not None]
        given += ["drop_last"] * self.drop_last + ["min_batch_size"] * (self.min_batch_size > 1)
        require(not given, self.name, "a window has no buckets", given, "leave out these, or the window")

    @cached_property
    def budget(self) -> Budget | None:
        most = {"frames": self.max_frames, "samples": self.max_samples, "tokens": self.max_tokens}
        return Budget.of(self.name, most, self.quadratic, self.min_batch_size)

    def fill(self, bucket: int, count: int, longest: int) -> float | None:
        sizes = self.bucket_batch_sizes
        if self.budget is not None:
            return self.budget.fill(count, longest)
        return None if sizes is None else count / sizes[bucket]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        if self.window is None or self.budget is None:
            return _BucketNode(source, lane, self, site)
        return WindowNode(source, lane, site, self, self.budget, self.window, self.max_wait, self.sync)


class _BucketNode(BudgetBuffer):
    state_fields = ("boundaries", "waiting")

    def __init__(self, source: Node, lane: Lane, stage: BucketBatch, site: Site) -> None:
        super().__init__(source, lane, site, stage, stage.budget)
        self.stage = stage

    def start(self) -> None:
        given = self.stage.bucket_boundaries
        self.boundaries: list[int] | None = None if given is None else list(given)
        self.waiting = 0  # utterances that are in no bucket yet, the last ones of the order

    def state_kinds(self) -> dict[str, Kind]:
        held, given = self.bounds()[0], self.stage.bucket_boundaries
        if given is None:
            rule = f"{self.stage.num_buckets - 1} lengths, none below the one before, or null"
            return {"boundaries": Kind(rule, self._can_be_found), "waiting": whole(held + 1)}
        same = Kind(f"{list(given)} as in the graph", lambda value: value == list(given))
        return {"boundaries": same, "waiting": whole(held + 1)}

    def _can_be_found(self, value: Any) -> bool:
        if value is None or not listed(whole()).fits(value):
            return value is None
        return len(value) == self.stage.num_buckets - 1 and value == sorted(value)

    def bounds(self) -> tuple[int, int]:
        wait = self.stage.max_wait + LOOK + self.stage.min_batch_size
        return wait, wait

    def order(self) -> list[int]:
        return [n for bucket in self.buckets.all for n in bucket.numbers] + list(self.unsorted)

    def rebuild(self, order: list[int]) -> None:
        sorted_ones = len(order) - self.waiting
        latest = sorted_ones >= 0 and sorted(order)[sorted_ones:] == order[sorted_ones:]
        if not latest or (self.boundaries is None and order):
            raise self.damaged(f"waiting is {self.waiting}, but those are not the last of the {len(order)} held")
        self.buckets = Buckets(self.boundaries or (), self._room, self.stage.min_batch_size)
        self.unsorted = deque(order[sorted_ones:])
        for number in order[:sorted_ones]:
            self.buckets.put(self._bucket(number), number, self.cost(number))

    def next(self) -> list[Sample]:
        if self.boundaries is None:
            self._find_boundaries()
        while not self._overdue():
            arrived = self._arrival()
            if arrived is None:
                return self._last()
            number, cost = arrived
            if batch := self.buckets.add(self._bucket(number), number, cost):
                return self.give(batch)
        return self.give(self.buckets.take_whole(self._bucket(self.oldest)))

    def _arrival(self) -> tuple[int, int] | None:
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
        self.boundaries = even_boundaries([self._length(n) for n in arrived], self.stage.num_buckets)
        self.waiting = len(arrived)
        self.rebuild(arrived)

    def _length(self, number: int) -> int:
        return self.length_of(self.held[number])

    def _bucket(self, number: int) -> int:
        return self.buckets.index(self._length(number))

    def _room(self, at: int, cost: int) -> int:
        """Return how many utterances a batch of bucket ``at`` may have if the costliest one costs ``cost``."""
        if self.budget is not None:
            return self.budget.room(cost)
        assert self.stage.bucket_batch_sizes is not None
        return self.stage.bucket_batch_sizes[at]

    def _overdue(self) -> bool:
        """True if the oldest utterance in a bucket has waited long enough, and there are enough for a batch."""
        oldest = self.arrived - self.age()
        waited = (self.unsorted[0] if self.unsorted else self.arrived) - oldest
        return waited > self.stage.max_wait and self.buckets.held >= self.stage.min_batch_size

    def _last(self) -> list[Sample]:
        """Return a batch of what is left at the lane's end, shortest first. Raises: StopIteration after the last."""
        buckets = self.buckets
        for at in buckets.filled():
            if self.stage.drop_last and not buckets.full(at):
                self.leave_out(buckets.take(at, len(buckets.all[at].numbers)), "drop_last")
        if buckets.held < self.stage.min_batch_size:
            self.leave_out(buckets.take(0, buckets.held), "min_batch_size")
            raise StopIteration
        return self.give(buckets.take_last())
