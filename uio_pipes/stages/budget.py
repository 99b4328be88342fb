"""The budget of a batch, and the buffer for batches within it, shared by ``dynamic_batch`` and ``bucket_batch``.

A batch of ``count`` utterances is padded to its longest, so it costs count × the cost of its costliest one. Costs are
whole numbers, so that batches end at the same utterance on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage, have_features


@dataclass(frozen=True)
class Budget:
    """A bound: ``count`` × cost of the longest is never above ``most``, in ``unit`` ("frames" or "samples").

    With ``quadratic`` an utterance of length n costs n + n² / quadratic, like Lhotse's ``quadratic_duration``: twice
    its length at n = ``quadratic``. This is for models whose attention needs memory by the square of the length.
    """

    name: str  # the stage, for messages
    most: int
    unit: str = "frames"
    quadratic: int | None = None
    least: int = 1  # utterances in a batch

    @classmethod
    def of(
        cls, name: str, max_frames: int | None, max_samples: int | None, quadratic: int | None, least: int
    ) -> Budget | None:
        """Return the budget that a stage's arguments set, if any. Raises: PipelineError."""
        given = {"max_frames": max_frames, "max_samples": max_samples, "quadratic": quadratic, "min_batch_size": least}
        for argument, value in given.items():
            ok = value is None or value >= 1
            require(ok, name, f"{argument} must be 1 or more", value, f"see help(pipeline.{name})")
        one, both = max_frames is None or max_samples is None, (max_frames, max_samples)
        require(one, name, "give either max_frames or max_samples", both, "samples are for waveforms")
        unit, most = ("frames", max_frames) if max_samples is None else ("samples", max_samples)
        ok = most is not None or quadratic is None
        require(ok, name, "quadratic needs a budget to count in", quadratic, "give max_frames or max_samples too")
        return None if most is None else cls(name, most, unit, quadratic, least)

    def size(self, plan: Plan) -> int:
        """Return the length of an utterance in ``unit``. Raises: PipelineError for samples of features."""
        if self.unit == "frames":
            return plan.length
        if plan.frames is not None:
            raise _no_samples(self.name)
        return waveform_samples(plan, self.name)

    def cost(self, plan: Plan) -> int:
        """Return the cost of an utterance, times ``quadratic`` if that is given, to stay a whole number."""
        size = self.size(plan)
        return size if self.quadratic is None else size * (self.quadratic + size)

    def room(self, cost: int) -> int:
        """Return how many utterances a batch may have if the costliest one costs ``cost``."""
        return self.most * (self.quadratic or 1) // cost

    def fill(self, count: int, longest: int) -> float | None:
        """Return how full a batch is by planned frames; None for a budget of samples."""
        if self.unit != "frames":
            return None
        cost = longest if self.quadratic is None else longest * (self.quadratic + longest)
        return count * cost / (self.most * (self.quadratic or 1))

    def over(self, plan: Plan) -> DataError:
        """Return the failure ``over_budget``: a batch of ``least`` such utterances would be above the budget."""
        size = f"{self.size(plan)} {self.unit}"
        size += f" (that cost {self.cost(plan) / self.quadratic:.0f})" if self.quadratic else ""
        size += f" in a batch of at least {self.least}" if self.least > 1 else ""
        message = f"{size} are more than a whole batch may have ({self.most}); raise max_{self.unit}, or filter before"
        return DataError("over_budget", message)


def _no_samples(stage: str) -> PipelineError:
    return PipelineError(
        f"{stage}: max_samples counts samples of waveforms, but the utterances have features here; use max_frames, or "
        "leave out the stage that makes features"
    )


class BudgetStage(Stage):
    """A stage that makes batches within a budget. Subclasses are frozen dataclasses with a field ``max_samples``."""

    gives: ClassVar[str] = "batch"
    reasons: ClassVar[frozenset[str]] = frozenset(["drop_last", "min_batch_size"])
    note: ClassVar[str] = "by the plan: nothing is decoded"

    max_samples: int | None

    def check(self, before: Sequence[Stage]) -> None:
        if self.max_samples is not None and have_features(before):
            raise _no_samples(self.name)


def waveform_samples(plan: Plan, stage: str) -> int:
    """Return the audio samples of a plan at its own rate. Raises: PipelineError if only seconds are known."""
    if plan.sample_rate == TICKS:
        raise PipelineError(
            f"{stage}: only `duration` is known of the audio here, and no sample rate that would make samples of it; "
            "put .resample(16_000) before, or leave `duration` out of the list"
        )
    return plan.samples


class PartialBatch:
    """A batch that is not full yet: arrival numbers, their costs, and the highest cost."""

    __slots__ = ("costs", "numbers", "worst")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.costs: list[int] = []
        self.worst = 0

    def add(self, number: int, cost: int) -> None:
        self.numbers.append(number)
        self.costs.append(cost)
        if cost > self.worst:
            self.worst = cost

    def take(self, count: int) -> list[int]:
        """Remove and return the first ``count`` numbers (or all there are)."""
        taken, self.numbers, self.costs = self.numbers[:count], self.numbers[count:], self.costs[count:]
        self.worst = max(self.costs, default=0)
        return taken


class BudgetBuffer(Buffer):
    """A buffer that takes utterances in and releases batches of them."""

    def __init__(self, source: Node, lane: Lane, name: str, budget: Budget | None) -> None:
        super().__init__(source, lane, name)
        self.budget = budget

    def arrival(self) -> tuple[int, int] | None:
        """Hold the next utterance that fits a batch, and return its number and cost; None at the end."""
        while True:
            try:
                number, item = self.pull()
            except StopIteration:
                return None
            if self.length(item) is None:
                continue
            cost = self._cost(item)
            if cost is not None:
                self.hold(number, item)
                return number, cost

    def _cost(self, item: Sample) -> int | None:
        """Return the cost of an utterance (0 without a budget); None if it fails because it is above the budget."""
        budget = self.budget
        if budget is None:
            return 0
        cost = budget.cost(item.plan)
        if budget.room(cost) >= budget.least:
            return cost
        self.lane.ledger.handle(item.failure(budget.over(item.plan), self.name), self.name)
        return None

    def cost(self, number: int) -> int:
        """Return the cost of a held utterance."""
        return 0 if self.budget is None else self.budget.cost(self.held[number].plan)

    def give(self, numbers: list[int]) -> list[Sample]:
        return [self.release(n) for n in numbers]

    def leave_out(self, numbers: list[int], reason: str) -> None:
        """Release utterances that will be in no batch, and count them under ``reason``."""
        for number in numbers:
            self.release(number)
            self.lane.ledger.count(reason)
