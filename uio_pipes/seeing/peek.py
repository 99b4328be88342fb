"""``pipeline.peek()``: shows one utterance after every stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.printable import counted
from uio_pipes.core.items import File, Item
from uio_pipes.core.sample import Sample
from uio_pipes.io.local import Ref
from uio_pipes.seeing.probe import StageRecord, trace

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph

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

    def __str__(self) -> str:
        rows = [("stage", "ms", "planned", "what is new or changed")]
        for seen in self.stages:
            fields = [f"{name} {seen.fields[name]}" if name else seen.fields[name] for name in seen.changed]
            rows.append((_short(seen.stage), f"{seen.milliseconds:.2f}", seen.length, fields[0] if fields else ""))
            rows += [("", "", "", text) for text in fields[1:]]
        a, b, c = (max(len(row[i]) for row in rows) for i in range(3))
        lines = [f"{name:{a}}  {ms:>{b}}  {plan:>{c}}  {text}".rstrip() for name, ms, plan, text in rows]
        return "\n".join([f"utterance {self.key}", *lines])

    __repr__ = __str__


def peek(pipeline: Graph) -> Peek:
    """Pass one utterance through ``pipeline``, in this process, with seed 0 in epoch 0."""
    (records,) = trace(pipeline, 1)
    seen, before = [], dict[str, Any]()
    for stage, record in zip(pipeline.stages, records, strict=True):
        fields = _fields(record)
        changed = tuple(name for name, value in fields.items() if not _same(value, before.get(name, _NOTHING)))
        texts = {name: describe(value) for name, value in fields.items()}
        seen.append(StageView(stage.describe(), record.seconds * 1000, record.planned, texts, changed))
        before = fields
    return Peek(_key(records), tuple(seen))


_NOTHING = object()


def _fields(record: StageRecord) -> dict[str, Any]:
    """Return the fields by name. Anything but a sample or a padded batch is one field without a name."""
    if isinstance(record.item, dict):
        return record.item
    return {"": record.item}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (torch.Tensor, np.ndarray)) and isinstance(b, (torch.Tensor, np.ndarray)):
        return a is b or (type(a) is type(b) and a.dtype == b.dtype and np.array_equal(np.asarray(a), np.asarray(b)))
    return a is b or (type(a) is type(b) and not isinstance(a, list) and bool(a == b))


def _key(records: list[StageRecord]) -> str:
    keys = [str(r.item["key"]) for r in records if isinstance(r.item, dict) and "key" in r.item]
    return keys[-1] if keys else ""


def describe(value: Any) -> str:
    """Return type, shape or text of a field in a few words."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, (bytes, Ref)):
        return f"{value.size if isinstance(value, Ref) else len(value):,} bytes"
    if isinstance(value, (Item, File)):
        return _place(value)
    if isinstance(value, (list, tuple)):
        return _list(value)
    plain = isinstance(value, (str, int, float)) or value is None
    return _short(repr(value) if plain else type(value).__name__)


def _list(value: list[Any] | tuple[Any, ...]) -> str:
    if value and isinstance(value[0], Sample):
        return counted(len(value), "utterance")
    kinds = {type(v).__name__ for v in value}
    return f"list of {len(value)} {kinds.pop() if len(kinds) == 1 else 'items'}: {_short(repr(list(value)))}"


def _place(item: Item | File) -> str:
    text = item.text if isinstance(item, Item) else item.url  # its end says more than its beginning
    return text if len(text) <= WIDE else f"…{text[1 - WIDE :]}"


def _short(text: str) -> str:
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"
