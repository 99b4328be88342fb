"""The budget of a batch, and the buffer for batches within it, shared by ``dynamic_batch`` and ``bucket_batch``.

A batch of ``count`` utterances is padded to its longest, so it costs count × the cost of its costliest one. Costs are
whole numbers, so that batches end at the same utterance on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import ceil
from typing import Any, ClassVar

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.checks import in_words, is_number, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.capabilities import MakesBatches
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import Length, Pair, check_measure, names_of
from uio_pipes.core.roles import Flow, check_labels, have_features
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage


@dataclass(frozen=True)
class Budget:
    """A bound: ``count`` × cost of the longest is never above ``most``, in ``unit`` ("frames", "samples", "tokens" or
    "cost").

    Lengths are counted in this unit, or as ``length`` says; ``function`` gives their cost, and ``names`` are theirs.

    With ``quadratic`` an utterance of length n costs n + n² / quadratic, like Lhotse's ``quadratic_duration``: twice
    its length at n = ``quadratic``. This is for models whose attention needs memory by the square of the length.
    """

    name: str  # the stage, for messages
    most: int
    unit: str = "frames"
    quadratic: int | None = None
    least: int = 1  # utterances in a batch
    function: Callable[..., float] | None = None
    names: tuple[str, ...] = ("frames",)

    @classmethod
    def of(
        cls, stage: str, most: Mapping[str, int | None], quadratic: int | None, min_batch_size: int, **by: Any
    ) -> Any:
        """Return the budget that a stage's arguments set, ``most`` by unit, if any; ``by``: the other fields.

        Raises: PipelineError.
        """
        function = by.get("function")
        refuse(function is not None and not callable(function), stage, "cost must be a function", "of lengths")
        alone = (most.get("cost") is None) != (function is None)
        refuse(alone, stage, "max_cost and cost, a function of lengths, need each other", "give both")
        refuse(function and quadratic, stage, "quadratic cannot be combined with cost", "leave quadratic out")
        bounds = {f"max_{unit}": value for unit, value in most.items()}
        for argument, value in {**bounds, "quadratic": quadratic, "min_batch_size": min_batch_size}.items():
            ok = value is None or value >= 1
            require(ok, stage, f"{argument} must be 1 or more", value, "raise it, or leave it out")
        given = [unit for unit, value in most.items() if value is not None]
        sentence = f"{in_words(f'max_{unit}' for unit in given)} cannot be combined"
        refuse(len(given) > 1, stage, sentence, "give one: samples are for waveforms, tokens for texts")
        alone = quadratic is not None and not given
        refuse(alone, stage, "quadratic needs a budget to count in", f"give {in_words(bounds, 'or')}, too")
        if not given:
            return None
        bound = most[given[0]]
        assert bound is not None
        return cls(stage, bound, given[0], quadratic, min_batch_size, **by)

    def size(self, sample: Sample, length: Any) -> Any:
        """Return the size of an utterance of this length in ``unit``. Raises: PipelineError for samples of features."""
        if self.unit != "samples":
            return length
        if sample.plan.frames is not None:
            raise _no_samples(self.name)
        return waveform_samples(sample.plan, self.name)

    def cost(self, size: Any) -> Any:
        """Return the cost of an utterance of this size, times ``quadratic`` if that is given, as a whole number."""
        if self.function is not None:
            return self._called(size)
        return size if self.quadratic is None else size * (self.quadratic + size)

    def alone(self, cost: Any) -> int:
        """Return what an utterance costs alone in a batch."""
        own: int = cost
        return own

    def worst(self, costs: Sequence[Any]) -> Any:
        """Return the cost by which a batch of utterances of these ``costs`` is counted, that of its costliest one."""
        return max(costs)

    def room(self, cost: Any) -> int:
        """Return how many utterances a batch may have if the costliest one costs ``cost``."""
        room: int = self.most * (self.quadratic or 1) // cost
        return room

    def fill_ratio(self, count: int, longest: Any) -> float | None:
        """Return how full a batch is by planned lengths; None for a budget of samples."""
        return None if self.unit == "samples" else count * self.cost(longest) / (self.most * (self.quadratic or 1))

    def shown(self, size: Any) -> str:
        """Return an utterance's size in words."""
        cost = self.alone(self.cost(size)) / (self.quadratic or 1)
        return self._named(size) + (f" (that cost {cost:.0f})" if self.quadratic or self.function else "")

    def _named(self, size: Any) -> str:
        return f"{size} {self.unit if self.function is None else self.names[0]}"

    def _called(self, *lengths: int) -> int:
        """Return what the user's function says of an utterance of these lengths, 1 at least."""
        assert self.function is not None
        try:
            found: Any = self.function(*lengths)
        except Exception as error:
            of = " and ".join(f"{n} {name}" for n, name in zip(lengths, self.names, strict=True))
            message = f"the function given as cost failed for {of}: {type(error).__name__}: {error}"
            raise CostFailed(f"{self.name}: {message}") from error
        if not is_number(found):
            returned = f"the function given as cost returned {found!r} for {' and '.join(map(str, lengths))}"
            raise PipelineError(f"{self.name}: {returned}; it must return a number")
        cost: int = ceil(found)
        return max(1, cost)

    def over(self, size: Any) -> DataError:
        """Return the failure ``over_budget``: a batch of ``least`` such utterances would be above the budget."""
        what = self.shown(size)
        what += f" in a batch of at least {self.least}" if self.least > 1 else ""
        message = f"{what} exceed the budget of a whole batch ({self.most}); raise max_{self.unit}, or filter before"
        return DataError("over_budget", message)


