"""Passes a few utterances through a pipeline and records what each stage made of them.

A tap after every stage passes only a few items, so that buffers do not wait for more, computes the fields that the
stage deferred, and records fields, planned length and time. If filters leave nothing, more items are passed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger, Policy
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Origin, Sample
from uio_pipes.core.stage import Stage
from uio_pipes.run.lane_runner import one_thread

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph

MOST = 512  # most items that are tried


@dataclass(frozen=True)
class StageRecord:
    """An item after a stage: the fields of a sample (all computed), a batch, a file or a list item."""

    item: Any
    origins: tuple[Origin, ...]  # of the utterances in it
    seconds: float
    planned: Plan | None = None


@dataclass
class _Run:
    """The data that the taps of a run share."""

    most: int  # items that each tap passes on
    records: list[list[StageRecord]]
    nested: float = 0.0  # seconds spent in earlier taps since the current one asked
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Tap(Stage):
    """A stage whose node, made by ``node``, passes items on as they are and takes note of them."""

    name: ClassVar[str] = "tap"
    takes: ClassVar[tuple[str, ...]] = ("any",)

    node: Callable[[Node], Node]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return self.node(source)


class _RecordingNode(Node):
    def __init__(self, source: Node, run: _Run, records: list[StageRecord]) -> None:
        super().__init__(source)
        self.run, self.records = run, records

    def next(self) -> Any:
        while len(self.records) < self.run.most:
            before, self.run.nested = self.run.nested, 0.0
            entered = time.perf_counter()
            item = self.source.next()
            own = time.perf_counter() - entered - self.run.nested
            record = self._record(item, own)
            self.run.nested = before + time.perf_counter() - entered
            if record is not None:
                self.records.append(record)
                return item
        raise StopIteration

    def _record(self, item: Any, seconds: float) -> StageRecord | None:
        """Return the record of an item with all fields computed, or None if computing them failed."""
        if not isinstance(item, Sample):
            return StageRecord(list(item) if isinstance(item, list) else item, _origins(item), seconds)
        try:
            planned = item.planned()
            began = time.perf_counter()
            item.finish()
        except DataError as error:
            self.run.failures.append(str(error))
            return None
        return StageRecord(dict(item.fields), (item.origin,), seconds + time.perf_counter() - began, planned)


def _origins(item: Any) -> tuple[Origin, ...]:
    return tuple(i.origin for i in (item if isinstance(item, list) else [item]) if hasattr(i, "origin"))


def trace(pipeline: Graph, count: int) -> Iterator[list[StageRecord]]:
    """Yield, for each of ``count`` utterances (or batches) that come out, its record after each stage.

    Raises: PipelineError if nothing comes out; it says what was left out and why.
    """
    most = count
    while True:
        run, ledger = _trial(pipeline, most, count)
        if len(run.records[-1]) >= count or most >= MOST:
            break
        most *= 2
    if not run.records[-1]:
        why = [f"{n} left out as {reason}" for reason, n in ledger.skipped.items()]
        why += [*ledger.reports, *run.failures][-1:]
        raise PipelineError(
            f"nothing comes out of the pipeline ({'; '.join(why) or 'its list is empty'}); "
            "check its filters and its data"
        )
    run, _ = _trial(pipeline, most, count)  # once more, for times with tables, kernels and files loaded
    for last in run.records[-1]:
        yield _path(run, last)


def _trial(pipeline: Graph, most: int, count: int) -> tuple[_Run, Ledger]:
    run = _Run(most, [[] for _ in pipeline.stages])
    stages = [
        s
        for i, stage in enumerate(pipeline.stages)
        for s in (stage, Tap(partial(_RecordingNode, run=run, records=run.records[i])))
    ]
    ledger = Ledger(Policy(max_consecutive_failures=MOST))
    node = type(pipeline)(tuple(stages)).build(Lane(ledger))
    with one_thread(), contextlib.suppress(StopIteration):
        node.reset(None)
        for _ in range(count):
            node.next()
    return run, ledger


def _path(run: _Run, last: StageRecord) -> list[StageRecord]:
    """Return for each stage the record of the utterance that ``last`` is, or is made of."""
    origins = last.origins or _of_key(run, last.item)
    return [max(records, key=lambda r: _likeness(r, origins)) for records in run.records]


def _of_key(run: _Run, batch: Any) -> tuple[Origin, ...]:
    """Return the origin of the first utterance of a padded batch."""
    keys = batch.get("keys") if isinstance(batch, dict) else None
    named = (r.origins for records in run.records for r in records if keys and _key(r.item) == keys[0])
    return next(named, ())


def _key(item: Any) -> object:
    return item.get("key") if isinstance(item, dict) else None


def _likeness(record: StageRecord, origins: tuple[Origin, ...]) -> int:
    """Return how many leading fields (item, offset, …) of the origins agree."""
    pairs = [(a, b) for a in record.origins for b in origins[:1]]
    return max((next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), 9) for a, b in pairs), default=0)
