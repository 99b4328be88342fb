"""``batch`` and ``dynamic_batch``: a fixed number of utterances, or as many as fit a budget of padded frames or
samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from uio_pipes.core.capabilities import FollowsSteps, MakesBatches
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import Length
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, least
from uio_pipes.stages.batches.budget import Budget, BudgetBuffer, BudgetStage, PartialBatch


@dataclass(frozen=True)
class Batch(MakesBatches, Flow):
    """Make batches of a fixed number of utterances.

    Args:
        batch_size: utterances per batch, at least 1. Default: 16.
        drop_last: whether to leave out the last batch of a lane if it is smaller; its utterances are then counted
            as ``drop_last``. Default: False.
    """

    name: ClassVar[str] = "batch"
    reasons = ("drop_last",)
    gives: ClassVar[str] = "batch"

    batch_size: int = least(1, 16, "WeNet's default is 16")
    drop_last: bool = False

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _BatchNode(source, lane, self)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [n // self.batch_size if self.drop_last else -(-n // self.batch_size) for n in counts]


class _BatchNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Batch) -> None:
        super().__init__(source)
        self.lane, self.size, self.drop_last = lane, stage.batch_size, stage.drop_last
        self.making: list[Sample] = []

    def next(self) -> list[Sample]:
        batch = self.making = []
        try:
            while len(batch) < self.size:
                batch.append(self.source.next())
                self.lane.stall_guard.arrived += 1
        except StopIteration:
            if not batch:
                raise
            if self.drop_last:
                for _ in batch:
                    self.lane.ledger.count("drop_last")
                raise
        finally:
            self.making = []
        return batch

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held + len(self.making), items


@dataclass(frozen=True)
class DynamicBatch(FollowsSteps, BudgetStage):
    """Make batches of utterances in their order, each as large as a budget allows.

    Lengths are planned ones: feature frames, or units of 10 ms of audio if there is no feature stage. An utterance
    of which ``min_batch_size`` copies exceed the budget is the failure ``over_budget``; so no batch before the last
    of a lane has fewer than ``min_batch_size`` utterances.

    Args:
        max_frames: the budget in padded frames: the longest utterance × the number of utterances is never more
            (WeNet's ``max_frames_in_batch``). Default: None, which is 12,000 unless another budget is given.
        max_samples: instead of ``max_frames``, a budget in padded audio samples, at the utterances' own rate; for
            waveforms only. Default: None.
        quadratic: count an utterance of length n as n + n² / quadratic, so that long utterances, whose attention
            costs the square of their length, come in smaller batches. A length in the unit of the budget (Lhotse's
            ``quadratic_duration``). Default: None, count n.
        drop_last: whether to leave out the last batch of a lane if another utterance would have fitted; its
            utterances are then counted as ``drop_last``. Default: False.
        min_batch_size: fewest utterances of a batch; if fewer remain at the end of a lane, they are left out and
            counted as ``min_batch_size``. Default: 1.
        max_tokens: a budget in padded tokens instead; an utterance has as many as it has labels, or ``length`` says.
            Default: None.
        length: another length to go by, such as "tokens", "prompt.frames", or a function of all planned lengths, as
            in ``lambda n: n.frames // 4 + n.tokens``. Default: None, planned frames.
    """

    name: ClassVar[str] = "dynamic_batch"
    follows_steps: ClassVar[frozenset[str]] = frozenset(["max_frames", "max_samples", "max_tokens"])

    max_frames: int | None = None
    max_samples: int | None = None
    quadratic: int | None = None
    drop_last: bool = False
    min_batch_size: int = 1
    max_tokens: int | None = None
    length: Length | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.budget  # noqa: B018  wrong arguments fail now

    @cached_property
    def budget(self) -> Budget:
        others = {"samples": self.max_samples, "tokens": self.max_tokens}
        frames = 12_000 if self.max_frames is None and not any(others.values()) else self.max_frames
        budget: Budget | None = Budget.of(self.name, {"frames": frames} | others, self.quadratic, self.min_batch_size)
        assert budget is not None
        return budget

    def fill_ratio(self, bucket: int, count: int, longest: int) -> float | None:
        return None if self.versions else self.budget.fill_ratio(count, longest)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return (_FollowingBatches if self.versions else _DynamicNode)(source, lane, self, site)


class _DynamicNode(BudgetBuffer):
    budget: Budget

    def __init__(self, source: Node, lane: Lane, stage: DynamicBatch, site: Site) -> None:
        super().__init__(source, lane, site, stage, stage.budget)
        self.drop_last = stage.drop_last

    def order(self) -> list[int]:
        return self.first

    def rebuild(self, order: list[int]) -> None:
        self.first = order  # the utterance that did not fit into the last batch

    def next(self) -> list[Sample]:
        batch = PartialBatch()
        for number in self.first:
            batch.add(number, self.cost(number))
        self.first = []
        while (arrived := self.arrival()) is not None:
            number, cost = arrived
            if self.budget.room(max(batch.worst, cost)) <= len(batch.numbers):
                self.first = [number]
                return self.give(batch.numbers)
            batch.add(number, cost)
        count = len(batch.numbers)
        if not count:
            raise StopIteration
        if count < self.budget.least:
            self.leave_out(batch.numbers, "min_batch_size")
            raise StopIteration
        if self.drop_last and count < self.budget.room(batch.worst):
            self.leave_out(batch.numbers, "drop_last")
            raise StopIteration
        return self.give(batch.numbers)


class _FollowingBatches(_DynamicNode):
    """A ``dynamic_batch`` whose budget follows the step."""

    state_fields: ClassVar[tuple[str, ...]] = ("position",)

    def __init__(self, source: Node, lane: Lane, stage: DynamicBatch, site: Site) -> None:
        super().__init__(source, lane, stage, site)
        self.setting = stage.setting(lane, site)
        self.setting.node = self

    def start(self) -> None:
        self.position = 0  # batches given

    def next(self) -> list[Sample]:
        stage = self.setting.at(self.position)
        self.budget, self.drop_last = stage.budget, stage.drop_last
        self.first = [number for number in self.first if self._still_fits(number)]
        batch = super().next()
        self.position += 1
        return batch

    def _still_fits(self, number: int) -> bool:
        """Return whether a held utterance fits a batch by the budget of now; if not, it fails and is released."""
        item = self.held[number]
        if self._cost(item, self.length_of(item)) is None:
            self.release(number)
            return False
        return True
