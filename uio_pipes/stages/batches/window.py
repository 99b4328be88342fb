"""Batches of neighbours in a sorted window: what ``bucket_batch`` makes without buckets.

Ranks that step together wait for the slowest one. So lanes share two random draws for their n-th batches, without
communication: from which part of the sorted window the batch comes, and how full it is. A budget is filled by c
utterances of a cost between 1/(c + 1) and 1/c of it; the second draw says where in this range, which c itself hardly
decides. As windows are samples of one distribution, batches of a step are alike in length, and more so in cost.
"""

from __future__ import annotations

import contextlib
import inspect
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from uio_pipes.base.checks import refuse, require
from uio_pipes.base.hashing import mix64, pick
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import FRAMES_AND_TOKENS, Length, Pair
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, least
from uio_pipes.stages.batches.buckets import as_tuple
from uio_pipes.stages.batches.budget import Budget, BudgetBuffer, BudgetStage, PaddedBudget

LAG = 10  # an utterance leaves at the latest after so many times the window's size, which few reach: 1 of 20,000


@dataclass(frozen=True)
class WindowBatch(BudgetStage):
    """Batches of neighbours in a sorted window; for the arguments see :func:`bucket_batch`."""

    name: ClassVar[str] = "bucket_batch"

    max_frames: int | None = None
    window: int = least(1, 1_500, "1,500 is usual")
    max_samples: int | None = None
    quadratic: int | None = None
    drop_last: bool = False
    min_batch_size: int = 1
    max_tokens: int | None = None
    length: Length | Pair | None = None
    max_cost: int | None = None
    cost: Callable[..., float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", as_tuple(self.length))
        super().__post_init__()
        budgets = "max_frames, max_samples, max_tokens or max_cost with cost"
        rule = "the size of a batch needs a limit"
        refuse(self.budget is None, self.name, rule, f"give {budgets}, or bucket_batch_sizes")
        remedy = "raise window, which holds them"
        rule = f"min_batch_size must not be above window ({self.window})"
        require(self.min_batch_size <= self.window, self.name, rule, self.min_batch_size, remedy)

    @cached_property
    def lengths(self) -> int:
        if self.cost is None:
            return 1
        known = self.length and (len(self.length) if isinstance(self.length, tuple) else 1)
        for count in (known,) if known else (2, 1):
            with contextlib.suppress(TypeError, ValueError):  # not a function, or of other arguments
                inspect.signature(self.cost).bind(*range(count))
                return count
        of = f"the {known} that length names" if known else "frames, or of frames and tokens, or what length names"
        remedy = "as in cost=lambda frames, tokens: frames + 4 * tokens"
        require(False, self.name, f"cost must be a function of {of}", self.cost, remedy)
        return 0

    @property
    def sized_by(self) -> Length | Pair | None:
        return self.length or (FRAMES_AND_TOKENS if self.lengths == 2 else super().sized_by)

    def fill_ratio(self, bucket: int, count: int, longest: Any) -> float | None:
        return None if self.budget is None else self.budget.fill_ratio(count, longest)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _WindowNode(source, lane, self, site)


class _WindowNode(BudgetBuffer):
    """Holds utterances, sorted by what each of them costs alone. A batch is a run of them, as long as the budget
    allows; then as many utterances come in."""

    state_fields = ("given",)
    budget: Budget

    def __init__(self, source: Node, lane: Lane, stage: WindowBatch, site: Site) -> None:
        super().__init__(source, lane, site, stage, stage.budget)
        self.stage, self.most = stage, self.budget.most * (self.budget.quadratic or 1)
        self.place_key = lane.order_key(site)  # the same in every lane
        self.fill_key = mix64(self.place_key)

    def start(self) -> None:
        self.given = 0  # batches that went out

    def order(self) -> list[int]:
        return [number for _, number, _ in self.sorted]

    def rebuild(self, order: list[int]) -> None:
        self.sorted = [self._entry(number, self.cost(number)) for number in order]

    def _entry(self, number: int, cost: Any) -> tuple[int, int, Any]:
        return self.budget.alone(cost), number, cost

    def next(self) -> list[Sample]:
        while True:
            while len(self.sorted) < self.stage.window and (arrived := self.arrival()) is not None:
                insort(self.sorted, self._entry(*arrived))
            if not self.sorted:
                raise StopIteration
            last = self._end()
            first = self._first(last)
            while first == 0 and last < len(self.sorted) and self._first(last + 1) == 0:
                last += 1
            self.given += 1
            taken, self.sorted[first:last] = self.sorted[first:last], []
            numbers = [number for _, number, _ in taken]
            if len(taken) < self.budget.least:
                self.leave_out(numbers, "min_batch_size")
            elif self.stage.drop_last and self.exhausted and not self.sorted and self._fits_more(taken):
                self.leave_out(numbers, "drop_last")
            else:
                return self.give(numbers)

    def _end(self) -> int:
        """Return the end of the next batch, behind its costliest utterance."""
        if self.age() > LAG * self.stage.window:
            return bisect_right(self.sorted, self._entry(self.oldest, self.cost(self.oldest)))
        ends, end = [], len(self.sorted)
        while end > 0:  # the window divides into batches, the costliest first, and one of them is drawn
            ends.append(end)
            end -= self.most // self.sorted[end - 1][0]
        room = self.most // self.sorted[ends[pick(self.place_key, self.given, len(ends))] - 1][0]
        low, high = (bisect_left(self.sorted, (self.most // count + 1,)) for count in (room + 1, room))
        return low + pick(self.fill_key, self.given, high - low) + 1

    def _first(self, last: int) -> int:
        if not isinstance(self.budget, PaddedBudget):
            return max(0, last - self.most // self.sorted[last - 1][0])
        first, longest = last - 1, self.sorted[last - 1][2]
        while first > 0:
            longest = self.budget.worst([longest, self.sorted[first - 1][2]])
            if self.budget.room(longest) <= last - first:
                break
            first -= 1
        return first

    def _fits_more(self, taken: list[tuple[int, int, Any]]) -> bool:
        return self.budget.room(self.budget.worst([cost for _, _, cost in taken])) > len(taken)
