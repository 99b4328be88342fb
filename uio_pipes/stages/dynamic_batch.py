"""``dynamic_batch``: as many utterances as fit a budget of padded frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uio_pipes.errors import DataError
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Buffer, Node
from uio_pipes.sample import Sample
from uio_pipes.stage import Stage, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["DynamicBatch", "over_budget"]


@dataclass(frozen=True)
class DynamicBatch(Stage):
    """Batches whose padded frames, longest × count, are never above ``max_frames`` (WeNet's ``max_frames_in_batch``).

    Lengths are planned ones: feature frames, or 10 ms of audio without a feature stage. An utterance that is longer
    than the budget by itself is the failure ``over_budget``.
    """

    name: ClassVar[str] = "dynamic_batch"
    gives: ClassVar[str] = "batch"
    note: ClassVar[str] = "by the plan: nothing is decoded"

    max_frames: int = 12_000

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.max_frames, int) and self.max_frames >= 1
        require(ok, self.name, "max_frames must be a whole number above 0", self.max_frames, "WeNet's default is 12000")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _DynamicNode(source, lane, self, site)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().fbank(num_mel_bins=8).dynamic_batch(600).pad()


class _DynamicNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: DynamicBatch, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.budget = stage.max_frames

    def order(self) -> list[int]:
        return self.first

    def rebuild(self, order: list[int]) -> None:
        self.first = order  # the utterance that did not fit into the batch before

    def next(self) -> list[Sample]:
        numbers, self.first = self.first, []
        longest = max((self.held[n].plan.length for n in numbers), default=0)
        try:
            while not self.first:
                number, item = self.pull()
                length = self.length(item)
                if length is None or over_budget(self, item, length, self.budget):
                    continue
                self.hold(number, item)
                longest = max(longest, length)
                if longest * (len(numbers) + 1) <= self.budget:
                    numbers.append(number)
                else:
                    self.first = [number]
        except StopIteration:
            if not numbers:
                raise
        return [self.release(n) for n in numbers]


def over_budget(node: Buffer, item: Sample, length: int, budget: int) -> bool:
    """Whether one utterance is above the budget of a batch by itself; then it is handled as a failure."""
    if length <= budget:
        return False
    message = f"{length} frames are more than a whole batch may have ({budget}); raise max_frames, or filter before"
    node.lane.ledger.handle(item.failure(DataError("over_budget", message), node.name), node.name)
    return True
