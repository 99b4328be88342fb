"""Nodes that hold samples back.

The state of a :class:`Buffer` is the state of its source from before the oldest sample that it still holds, and for
each sample held, how many samples later it came. To restore it, the source runs again from there, and samples that have
left the buffer are skipped: headers are read, nothing is decoded. This works with any source.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from torchdata.nodes import BaseNode

from uio_pipes.base.errors import DataError, PipelineError, StateError
from uio_pipes.base.hashing import pack, unpack
from uio_pipes.core.lane import Lane
from uio_pipes.core.realize import Length, Pair, measure_of
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node

SAMPLE_BYTES = 1500  # memory of a sample without its payload
MARK_EVERY = 64  # samples between two snapshots of the source
OR_RESTART = 'or begin the epoch again with Loader(on_change="restart")'


class Buffer(Node):
    """A node that holds samples back. It numbers them as they arrive, and releases them in any order.

    Subclasses call :meth:`pull`, :meth:`hold` and :meth:`release`. They define the order of the samples held, as
    arrival numbers (:meth:`order`, :meth:`rebuild`).
    """

    def __init__(self, source: Node, lane: Lane, name: str, length: Length | Pair | None = None) -> None:
        super().__init__(source)
        self.lane, self.name, self.saved = lane, name, lane.mode.saved
        self.measured = None if length is None else measure_of(length)

    def order(self) -> Iterable[int]:
        """Return the arrival numbers of the samples held, in the subclass's order."""
        raise NotImplementedError

    def rebuild(self, order: list[int]) -> None:
        """Restore the order; ``held`` is filled already."""
        raise NotImplementedError

    def _clear(self) -> None:
        self.held: dict[int, Any] = {}
        self._hashes: dict[int, int] = {}  # of what is held
        self.arrived = 0
        self.exhausted = False
        self.oldest = 0
        self.check = 0
        self._marks: deque[tuple[int, dict[str, Any]]] = deque()

    def pull(self) -> tuple[int, Any]:
        """Return the arrival number of the next sample, and the sample."""
        if self.saved and (self.arrived % MARK_EVERY == 0 or not self._marks):
            self._mark()
        if self.exhausted:
            raise StopIteration
        try:
            item = self.source.next()
        except StopIteration:
            self.exhausted = True
            raise
        self.arrived += 1
        self.lane.stall_guard.arrived += 1
        return self.arrived - 1, item

    def hold(self, number: int, item: Any) -> None:
        self.held[number] = item
        if self.saved:
            self._hashes[number] = found = crc32((item.key if isinstance(item, Sample) else str(item)).encode())
            self.check ^= found

    def release(self, number: int) -> Any:
        if self.saved:
            self.check ^= self._hashes.pop(number)
        return self.held.pop(number)

    def length(self, item: Sample) -> Any:
        """Return the planned length, or a pair; None if the sample fails (which is counted) or its length is 0."""
        try:
            length = item.plan.length if self.measured is None else self.measured(item)
            if length <= 0 if isinstance(length, int) else min(length) <= 0 and _is_nothing(item, length):
                left = f"no frame left ({item.plan})" if self.measured is None else f"its length is {length}"
                raise item.failure(DataError("too_short", left), self.name)
        except DataError as error:
            self.lane.ledger.fail(error, self.name)
            return None
        except AttributeError as error:
            if isinstance(item, Sample):
                raise
            rule = f"{self.name} takes utterances, not a {type(item).__name__}"
            raise PipelineError(f"{rule}: check what the .through(…) node before it returns") from error
        self.lane.ledger.succeeded(self.name)
        return length

    def length_of(self, item: Sample) -> Any:
        """Return the planned length: frames, if no other length or pair was asked for. Raises: DataError."""
        return item.plan.length if self.measured is None else self.measured(item)

    def age(self) -> int:
        """Return how many samples ago the oldest one held arrived."""
        while self.oldest < self.arrived and self.oldest not in self.held:
            self.oldest += 1
        return self.arrived - self.oldest

    def _mark(self) -> None:
        if not self._marks or self._marks[-1][0] != self.arrived:
            self._marks.append((self.arrived, self.source.get_state()))
        self._forget()

    def _forget(self) -> None:
        """Drop the snapshots of the source that are not needed any more."""
        self.age()
        while len(self._marks) > 1 and self._marks[1][0] <= self.oldest:
            self._marks.popleft()

    def get_state(self) -> dict[str, Any]:
        if not self.saved:
            return {}
        if not self.held:
            self._mark()
        self._forget()
        base, source = self._marks[0]
        state = {name: copy.deepcopy(getattr(self, name)) for name in self.state_fields}
        state["source"] = source
        state["window"] = self.arrived - base
        state["exhausted"] = int(self.exhausted)  # what failed after the last arrival has been counted then
        state["held"] = pack(self.order(), base)
        state["check"] = self.check
        return state

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        self._clear()
        if initial_state is None:
            super().reset(None)
            self.rebuild([])
            return
        BaseNode.reset(self, initial_state)
        self.start()
        own = {name: copy.deepcopy(initial_state[name]) for name in self.state_fields}
        order = unpack(initial_state["held"])
        self.source.reset(initial_state["source"])
        for name, value in own.items():
            setattr(self, name, value)
        self._replay(initial_state["window"], set(order), bool(initial_state["exhausted"]))
        if self.check != initial_state["check"]:
            raise StateError(changed(self.name, "the utterances are different now"))
        self.rebuild(order)

    def _replay(self, window: int, wanted: set[int], ended: bool) -> None:
        try:
            for _ in range(window):
                number, item = self.pull()
                if number in wanted:
                    self.hold(number, item)
        except StopIteration:
            raise StateError(changed(self.name, "the data ended early")) from None
        if ended:
            with contextlib.suppress(StopIteration):
                self.pull()
                raise StateError(changed(self.name, "there is more data now"))

    def remaining(self) -> tuple[int, int]:
        held, items = self.source.remaining()
        return held + len(self.held), items

    def memory(self) -> int:
        return int(self.source.memory()) + sum(_bytes(item) for item in self.held.values())


def changed(stage: str, what: str) -> str:
    """Return the message of the error for a state of ``stage`` that does not fit its data."""
    rule = f"the data that {stage} reads changed since the state was saved ({what})"
    return f"{rule}: restore the original shards, {OR_RESTART}"


def _is_nothing(item: Sample, lengths: tuple[int, ...]) -> bool:
    """Return whether nothing is left of an utterance; it may have no tokens, or no audio, but not audio of no frame."""
    plan = item.planned()
    return max(lengths) <= 0 or (plan is not None and not plan.length)


def _bytes(item: Any) -> int:
    fields = item.fields if isinstance(item, Sample) else {}
    parts = sum(map(_bytes, getattr(item, "parts", ())))  # utterances that concat joined
    return (
        SAMPLE_BYTES + parts + sum(len(v) if isinstance(v, bytes) else getattr(v, "nbytes", 0) for v in fields.values())
    )
