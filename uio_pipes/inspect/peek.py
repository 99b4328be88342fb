"""``pipeline.peek()``: passes a few utterances through a pipeline and shows them after every stage.

A tap after every stage passes only a few items, so that buffers do not wait for more, computes the fields that the
stage deferred, and records fields, planned length and time. If filters leave nothing, more items are passed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.html_table import html_table
from uio_pipes.base.urls import plural
from uio_pipes.core.items import File, Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Failures, Ledger
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage
from uio_pipes.io.references import Ref
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.stages.utterances.cache import Cache
from uio_pipes.stages.utterances.encoded import Encoded

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
    before: float = 0.0  # seconds in the stages before the one that runs, with their taps
    failures: list[str] = field(default_factory=list)
    copies: dict[Origin, float] = field(default_factory=dict)  # seconds in which the last copy was computed


@dataclass(frozen=True)
class Tap(Flow):
    """A stage whose node, made by ``node``, records items and passes them on unchanged."""

    name: ClassVar[str] = "tap"
    takes: ClassVar[tuple[str, ...]] = ("any",)

    node: Callable[[Node], Node]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return self.node(source)


class _RecordingNode(Node):
    """``apart``: fields are computed in a copy, as a cache that comes later works on what has not been computed."""

    def __init__(self, source: Node, run: _Run, records: list[StageRecord], apart: bool) -> None:
        super().__init__(source)
        self.run, self.records, self.apart = run, records, apart

    def next(self) -> Any:
        while len(self.records) < self.run.most:
            run, before, began = self.run, self.run.before, time.perf_counter()
            run.before = 0.0
            try:
                item = self.source.next()
                record = self._record(item, time.perf_counter() - began - run.before)
            finally:
                run.before = before + time.perf_counter() - began
            if record is not None:
                self.records.append(record)
                return item
        raise StopIteration

    def _record(self, item: Any, seconds: float) -> StageRecord | None:
        """Return the record of an item with all fields computed, or None if computing them failed."""
        if not isinstance(item, Sample):
            origins = tuple(i.origin for i in (item if isinstance(item, list) else [item]) if hasattr(i, "origin"))
            return StageRecord(list(item) if isinstance(item, list) else item, origins, seconds)
        try:
            planned = item.planned()
            began, item = time.perf_counter(), item.copy() if self.apart else item
            item.finish()
        except DataError as error:
            self.run.failures.append(str(error))
            return None
        took = time.perf_counter() - began
        if self.apart:  # the copy of the stage before took a part of it, too
            took, self.run.copies[item.origin] = max(0.0, took - self.run.copies.get(item.origin, 0.0)), took
        return StageRecord(dict(item.fields), (item.origin,), seconds + took, planned)


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
        origins = last.origins or _of_key(run, last.item)
        yield [max(records, key=lambda r: _likeness(r, origins)) for records in run.records]


def _trial(pipeline: Graph, most: int, count: int) -> tuple[_Run, Ledger]:
    run = _Run(most, [[] for _ in pipeline.stages])
    caches = [i for i, stage in enumerate(pipeline.stages) if isinstance(stage, (Cache, Encoded))]
    stages = list[Stage]()
    for i, stage in enumerate(pipeline.stages):
        tap = partial(_RecordingNode, run=run, records=run.records[i], apart=i < max(caches, default=0))
        stages += [stage, Tap(tap)]
    ledger = Ledger(Failures(max_consecutive_failures=MOST))
    node = type(pipeline)(tuple(stages)).build(Lane(ledger))
    with one_thread(), contextlib.suppress(StopIteration):
        node.reset(None)
        for _ in range(count):
            node.next()
    return run, ledger


def _of_key(run: _Run, batch: Any) -> tuple[Origin, ...]:
    """Return the origin of the first utterance of a padded batch."""
    first = (batch.get("keys") or [])[:1] if isinstance(batch, dict) else []
    rows = (record for records in run.records for record in records if isinstance(record.item, dict))
    return next((record.origins for record in rows if record.item.get("key") in first), ())


def _likeness(record: StageRecord, origins: tuple[Origin, ...]) -> int:
    """Return how many leading fields (item, offset, …) of the origins agree."""
    pairs = [(a, b) for a in record.origins for b in origins[:1]]
    return max((next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), 9) for a, b in pairs), default=0)


WIDE = 40  # most characters of a text that are shown


@dataclass(frozen=True)
class StageView:
    """The utterance after one stage: the stage, milliseconds spent in it, the planned length, and type and shape of all
    fields. Only those that the stage changed are printed."""

    stage: str
    milliseconds: float
    planned: Plan | None
    fields: dict[str, str]
    changed: tuple[str, ...]

    @property
    def length(self) -> str:
        """The planned length, as text."""
        plan = self.planned
        if plan is None:
            return ""
        if plan.frames is not None:
            return f"{plan.frames} frames"
        return f"{'≤ ' if plan.sample_rate == TICKS else ''}{plan.samples / plan.sample_rate:.2f} s"


@dataclass(frozen=True, repr=False)
class Peek:
    """The result of :meth:`Pipeline.peek`. Printed, it is a table."""

    key: str
    stages: tuple[StageView, ...]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = [("stage", "ms", "planned", "what is new or changed")]
        for seen in self.stages:
            fields = [f"{name} {seen.fields[name]}" if name else seen.fields[name] for name in seen.changed]
            rows.append((_short(seen.stage), f"{seen.milliseconds:.2f}", seen.length, fields[0] if fields else ""))
            rows += [("", "", "", text) for text in fields[1:]]
        return rows

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        return html_table(head, rows, f"utterance {self.key}")

    def __str__(self) -> str:
        rows = self._rows()
        a, b, c = (max(len(row[i]) for row in rows) for i in range(3))
        lines = [f"{name:{a}}  {ms:>{b}}  {plan:>{c}}  {text}".rstrip() for name, ms, plan, text in rows]
        return "\n".join([f"utterance {self.key}", *lines])

    __repr__ = __str__


def peek(pipeline: Graph) -> Peek:
    """Pass one utterance through ``pipeline``, in this process, with seed 0 in epoch 0."""
    (records,) = trace(pipeline, 1)
    seen, before = [], dict[str, Any]()
    for stage, record in zip(pipeline.stages, records, strict=True):
        fields = record.item if isinstance(record.item, dict) else {"": record.item}  # without a name: of no utterance
        changed = tuple(name for name, value in fields.items() if not _same(value, before.get(name, _NOTHING)))
        texts = {name: describe(value) for name, value in fields.items()}
        seen.append(StageView(stage.describe(), record.seconds * 1000, record.planned, texts, changed))
        before = fields
    keys = [str(r.item["key"]) for r in records if isinstance(r.item, dict) and "key" in r.item]
    return Peek(keys[-1] if keys else "", tuple(seen))


_NOTHING = object()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (torch.Tensor, np.ndarray)) and isinstance(b, (torch.Tensor, np.ndarray)):
        return a is b or (type(a) is type(b) and a.dtype == b.dtype and np.array_equal(np.asarray(a), np.asarray(b)))
    return a is b or (type(a) is type(b) and not isinstance(a, list) and bool(a == b))


def describe(value: Any) -> str:
    """Return type, shape or text of a field in a few words."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, (bytes, Ref)):
        return f"{value.size if isinstance(value, Ref) else len(value):,} bytes"
    if isinstance(value, (Item, File)):
        text = value.text if isinstance(value, Item) else value.url  # its end says more than its beginning
        return text if len(text) <= WIDE else f"…{text[1 - WIDE :]}"
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], Sample):
            return plural(len(value), "utterance")
        kinds = {type(v).__name__ for v in value}
        return f"list of {len(value)} {kinds.pop() if len(kinds) == 1 else 'items'}: {_short(repr(list(value)))}"
    if isinstance(value, Timeline):
        turns = []
        for speaker, said in groupby(value.events, lambda event: event.speaker):
            events = list(said)
            words = _short(" ".join(event.text for event in events))
            turns.append(f"{speaker} {events[0].start:.2f}–{max(e.end for e in events):.2f} s {words}".strip())
        more = [f"{plural(len(turns) - 2, 'turn')} more"] if len(turns) > 2 else []
        return f"{plural(len(value.events), 'event')}: {'; '.join(turns[:2] + more)}" if turns else "no events"
    plain = isinstance(value, (str, int, float)) or value is None
    return _short(repr(value) if plain else type(value).__name__)


def _short(text: str) -> str:
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"


def batch_html(value: dict[Any, Any]) -> str | None:
    """Return a batch as a table of its names, types, shapes and padding; None for another dict."""
    tensors = {name: each for name, each in value.items() if isinstance(each, torch.Tensor) and each.ndim}
    counts = {len(each) for name, each in value.items() if name in tensors or isinstance(each, list)}
    if not tensors or len(counts) != 1 or not all(isinstance(name, str) for name in value):
        return None
    rows = []
    for name, each in value.items():
        lengths, padding = tensors.get(f"{name}_lengths", tensors.get(f"{name}_length")), ""
        if name in tensors and lengths is not None and each.ndim > 1 and each.numel():
            longest = int(lengths.max())  # fills the dimension that is padded
            width = next((size for size in each.shape[1:] if size == longest), each.shape[1])
            padding = f"{1 - float(lengths.sum()) / (len(each) * width):.1%} padding"
        rows.append((name, describe(each), padding))
    return html_table(("name", "what", ""), rows, f"a batch of {counts.pop()}")
