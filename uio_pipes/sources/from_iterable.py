"""``from_iterable``: utterances from any Python object that yields mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.utils.data import IterableDataset

from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.describe import show
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage, names
from uio_pipes.sources.datasets_private import loses_items
from uio_pipes.sources.iterable_nodes import IndexNode, SkipNode, StateNode


@dataclass(frozen=True)
class FromIterable(Stage):
    """The utterances of a Python object; see :func:`uio_pipes.from_iterable`."""

    name: ClassVar[str] = "from_iterable"
    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "sample"

    items: Any
    fields: Mapping[str, str] | None = names()

    @property
    def note(self) -> str:  # type: ignore[override]
        return {
            "index": "resumes at its number",
            "state": "resumes by its own state_dict",
            "skip": "resumes by skipping what was delivered",
        }[self.way]

    @property
    def way(self) -> str:
        """The way to resume it: "index", "state" or "skip"."""
        if is_indexed(self.items):
            return "index"
        return "state" if hasattr(self.items, "state_dict") and not loses_items(self.items) else "skip"

    def describe(self, *, stable: bool = False) -> str:
        count = f"{len(self.items)} items" if isinstance(self.items, Sized) else ""
        named = f"fields={show(self.fields, stable=stable)}" if self.fields else ""
        what = ", ".join(filter(None, [type(self.items).__qualname__, "" if stable else count, named]))
        return f"{self.name}({what})"

    def content(self) -> list[tuple[int, str]]:
        """Return the number of items, and a hash of it and not of the items, which are not read."""
        count = len(self.items) if isinstance(self.items, Sized) else 0
        return [(count, f"{stable_hash(self.way, count):016x}")]

    def uncountable_reason(self, kind: str) -> str:
        if isinstance(self.items, (list, tuple)):
            return ""
        return f"what a {type(self.items).__name__} yields shows only when it is iterated"

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return {"index": IndexNode, "state": StateNode, "skip": SkipNode}[self.way](self.items, lane, self.fields)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [len(self.items)] * len(counts) if isinstance(self.items, Sized) else None


def is_indexed(items: Any) -> bool:
    by_number = isinstance(items, Sized) and hasattr(items, "__getitem__")
    return by_number and not isinstance(items, (Mapping, IterableDataset))