class CostFailed(PipelineError):
    """The user's function of the cost raised an error; the message names it and the lengths."""


@dataclass(frozen=True)
class PaddedBudget(Budget):
    """A bound on batches that are padded to the longest of each of several lengths: ``count`` × ``function(longest,
    longest, …)``. If ``unit`` is "frames" or "tokens", it is ``count`` × the first or the second."""

    names: tuple[str, ...] = ("frames", "tokens")

    def cost(self, size: Any) -> Any:
        return size  # what it costs shows in the batch, which may have a longer one in another length

    def alone(self, cost: Any) -> int:
        if self.function is not None:
            return self._called(*cost)
        return max(1, int(super().cost(cost[0] if self.unit == "frames" else cost[1])))

    def worst(self, costs: Sequence[Any]) -> Any:
        return tuple(map(max, zip(*costs, strict=True)))

    def room(self, cost: Any) -> int:
        return self.most * (self.quadratic or 1) // self.alone(cost)

    def fill_ratio(self, count: int, longest: Any) -> float | None:
        return count * self.alone(longest) / (self.most * (self.quadratic or 1))

    def _named(self, size: Any) -> str:
        return " and ".join(f"{length} {name}" for length, name in zip(size, self.names, strict=True))


def _no_samples(stage: str) -> PipelineError:
    return PipelineError(
        f"{stage}: max_samples counts samples of waveforms, but the utterances have features here; use max_frames, or "
        "leave out the stage that makes features"
    )


class BudgetStage(MakesBatches, Flow):
    """A stage that makes batches within a budget. Subclasses are frozen dataclasses with these fields."""

    gives: ClassVar[str] = "batch"
    reasons = ("drop_last", "min_batch_size")
    note: ClassVar[str] = "by the plan: nothing is decoded"

    max_frames: int | None
    max_samples: int | None
    max_tokens: int | None
    max_cost: int | None = None
    cost: Callable[..., float] | None = None
    quadratic: int | None
    min_batch_size: int
    length: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        check_measure(self.name, self.length, self.lengths)
        both = self.max_samples is not None and self.length is not None
        sentence = "max_samples, which counts samples, cannot be combined with length"
        refuse(both, self.name, sentence, "give max_frames")

    @property
    def lengths(self) -> int:
        """How many lengths the budget uses."""
        return 1

    @property
    def sized_by(self) -> Length | Pair | None:
        return self.length or (None if self.max_tokens is None else "tokens")

    @cached_property
    def budget(self) -> Budget | None:
        """The budget that the arguments set, if any."""
        most = {
            "frames": self.max_frames,
            "samples": self.max_samples,
            "tokens": self.max_tokens,
            "cost": self.max_cost,
        }
        kind, by = (PaddedBudget if self.lengths > 1 else Budget), {"function": self.cost}
        made: Budget | None = kind.of(
            self.name, most, self.quadratic, self.min_batch_size, **by, names=names_of(self.sized_by)
        )
        return made

    def check(self, before: Sequence[Stage]) -> None:
        if self.max_samples is not None and have_features(before):
            raise _no_samples(self.name)
        check_labels(self.name, self.sized_by, before)


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

    nothing: ClassVar[Any] = 0

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.costs: list[Any] = []
        self.worst = self.nothing

    @staticmethod
    def larger(one: Any, other: Any) -> Any:
        """Return the highest cost of a batch whose highest one would be either."""
        return one if one > other else other

    def add(self, number: int, cost: Any) -> None:
        self.numbers.append(number)
        self.costs.append(cost)
        if cost > self.worst:
            self.worst = cost

    def take(self, count: int) -> PartialBatch:
        """Remove and return the first ``count`` (or all there are)."""
        taken = type(self)()
        taken.numbers, self.numbers = self.numbers[:count], self.numbers[count:]
        taken.costs, self.costs = self.costs[:count], self.costs[count:]
        taken.worst = reduce(self.larger, taken.costs, self.nothing) if self.costs else self.worst
        self.worst = reduce(self.larger, self.costs, self.nothing)
        return taken


class PartialPairs(PartialBatch):
    """A batch that is not full yet, of utterances with two lengths: the highest cost is the longest of each."""

    __slots__ = ()

    nothing = (0, 0)

    def add(self, number: int, cost: Any) -> None:
        self.numbers.append(number)
        self.costs.append(cost)
        self.worst = self.larger(self.worst, cost)

    @staticmethod
    def larger(one: Any, other: Any) -> Any:
        return max(one[0], other[0]), max(one[1], other[1])


class BudgetBuffer(Buffer):
    """A buffer that takes utterances in and releases batches of them."""

    def __init__(self, source: Node, lane: Lane, site: Site, stage: BudgetStage, budget: Budget | None) -> None:
        super().__init__(source, lane, site.name, stage.sized_by)
        self.budget = budget

    def arrival(self) -> tuple[int, Any] | None:
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

    def _cost(self, item: Sample, length: Any) -> Any:
        """Return the cost of an utterance (0 without a budget); None if it fails because no batch can have it."""
        budget = self.budget
        if budget is None:
            return self.unbounded(item, length)
        size = budget.size(item, length)
        try:
            cost = budget.cost(size)
            if budget.room(cost) >= budget.least:
                return cost
            failure = budget.over(size)
        except CostFailed as error:
            failure = DataError("cost_failed", str(error))
        self.lane.ledger.handle(item.failure(failure, self.name), self.name)
        return None

    def unbounded(self, item: Sample, length: Any) -> int | None:
        """Return 0, the cost without a budget; None if the utterance fails because there is no place for it."""
        return 0

    def cost(self, number: int) -> Any:
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
