"""``from_iterable``: utterances from any Python object that yields mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import IterableDataset
from torchdata.nodes import BaseNode

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import Stage
from uio_pipes.sources.iterable_nodes import IndexNode, SkipNode, StateNode

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["FromIterable", "from_iterable"]


@dataclass(frozen=True)
class FromIterable(Stage):
    """Utterances from a Python object: see :func:`from_iterable`."""

    name: ClassVar[str] = "from_iterable"
    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "sample"

    items: Any

    @property
    def note(self) -> str:  # type: ignore[override]
        return {
            "index": "resumes at its number",
            "state": "resumes by its own state_dict",
            "skip": "resumes by passing over what was delivered",
        }[self.way]

    @property
    def way(self) -> str:
        """How it is resumed: "index", "state" or "skip"."""
        if _is_indexed(self.items):
            return "index"
        return "state" if hasattr(self.items, "state_dict") else "skip"

    def describe(self, *, stable: bool = False) -> str:
        count = f"{len(self.items)} items" if isinstance(self.items, Sized) else ""
        what = ", ".join(filter(None, [type(self.items).__qualname__, "" if stable else count]))
        return f"{self.name}({what})"

    def content(self) -> list[tuple[int, str]]:
        """Number of items, and a hash of it: what they hold is not looked at."""
        count = len(self.items) if isinstance(self.items, Sized) else 0
        return [(count, f"{stable_hash(self.way, count):016x}")]

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return {"index": IndexNode, "state": StateNode, "skip": SkipNode}[self.way](self.items, lane)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return [len(self.items)] * len(counts) if isinstance(self.items, Sized) else None

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        from uio_pipes.dsp.tones import Tones

        return from_iterable(Tones()).sharding_filter().shuffle(3).batch(3).pad()


def _is_indexed(items: Any) -> bool:
    by_number = isinstance(items, Sized) and hasattr(items, "__getitem__")
    return by_number and not isinstance(items, (Mapping, IterableDataset))


def from_iterable(items: Iterable[Mapping[str, Any]]) -> Pipeline:
    """Start a pipeline from any Python object that yields utterances: a list, a ``Dataset``, an ``IterDataPipe``, a
    node.

    For several workers or ranks add ``.sharding_filter()``. ``print(pipeline)`` says how the object is resumed: a
    list, a map-style ``Dataset`` or another object with ``len`` and indexing at its number; one with ``state_dict``
    and ``load_state_dict`` (of the state between two items), or a ``torchdata.nodes.BaseNode``, by its own state;
    any other by passing over what was delivered.

    Args:
        items: the object. It yields mappings with ``key`` (if missing, the number of the utterance), ``txt``, and
            ``wav`` or ``feat``: ``wav`` is a path or URL, the bytes of an audio file, or samples as a tensor or
            array with ``sample_rate`` in Hz; ``feat`` (T, F) is a tensor, an array or a .npy file. It must yield
            the same in the same order each time; if it has ``set_epoch``, it may change with the epoch.

    Raises:
        PipelineError: ``items`` can be gone through only once, or not at all.
    """
    from uio_pipes.pipeline import Pipeline

    remedy = "pass a list, a Dataset, an IterDataPipe or an object with __iter__"
    ok = not isinstance(items, (str, bytes, Mapping, Pipeline)) and (isinstance(items, Iterable) or _is_indexed(items))
    require(ok, FromIterable.name, "the argument must yield utterances (mappings)", items, remedy)
    once = isinstance(items, Iterator) and not isinstance(items, BaseNode)
    rule = "a generator or iterator can be gone through only once, but epochs and resuming need it again"
    require(not once, FromIterable.name, rule, items, f"{remedy} that makes it")
    return Pipeline((FromIterable(items),))
