"""``from_iterable``: utterances from any Python object that yields mappings, which resumes at a number, by its own
state, or by skipping.

Their own state leaves out what a shuffle buffer holds ("examples from shuffle buffers are lost when resuming", says
``IterableDataset.state_dict``), and only the inside of the object shows that there is one. What is used of it, and of
torch's, is pinned by ``tests/interop/test_datasets.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import IterableDataset, IterDataPipe
from torch.utils.data._utils import worker
from torchdata.nodes import BaseNode

from uio_pipes.audio.length import Plan
from uio_pipes.audio.recording import as_waveform
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError, PipelineError, StateError
from uio_pipes.base.hashing import stable_hash
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.json_text import refused
from uio_pipes.core.capabilities import KnowsFields, Uncountable
from uio_pipes.core.chain import Link
from uio_pipes.core.items import SampleMaker
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Trait, names, printed
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.naming import Renames, asked, audio_of, check_asked, check_rate, check_text, renamed, undecoded
from uio_pipes.pipeline import Pipeline

_INSIDE = "_ex_iterable"
_BUFFER = "BufferShuffledExamplesIterable"


def decoded_columns(items: Any) -> list[str]:
    """Return the columns that a dataset decodes as audio whenever an item is accessed."""
    features = getattr(items, "features", None)
    columns = features.items() if isinstance(features, Mapping) else ()
    return [name for name, f in columns if type(f).__name__ == "Audio" and getattr(f, "decode", False)]


def loses_items(items: Any) -> bool:
    """Return whether the state of an ``IterableDataset`` loses items because it has a shuffle buffer."""
    inner = getattr(items, _INSIDE, None)
    return inner is not None and any(type(i).__name__ == _BUFFER and i.buffer_size > 1 for i in _iterables(inner))


def way_of_next(items: Any) -> Callable[[Iterator[Any]], Any]:
    """Return ``next``, or for a foreign ``IterableDataset`` one that hides that this is a worker of a DataLoader.
    There, the dataset would yield only a share of its items, which lanes share out already."""
    return _unshared if hasattr(items, _INSIDE) else next


def _unshared(iterator: Iterator[Any]) -> Any:
    info, worker._worker_info = worker._worker_info, None
    try:
        return next(iterator)
    finally:
        worker._worker_info = info


def _iterables(outer: Any) -> Iterator[Any]:
    yield outer
    for inner in (getattr(outer, "ex_iterable", None), *(getattr(outer, "ex_iterables", None) or ())):
        if inner is not None:
            yield from _iterables(inner)


NUMBERS = ("duration", "start", "end", "sample_rate", "speaker")  # fields that are read as numbers


class IterableNode(Node):
    """State: how many items have been given."""

    state_fields: ClassVar[tuple[str, ...]] = ("position",)

    def __init__(self, items: Any, lane: Lane, names: Renames = None) -> None:
        super().__init__()
        self.items, self.lane, self.names = items, lane, names
        self.loaded = SampleMaker(lane)
        self.next_of = way_of_next(items)

    def start(self) -> None:
        self.position = 0

    def item(self) -> Any:
        """Return the next item. Raises: StopIteration at the end."""
        raise NotImplementedError

    def fresh(self) -> Any:
        """Return the object for this lane and epoch, as a copy if it has a state."""
        stateful = hasattr(self.items, "state_dict") or hasattr(self.items, "set_epoch")
        items = copy.deepcopy(self.items) if stateful or isinstance(self.items, IterDataPipe) else self.items
        if hasattr(items, "set_epoch"):  # as Hugging Face's datasets shuffle
            items.set_epoch(self.lane.epoch + (self.lane.pass_ << 20))
        return items

    def next(self) -> Sample:
        while True:
            item, number = self.item(), self.position
            self.position += 1
            try:
                sample = self._sample(item, number)
            except DataError as error:
                self.lane.ledger.fail(error, "from_iterable")
            else:
                self.lane.ledger.succeeded("from_iterable")
                return sample

    def _sample(self, item: Any, number: int) -> Sample:
        if not isinstance(item, Mapping):
            raise PipelineError(
                f"from_iterable: item {number} must be a mapping with key, wav (or feat) and txt, not "
                f"{type(item).__name__}; convert it in a Dataset, or for Hugging Face use .with_format(None)"
            )
        given = renamed(item, self.names) if self.names else item
        fields = {name: value for name, value in given.items() if value is not None}
        fields |= {name: _plain(fields[name]) for name in NUMBERS if name in fields}
        fields["key"] = str(fields.get("key", f"{number:09d}"))
        place = f"from_iterable, item {number}"
        if self.lane.needs_text:
            check_text(fields, self.names, place, item)
        if isinstance(fields.get("wav"), Mapping):
            try:
                fields |= audio_of(fields["wav"])
            except DataError as error:
                raise error.at(place, fields["key"]) from error
            if isinstance(fields["wav"], list):
                fields["wav"] = np.asarray(fields["wav"], np.float32)
        wav = fields.get("wav")
        if isinstance(wav, (torch.Tensor, np.ndarray)):
            check_rate(fields, place)
        elif not isinstance(wav, (str, bytes, type(None))):
            if type(wav).__name__ == "AudioDecoder":  # of torchcodec, as datasets decode
                raise PipelineError(f"from_iterable: {place} is an audio decoder; {undecoded()}")
            message = f"wav must be a path, URL, bytes, array or tensor, not {type(wav).__name__}"
            raise DataError("bad_audio", message, url=place, member=fields["key"])
        origin = Origin(number, pass_=self.lane.pass_, source=self.lane.source)
        sample = self.loaded.sample(fields, origin, place)
        if isinstance(wav, (torch.Tensor, np.ndarray)):
            sample.chain = sample.chain.then(AS_WAVEFORM)
        return sample

    def skip(self, n: int) -> None:
        for _ in range(n):
            self.item()
            self.position += 1

    def remaining(self) -> tuple[int, int]:
        return 0, max(0, len(self.items) - self.position) if isinstance(self.items, Sized) else 0


class IndexNode(IterableNode):
    def item(self) -> Any:
        if self.position >= len(self.items):
            raise StopIteration
        return self.items[self.position]

    def skip(self, n: int) -> None:
        if self.position + n > len(self.items):
            self.position = len(self.items)
            raise StopIteration
        self.position += n


class SkipNode(IterableNode):
    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        wanted, self.position = self.position, 0
        self.iterator = iter(self.fresh())
        try:
            for _ in range(wanted):
                self.next_of(self.iterator)
        except StopIteration:
            raise StateError(f"from_iterable ended before item {wanted}, where the state was saved") from None
        self.position = wanted

    def item(self) -> Any:
        return self.next_of(self.iterator)


class StateNode(IterableNode):
    """State: the object's own, too, and whether it has ended, because some objects then begin again by themselves."""

    state_fields = ("position", "ended")

    def start(self) -> None:
        super().start()
        self.ended = 0

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        own = None if initial_state is None else initial_state["own"]
        self.keeper = self.fresh()
        if own is not None:
            restore = self.keeper.reset if isinstance(self.keeper, BaseNode) else self.keeper.load_state_dict
            with refused(type(self.keeper).__name__):
                restore(copy.deepcopy(own))
        elif isinstance(self.keeper, BaseNode):
            self.keeper.reset(None)
        self.iterator = iter(self.keeper)

    def item(self) -> Any:
        if self.ended:
            raise StopIteration
        try:
            return self.next_of(self.iterator)
        except StopIteration:
            self.ended = 1
            raise

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "own": copy.deepcopy(self.keeper.state_dict())}


