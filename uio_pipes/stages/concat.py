"""``concat``: short utterances joined to longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.chain import Chain
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import PerUtterance
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.stages.concat_links import joining, ticks
from uio_pipes.stages.concat_sample import join


@dataclass(frozen=True)
class Concat(Stage):
    """Join utterances that follow one another, as long as together they are not longer than a bound.

    The result is one utterance: ``wav``, ``feat``, ``label`` and ``tokens`` are put one after the other, keys are
    joined by "+", transcripts by a blank (by nothing next to a script without blanks: Chinese, Japanese, Thai, …),
    and other texts and numbers (``speaker``, ``lang``) stay if all parts agree. Put ``shuffle`` before it, or the
    same neighbours meet in every epoch; put ``tokenize`` after it if the blanks between words are tokens. An
    utterance that exceeds the bound by itself passes unchanged. Give exactly one of the two bounds.

    Lengths are planned ones, and the parts are decoded when the batch is made. A part that fails then is counted
    and left out of the joined utterance; so is one whose sample rate, channels or feature bins differ from those of
    the first part (``mixed_sample_rates``, ``mixed_channels``, ``mixed_features``). Statistics count a joined
    utterance as one.

    Args:
        max_seconds: longest result in seconds of audio. Default: None.
        max_frames: longest result in planned frames (10 ms of audio if there is no feature stage before). Default:
            None.
    """

    name: ClassVar[str] = "concat"
    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "by the plan: nothing is decoded"

    max_seconds: float | None = None
    max_frames: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.max_seconds, self.max_frames)
        rule = "exactly one of max_seconds and max_frames must be given"
        require(given.count(None) == 1, self.name, rule, given, "try max_seconds=20")
        for field, value in zip(("max_seconds", "max_frames"), given, strict=True):
            require(value is None or value > 0, self.name, f"{field} must be above 0", value, "try max_seconds=20")

    def check(self, before: Sequence[Stage]) -> None:
        for stage in before:
            if isinstance(stage, PerUtterance) and stage.of:
                rule = f"concat joins the usual audio and text only, but {stage.name} works on {stage.of!r}"
                raise PipelineError(f"{rule}: leave one of them out")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ConcatNode(source, lane, self, site)

    def size(self, plan: Plan) -> int:
        """Return the length that is bounded, in microseconds or frames."""
        if self.max_seconds is None:
            return plan.length
        if plan.frames is not None and not plan.samples:
            raise PipelineError("concat: precomputed features have no seconds; give max_frames instead of max_seconds")
        return ticks(plan)

    @property
    def most(self) -> int:
        """The bound, in the same unit."""
        return self.max_frames or round((self.max_seconds or 0) * TICKS)


class _ConcatNode(Buffer):
    def __init__(self, source: Node, lane: Lane, stage: Concat, site: Site) -> None:
        super().__init__(source, lane, site.name)
        self.stage = stage
        self.chains: dict[frozenset[str], Chain] = {}

    def bounds(self) -> tuple[int, int]:
        return 1, 1

    def order(self) -> list[int]:
        return self.first

    def rebuild(self, order: list[int]) -> None:
        self.first = order  # the utterance that did not fit after the ones before

    def next(self) -> Sample:
        numbers, self.first = self.first, []
        size = sum(self.stage.size(self.held[n].plan) for n in numbers)
        try:
            while not self.first:
                number, item = self.pull()
                if self.length(item) is None:
                    continue
                self.hold(number, item)
                size += self.stage.size(item.plan)
                if not numbers or size <= self.stage.most:
                    numbers.append(number)
                else:
                    self.first = [number]
        except StopIteration:
            if not numbers:
                raise
        parts = [self.release(n) for n in numbers]
        return parts[0] if len(parts) == 1 else join(parts, self._chain(parts))

    def _chain(self, parts: list[Sample]) -> Chain:
        names = frozenset(name for part in parts for name in part)
        if names not in self.chains:
            self.chains[names] = joining(names, self.lane.ledger)
        return self.chains[names]
