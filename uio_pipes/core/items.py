"""The items that flow through a graph before they become utterances, and how samples are made of them."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.length import Plan, StoredFeatures
from uio_pipes.base.errors import DataError, UioError
from uio_pipes.base.urls import redact
from uio_pipes.core.chain import Chain, Link
from uio_pipes.core.lane import Lane
from uio_pipes.core.origin import HasPlace, Origin
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.sample import Sample
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opened_ahead import LocalPath, whole
from uio_pipes.io.opening import fetch_early, is_far, open_binary
from uio_pipes.io.references import Payload, Ref


class Item(NamedTuple):
    """One line of a list: its text, its place in the list, and the origin for samples made of it."""

    text: str
    place: str
    origin: Origin
    access: Access = PLAIN
    expected: ShardEntry | None = None  # what the list's manifest says of a shard

    @property
    def key(self) -> str:
        return redact(self.text)

    def __repr__(self) -> str:
        return f"Item({redact(self.text)!r}, {redact(self.place)!r}, {self.origin})"


@dataclass(frozen=True, repr=False)
class File:
    """A file that can be opened, such as a shard. ``place`` is its line in the list."""

    url: str
    place: str
    origin: Origin
    access: Access = PLAIN
    expected: ShardEntry | None = None  # what the list's manifest says

    @property
    def key(self) -> str:
        return redact(self.url)

    def __repr__(self) -> str:
        return f"File({redact(self.url)!r}, {redact(self.place)!r}, {self.origin})"

    def open(self) -> IO[bytes]:
        """Open the file's bytes as they are stored. Raises: DataError if it is missing or cannot be read."""
        stream: IO[bytes] = open_binary(self.url, self.access)
        return stream


class Records(Protocol):
    """A table of utterances, as :meth:`Source.table` gives, that also has keys and fields."""

    def place(self, number: int) -> str: ...
    def key(self, number: int) -> str: ...

    def fields(self, number: int) -> dict[str, Any]:
        """Return ``key``, ``txt``, ``wav`` (a :class:`~uio_pipes.io.references.Ref` or a path) or ``feat``, and others,
        without reading the audio. Raises: DataError."""


class Record(NamedTuple):
    """One utterance of ``records`` that has not been read yet."""

    records: Records
    number: int
    origin: Origin

    @property
    def key(self) -> str:
        return self.records.key(self.number)

    @property
    def place(self) -> str:
        return self.records.place(self.number)


class _LoadFeatures:
    name = "load_features"
    of = ""
    reads = frozenset(["feat"])
    writes = frozenset(["feat"])

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return plan

    def apply(self, sample: Sample) -> None:
        feat = sample.fields["feat"]
        try:
            feat = feat.float() if isinstance(feat, torch.Tensor) and feat.is_floating_point() else feat
            array = np.asarray(feat) if isinstance(feat, (torch.Tensor, np.ndarray)) else _loaded(feat)
        except (ValueError, OSError, EOFError, MemoryError) as error:
            raise DataError("bad_features", f"cannot read the features: {error}") from error
        if array.ndim != 2 or not len(array):
            raise DataError("bad_features", f"features must be a (frames, bins) array, not of shape {array.shape}")
        features = np.ascontiguousarray(array, dtype=np.int64 if array.dtype.kind in "iu" else np.float32)  # codes
        if not np.isfinite(features).all():
            raise DataError("bad_features", "some features are NaN or infinite: compute them again")
        sample.fields["feat"] = torch.from_numpy(features)


def _loaded(feat: Any) -> npt.NDArray[Any]:
    if isinstance(feat, StoredFeatures):
        return feat.load()
    array: npt.NDArray[Any] = np.load(io.BytesIO(read_payload(feat)), allow_pickle=False)
    return array


def read_payload(payload: Payload | str) -> bytes:
    """Return the bytes of a payload, or of the file that a path or URL names."""
    if isinstance(payload, str):
        if (data := whole(payload)) is not None:
            return data
        with open_binary(payload) as file:
            return file.read()
    return payload.read() if isinstance(payload, Ref) else bytes(payload)


