"""The nodes of ``from_iterable``: they resume at a number, by the object's own state, or by skipping."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sized
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import IterDataPipe
from torchdata.nodes import BaseNode

from uio_pipes.audio.length import Plan
from uio_pipes.audio.waveform import as_waveform
from uio_pipes.base.errors import DataError, PipelineError, StateError
from uio_pipes.core.chain import Link
from uio_pipes.core.features import Loaded
from uio_pipes.core.lane import Lane
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Origin, Sample
from uio_pipes.core.state_kinds import FLAG, SOMETHING, Kind, refused, whole
from uio_pipes.formats.audio_value import UNDECODED, audio_of, check_rate
from uio_pipes.formats.naming import Renames, check_text, renamed
from uio_pipes.sources.datasets_private import way_of_next

NUMBERS = ("duration", "start", "end", "sample_rate", "speaker")  # fields that are read as numbers


class IterableNode(Node):
    """State: how many items have been given."""

    state_fields: ClassVar[tuple[str, ...]] = ("position",)

    def __init__(self, items: Any, lane: Lane, names: Renames = None) -> None:
        super().__init__()
        self.items, self.lane, self.names = items, lane, names
        self.loaded = Loaded(lane)
        self.next_of = way_of_next(items)

    def start(self) -> None:
        self.position = 0

    def state_kinds(self) -> dict[str, Kind]:
        return {"position": whole()}

    def item(self) -> Any:
        """Return the next item. Raises: StopIteration at the end."""
        raise NotImplementedError

    def fresh(self) -> Any:
        """Return the object for this lane and epoch, as a copy if it has a state."""
        items = copy.deepcopy(self.items) if _has_state(self.items) else self.items
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
                self.lane.ledger.fine("from_iterable")
                return sample

    def _sample(self, item: Any, number: int) -> Sample:
        if not isinstance(item, Mapping):
            raise PipelineError(
                f"from_iterable: item {number} must be a mapping with key, wav (or feat) and txt, not "
                f"{type(item).__name__}; change it by a Dataset around it, Hugging Face's by .with_format(None)"
            )
        given = renamed(item, self.names) if self.names else item
        fields = {name: value for name, value in given.items() if value is not None}
        fields |= {name: _plain(fields[name]) for name in NUMBERS if name in fields}
        fields["key"] = str(fields.get("key", f"{number:09d}"))
        place = f"from_iterable, item {number}"
        if self.lane.needs_text:
            check_text(fields, self.names, place)
        if isinstance(fields.get("wav"), Mapping):
            fields = _with_audio(fields, place)
        wav = fields.get("wav")
        if isinstance(wav, (torch.Tensor, np.ndarray)):
            check_rate(fields, place)
        elif not isinstance(wav, (str, bytes, type(None))):
            if type(wav).__name__ == "AudioDecoder":  # of torchcodec, as datasets decode
                raise PipelineError(f"from_iterable: {place} is a decoder of audio; {UNDECODED}")
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
    def state_kinds(self) -> dict[str, Kind]:
        return {"position": whole(len(self.items) + self.lane.count)}  # older versions could skip beyond the end

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

    def state_kinds(self) -> dict[str, Kind]:
        return {"position": whole(), "ended": FLAG}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        own = None if initial_state is None else self.read_state(initial_state, "own", SOMETHING)
        self.keeper = self.fresh()
        if own is not None:
            with refused(type(self.keeper).__name__):
                self._restore(copy.deepcopy(own))
        elif isinstance(self.keeper, BaseNode):
            self.keeper.reset(None)
        self.iterator = iter(self.keeper)

    def _restore(self, own: dict[str, Any]) -> None:
        if isinstance(self.keeper, BaseNode):
            self.keeper.reset(own)
        else:
            self.keeper.load_state_dict(own)

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


def _with_audio(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the fields with the audio of a dict as ``wav``. Raises: DataError."""
    try:
        fields |= audio_of(fields["wav"])
    except DataError as error:
        raise DataError(error.reason, error.message, url=place, member=fields["key"]) from error
    if isinstance(fields["wav"], list):
        fields["wav"] = np.asarray(fields["wav"], np.float32)
    return fields


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


def _has_state(items: Any) -> bool:
    return isinstance(items, IterDataPipe) or hasattr(items, "state_dict") or hasattr(items, "set_epoch")
