"""The budget of a batch, and the buffer for batches within it, shared by ``dynamic_batch`` and ``bucket_batch``.

A batch of ``count`` utterances is padded to its longest, so it costs count × the cost of its costliest one. Costs are
whole numbers, so that batches end at the same utterance on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.lengths import Length, check_measure
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import have_features
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage


@dataclass(frozen=True)
class Budget:
    """A bound: ``count`` × cost of the longest is never above ``most``, in ``unit`` ("frames", "samples" or "tokens").

    Lengths are counted in this unit, or as ``length`` says.

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
        cls, stage: str, most: Mapping[str, int | None], quadratic: int | None, min_batch_size: int
    ) -> Budget | None:
        """Return the budget that a stage's arguments set, ``most`` by unit, if any. Raises: PipelineError."""
        bounds = {f"max_{unit}": value for unit, value in most.items()}
        for argument, value in {**bounds, "quadratic": quadratic, "min_batch_size": min_batch_size}.items():
            ok = value is None or value >= 1
            require(ok, stage, f"{argument} must be 1 or more", value, f"see help(pipeline.{stage})")
        given, names = [unit for unit, value in most.items() if value is not None], " or ".join(bounds)
        rule = f"give only one of {names}"
        require(len(given) <= 1, stage, rule, tuple(most.values()), "samples are for waveforms, tokens for texts")
        ok = bool(given) or quadratic is None
        require(ok, stage, "quadratic needs a budget to count in", quadratic, f"give {names} too")
        if not given:
            return None
        bound = most[given[0]]
        assert bound is not None
        return cls(stage, bound, given[0], quadratic, min_batch_size)

    def size(self, sample: Sample, length: int) -> int:
        """Return the size of an utterance of this length in ``unit``. Raises: PipelineError for samples of features."""
        if self.unit != "samples":
            return length
        if sample.plan.frames is not None:
            raise _no_samples(self.name)
        return waveform_samples(sample.plan, self.name)

    def cost(self, size: int) -> int:
        """Return the cost of an utterance of this size, times ``quadratic`` if that is given, as a whole number."""
        return size if self.quadratic is None else size * (self.quadratic + size)

    def room(self, cost: int) -> int:
        """Return how many utterances a batch may have if the costliest one costs ``cost``."""
        return self.most * (self.quadratic or 1) // cost

    def fill(self, count: int, longest: int) -> float | None:
        """Return how full a batch is by planned lengths; None for a budget of samples."""
        return None if self.unit == "samples" else count * self.cost(longest) / (self.most * (self.quadratic or 1))

    def over(self, size: int) -> DataError:
        """Return the failure ``over_budget``: a batch of ``least`` such utterances would be above the budget."""
        what = f"{size} {self.unit}"
        what += f" (that cost {self.cost(size) / self.quadratic:.0f})" if self.quadratic else ""
        what += f" in a batch of at least {self.least}" if self.least > 1 else ""
        message = f"{what} are more than a whole batch may have ({self.most}); raise max_{self.unit}, or filter before"
        return DataError("over_budget", message)


def _no_samples(stage: str) -> PipelineError:
    return PipelineError(
        f"{stage}: max_samples counts samples of waveforms, but the utterances have features here; use max_frames, or "
        "leave out the stage that makes features"
    )


class BudgetStage(Stage):
    """A stage that makes batches within a budget. Subclasses are frozen dataclasses with these fields."""

    gives: ClassVar[str] = "batch"
    reasons: ClassVar[frozenset[str]] = frozenset(["drop_last", "min_batch_size"])
    note: ClassVar[str] = "by the plan: nothing is decoded"

    max_samples: int | None
    max_tokens: int | None
    length: Length | None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_measure(self.name, self.length)
        both = self.max_samples is not None and self.length is not None
        require(not both, self.name, "max_samples counts samples, not a length", self.length, "give max_frames")

    @property
    def sized_by(self) -> Length | None:
        return self.length or (None if self.max_tokens is None else "tokens")

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

    def __init__(self, source: Node, lane: Lane, site: Site, stage: BudgetStage, budget: Budget | None) -> None:
        super().__init__(source, lane, site.name, stage.sized_by)
        self.budget = budget

    def arrival(self) -> tuple[int, int] | None:
        """Hold the next utterance that fits a batch, and return its number and cost; None at the end."""
        while True:
            try:
                number, item = self.pull()
            except StopIteration:
                return None
            length = self.length(item)
            cost = None if length is None else self._cost(item, length)
            if cost is not None:
                self.hold(number, item)
                return number, cost

    def _cost(self, item: Sample, length: int) -> int | None:
        """Return the cost of an utterance (0 without a budget); None if it fails because it is above the budget."""
        budget = self.budget
        if budget is None:
            return 0
        size = budget.size(item, length)
        cost = budget.cost(size)
        if budget.room(cost) >= budget.least:
            return cost
        self.lane.ledger.handle(item.failure(budget.over(size), self.name), self.name)
        return None

    def cost(self, number: int) -> int:
        """Return the cost of a held utterance."""
        if self.budget is None:
            return 0
        item = self.held[number]
        return self.budget.cost(self.budget.size(item, self.length_of(item)))

    def give(self, numbers: list[int]) -> list[Sample]:
        return [self.release(n) for n in numbers]

    def leave_out(self, numbers: list[int], reason: str) -> None:
        """Release utterances that will be in no batch, and count them under ``reason``."""
        for number in numbers:
            self.release(number)
            self.lane.ledger.count(reason)