def _plain(value: Any) -> Any:
    """Return a number of PyTorch's or NumPy's as Python's, a float by its shortest decimals: 2.06, not 2.0599999."""
    if isinstance(value, (torch.Tensor, np.ndarray)) and not value.ndim:
        value = np.asarray(value)[()]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


class _AsWaveform:
    """Brings the user's audio samples into the form that audio stages take: float32 (C, S)."""

    name = "as_waveform"
    of = ""
    reads = writes = frozenset(["wav"])

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan

    def apply(self, sample: Sample) -> None:
        sample.fields["wav"] = as_waveform(sample.fields["wav"], None)


AS_WAVEFORM: Link = _AsWaveform()


def _items(stage: FromIterable, stable: bool) -> str:
    count = "" if stable or not isinstance(stage.items, Sized) else f", {len(stage.items)} items"
    return f"{type(stage.items).__qualname__}{count}"


@dataclass(frozen=True)
class FromIterable(KnowsFields, Uncountable, Flow):
    """The utterances of a Python object; see :func:`uio_pipes.from_iterable`."""

    name: ClassVar[str] = "from_iterable"
    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "sample"
    traits: ClassVar[Trait] = Trait.DECODED

    items: Any = field(metadata=printed(_items))
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
        """How to resume it: "index", "state" or "skip"."""
        if is_indexed(self.items):
            return "index"
        return "state" if hasattr(self.items, "state_dict") and not loses_items(self.items) else "skip"

    def content(self) -> list[tuple[int, str]]:
        """Return the number of items, and a hash of it and not of the items, which are not read."""
        count = len(self.items) if isinstance(self.items, Sized) else 0
        return [(count, f"{stable_hash(self.way, count):016x}")]

    @property
    def columns(self) -> list[str]:
        """The column names of a Hugging Face data set; [] if they are unknown."""
        known: Any = getattr(self.items, "column_names", None)
        return known if isinstance(known, list) else []

    @property
    def kinds(self) -> dict[str, Any]:
        """The columns, those of audio with what their values have."""
        of = getattr(self.items, "features", None) or {}
        return {
            name: {"bytes": None, "path": None} if type(of.get(name)).__name__ == "Audio" else None
            for name in self.columns
        }

    def lacking(self, name: str) -> str:
        if not self.columns or name in (*self.columns, *(self.fields or {})):
            return ""
        return f"the data set has no such column: {named_otherwise(name, self.kinds, given=self.fields)}"

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