LOAD_FEATURES: Link = _LoadFeatures()


class SampleMaker:
    """Makes the samples of one lane from the fields that a source loaded."""

    def __init__(self, lane: Lane) -> None:
        self._plain, self._run_key = Chain(), lane.run_key
        self._with_features = self._plain.then(LOAD_FEATURES)

    def sample(self, fields: dict[str, Any], origin: Origin, place: str | HasPlace) -> Sample:
        """Return a sample, which loads its features when they are touched. ``place``: shard or line, for messages."""
        return Sample(fields, origin, self._run_key, self._with_features if "feat" in fields else self._plain, place)


COUNT, LOCAL = 32, 256  # items to look ahead; the same on a slow disk, whose files come one by one
BYTES = 64 << 20  # of the items not yet given out, roughly

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class _Item(NamedTuple):
    before: dict[str, Any]
    value: Any
    fields: dict[str, Any] | Exception


class Upcoming(Generic[T]):
    """Items of a node with their fields. If those are in remote files, the next ones are fetched ahead.

    ``load`` returns the fields of an item. Its DataErrors, and what the node raises, come out at their turn. The state
    is that of the first item not given out. While a lane is restored or skims, nothing is fetched ahead.
    """

    def __init__(self, source: Any, load: Callable[[T], dict[str, Any]], lane: Lane) -> None:
        self._source, self._load, self._lane = source, load, lane
        self._items: deque[_Item] = deque()
        self._far = self._ended = False
        self._count = COUNT

    def next(self) -> tuple[T, dict[str, Any] | DataError]:
        """Return an item with its fields, or with the error of loading them. Raises what the node raises."""
        if not self._items:
            if not self._lane.makes_batches:  # nothing is fetched ahead
                value = self._source.next()
                try:
                    PULSE.at("load", value)
                    return value, self._load(value)
                except DataError as error:
                    return value, without_traceback(error)
            self._ended = False
            self._take(1)
        if self._far and len(self._items) <= self._count // 2 and not self._ended and self._lane.makes_batches:
            self._take(self._count - len(self._items))
        item = self._items.popleft()
        if isinstance(item.fields, Exception) and (item.value is None or not isinstance(item.fields, DataError)):
            try:
                raise item.fields
            finally:
                del item  # its traceback leads to this frame, and so to the trainer's: all would be a circle
        return item.value, item.fields

    def _take(self, count: int) -> None:
        taken: list[dict[str, Any]] = []
        for _ in range(count):
            # Or an endless source would rest: nothing came as yet.
            self._lane.stall_guard.arrived += len(self._items) > 0
            before = self._source.get_state() if self._far else {}
            try:
                value = self._source.next()
            except Exception as error:
                self._items.append(_Item(before, None, without_traceback(error)))
                self._ended = True
                break
            try:
                PULSE.at("load", value)
                fields: dict[str, Any] | Exception = self._load(value)
            except Exception as error:
                fields = without_traceback(error)
            self._items.append(_Item(before, value, fields))
            if isinstance(fields, Mapping):
                taken.append(fields)
        values = [v for f in taken for v in f.values() if isinstance(v, Ref | LocalPath)] if not self._far else []
        if any(path.wanted() for v in values for path in getattr(v, "local_paths", ())):
            self._far, self._count = True, LOCAL
        self._far = self._far or any(map(is_far, values))
        if self._far and self._lane.makes_batches:
            fetching = fetch_early(taken)
            if fetching > BYTES // 2:
                self._count = max(1, count * (BYTES // 2) // fetching)

    def clear(self) -> None:
        """Forget the items: the node is being reset."""
        self._items.clear()
        self._ended = False

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._items[0].before if self._items else self._source.get_state()
        return state

    def __len__(self) -> int:
        return len(self._items)


def without_traceback(error: E) -> E:
    """Return an expected error without its traceback and those of its causes: they hold the trainer's frames as long as
    the error is kept."""
    each: BaseException | None = error if isinstance(error, StopIteration | UioError) else None
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
