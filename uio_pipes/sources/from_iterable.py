"""``from_iterable``: utterances from any Python object that yields mappings."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.utils.data import IterableDataset, IterDataPipe
from torchdata.nodes import BaseNode

from uio_pipes.errors import PipelineError, StateError
from uio_pipes.lane import Lane, Site, stable_hash
from uio_pipes.node import Node
from uio_pipes.length import Plan
from uio_pipes.sample import Chain, Link, Origin, Sample, run_key
from uio_pipes.sources.features import LOAD_FEATURES
from uio_pipes.stage import Stage, require
from uio_pipes.stages.decode_audio import as_waveform

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
        return {"index": _IndexNode, "state": _StateNode, "skip": _SkipNode}[self.way](self.items, lane)

    def count(self, counts: list[int]) -> list[int] | None:
        return [len(self.items)] * len(counts) if isinstance(self.items, Sized) else None

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return from_iterable(_TONES).sharding_filter().shuffle(3).batch(3).pad()


class _IterableNode(Node):
    """State: how many have been given."""

    state_fields: ClassVar[tuple[str, ...]] = ("position",)

    def __init__(self, items: Any, lane: Lane) -> None:
        super().__init__()
        self.items, self.lane = items, lane
        self.chain, self.run_key = Chain(), run_key(lane)

    def start(self) -> None:
        self.position = 0

    def item(self) -> Any:
        """The next item. Raises: StopIteration at the end."""
        raise NotImplementedError

    def next(self) -> Sample:
        item = self.item()
        number = self.position
        self.position += 1
        if not isinstance(item, Mapping):
            raise PipelineError(
                f"from_iterable: item {number} must be a mapping with key, wav (or feat) and txt, not "
                f"{type(item).__name__}; change it by a generator or a Dataset around it"
            )
        fields = dict(item)
        fields["key"] = str(fields.get("key", f"{number:09d}"))
        chain = self.chain.then(LOAD_FEATURES) if isinstance(fields.get("feat"), (str, bytes)) else self.chain
        if isinstance(fields.get("wav"), (torch.Tensor, np.ndarray)):
            chain = chain.then(AS_WAVEFORM)
        origin = Origin(number, pass_=self.lane.pass_, source=self.lane.source)
        return Sample(fields, origin, self.run_key, chain, f"from_iterable, item {number}")

    def skip(self, n: int) -> None:
        for _ in range(n):
            self.item()
            self.position += 1

    def remaining(self) -> tuple[int, int]:
        return 0, max(0, len(self.items) - self.position) if isinstance(self.items, Sized) else 0


class _IndexNode(_IterableNode):
    def item(self) -> Any:
        if self.position >= len(self.items):
            raise StopIteration
        return self.items[self.position]

    def skip(self, n: int) -> None:
        self.position += n
        if self.position > len(self.items):
            raise StopIteration


class _SkipNode(_IterableNode):
    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        wanted, self.position = self.position, 0
        self.iterator = _own_iterator(self.items)
        try:
            for _ in range(wanted):
                next(self.iterator)
        except StopIteration:
            raise StateError(f"from_iterable ended before item {wanted}, where the state was saved") from None
        self.position = wanted

    def item(self) -> Any:
        return next(self.iterator)


class _StateNode(_IterableNode):
    """State: the object's own as well, and whether it has ended: some begin again by themselves then."""

    state_fields = ("position", "ended")

    def start(self) -> None:
        super().start()
        self.ended = 0

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        own = None if initial_state is None else initial_state["own"]
        self.keeper = copy.deepcopy(self.items)
        if isinstance(self.keeper, BaseNode):
            self.keeper.reset(own)
        elif own is not None:
            self.keeper.load_state_dict(own)
        self.iterator = iter(self.keeper)

    def item(self) -> Any:
        if self.ended:
            raise StopIteration
        try:
            return next(self.iterator)
        except StopIteration:
            self.ended = 1
            raise

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "own": copy.deepcopy(self.keeper.state_dict())}


class _AsWaveform:
    """Samples of the user's in the form that audio stages take: float32 (C, S)."""

    name = "as_waveform"
    reads = writes = frozenset(["wav"])

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan

    def apply(self, sample: Sample) -> None:
        sample.fields["wav"] = as_waveform(sample.fields["wav"], None)


AS_WAVEFORM: Link = _AsWaveform()


def _own_iterator(items: Any) -> Iterator[Any]:
    """An iterator of one lane's own: an IterDataPipe has but one at a time."""
    return iter(copy.deepcopy(items) if isinstance(items, IterDataPipe) else items)


def _is_indexed(items: Any) -> bool:
    by_number = isinstance(items, Sized) and hasattr(items, "__getitem__")
    return by_number and not isinstance(items, (Mapping, IterableDataset))


def from_iterable(items: Iterable[Mapping[str, Any]]) -> Pipeline:
    """Start a pipeline from any object that yields utterances: mappings with ``key``, ``wav`` or ``feat``, ``txt``.

    ``wav`` is a path or URL, the bytes of an audio file, or samples (with ``sample_rate`` in Hz) as a tensor or array;
    ``feat`` (T, F) likewise or a .npy file. An utterance without ``key`` gets its number as one. A list, a
    map-style ``Dataset`` or another object with ``len`` and indexing is resumed at its number; one with ``state_dict``
    and ``load_state_dict`` (of the state between two items), or a ``torchdata.nodes.BaseNode``, by its own state; any
    other (``IterDataPipe``, ``IterableDataset``) by passing over what was delivered: ``print(pipeline)`` says which. It
    must yield the same, in the same order, each time. For workers and ranks add ``.sharding_filter()``.

    Raises: PipelineError if it can be gone through only once, or not at all.
    """
    from uio_pipes.pipeline import Pipeline

    remedy = "pass a list, a Dataset, an IterDataPipe or an object with __iter__"
    ok = not isinstance(items, (str, bytes, Mapping)) and (isinstance(items, Iterable) or _is_indexed(items))
    require(ok, FromIterable.name, "the argument must yield utterances (mappings)", items, remedy)
    once = isinstance(items, Iterator) and not isinstance(items, BaseNode)
    rule = "a generator or iterator can be gone through only once, but epochs and resuming need it again"
    require(not once, FromIterable.name, rule, items, f"{remedy} that makes it")
    return Pipeline((FromIterable(items),))


class _Tones:
    """Thirty short tones of rising length: the contract tests' utterances."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import numpy as np

        for i in range(30):
            wav = np.sin(np.arange(800 + 20 * i, dtype=np.float32) * (0.1 + 0.05 * i))
            yield {"key": f"tone{i}", "wav": wav[None], "sample_rate": 8000, "txt": f"{i}"}


_TONES = _Tones()