@keyword_hints
def from_iterable(items: Iterable[Mapping[str, Any]], *, fields: Mapping[str, str] | None = None) -> Pipeline:
    """Start a pipeline from any Python object that yields utterances: a list, a ``Dataset``, an ``IterDataPipe``, a
    node.

    For several workers or ranks add ``.sharding_filter()``. ``print(pipeline)`` says how the object is resumed: a
    list, a map-style ``Dataset`` or another object with ``len`` and indexing at its number; one with ``state_dict``
    and ``load_state_dict`` (of the state between two items), or a ``torchdata.nodes.BaseNode``, by its own state;
    any other by skipping what was delivered, and so is an ``IterableDataset`` of Hugging Face's with a shuffle
    buffer, which its own state leaves out.

    Args:
        items: the object. It yields mappings with ``key`` (if missing, the number of the utterance), ``txt``, and
            ``wav`` or ``feat``: ``wav`` is a path or URL, the bytes of an audio file, ``{"bytes", "path"}`` as Hugging
            Face's datasets yield of an undecoded ``Audio`` feature, or samples as a tensor or array with
            ``sample_rate`` in Hz (or ``{"array", "sampling_rate"}``); ``feat`` (T, F) is a tensor, an array or a
            .npy file. It must yield
            the same in the same order each time; if it has ``set_epoch``, it may change with the epoch.
        fields: our names of fields whose names in the mappings are others, as in ``{"wav": "audio", "txt":
            "text"}``. Default: None, all have ours.

    Raises:
        PipelineError: ``items`` can be iterated only once, or not at all, or is a dataset that decodes its audio, or
            has all its splits.
        ListError: a list or a dataset lacks a field that ``fields`` names.
    """
    if isinstance(items, Mapping) and hasattr(items, "column_names"):  # a DatasetDict
        rule = "items must be one split of a data set, not a dict of them"
        raise PipelineError(
            f"{FromIterable.name}: {rule}; choose one of {', '.join(items)}: data[{next(iter(items), 'train')!r}]"
        )
    remedy = "pass a list, a Dataset, an IterDataPipe or an object with __iter__"
    if isinstance(items, Mapping):
        remedy = f"choose one of its values, such as data[{next(iter(items), 'train')!r}]"
    ok = not isinstance(items, (str, bytes, Mapping, Pipeline)) and (isinstance(items, Iterable) or is_indexed(items))
    require(ok, FromIterable.name, "the argument must yield utterances (mappings)", items, remedy)
    once = isinstance(items, Iterator) and not isinstance(items, BaseNode)
    rule = "a generator or iterator can be iterated only once, but epochs and resuming need it again"
    require(not once, FromIterable.name, rule, items, f"{remedy} that makes it")
    decoded = decoded_columns(items)
    rule = "a dataset must leave its audio undecoded, or all audio is decoded whenever an item is accessed"
    require(not decoded, FromIterable.name, rule, decoded, undecoded(*decoded[:1]))
    stage = FromIterable(items, fields)
    first = [stage.kinds] if stage.columns else items if isinstance(items, (list, tuple)) else ()
    check_asked((item for item in first if isinstance(item, Mapping)), asked(fields), f"{stage.name}, item 0")
    return Pipeline((stage,))
