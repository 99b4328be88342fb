"""Nodes that hold samples back.

The state of a :class:`Buffer` is the upstream's state from before the oldest sample that it still holds, and for each
one held, how many samples later it came. Restoring runs the upstream again from there and passes over what has left:
headers are read, nothing is decoded. This works over any upstream.
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
from uio_pipes.base.packing import pack, unpack
from uio_pipes.core.lane import Lane
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.state_kinds import DAMAGED, FLAG, OBJECT, TEXT, whole

__all__ = ["MARK_EVERY", "Buffer", "changed", "taken"]

SAMPLE_BYTES = 1500  # of a sample without its payload
MARK_EVERY = 64  # samples between two upstream snapshots of a buffer
CRC = whole(1 << 32)
LOST = 100_000  # samples, at most, that failed or were left out among those that came after one that is held


class Buffer(Node):
    """A node that holds samples back: numbered as they arrive, let go in any order.

    Subclasses call :meth:`pull`, :meth:`hold` and :meth:`release`, give the arrival numbers that they hold in their own
    order (:meth:`order`), rebuild that order from the numbers and ``held`` (:meth:`rebuild`), and say how many there
    can be (:meth:`bounds`).
    """

    def __init__(self, source: Node, lane: Lane, name: str) -> None:
        super().__init__(source)
        self.lane, self.name = lane, name

    def order(self) -> Iterable[int]:
        """Arrival numbers of what is held, in the subclass's order."""
        raise NotImplementedError

    def rebuild(self, order: list[int]) -> None:
        """Take the order back up; ``held`` is filled already. Raises: StateError if that cannot be its order."""
        raise NotImplementedError

    def bounds(self) -> tuple[int, int]:
        """How many samples can be held between two ``next()`` calls, and how many can come after one that is held.

        What fails or is left out among those that come is not counted here.
        """
        raise NotImplementedError

    def _clear(self) -> None:
        self.held: dict[int, Any] = {}
        self.arrived = 0
        self.exhausted = False
        self.oldest = 0
        self.check = 0
        self._marks: deque[tuple[int, dict[str, Any]]] = deque()

    def pull(self) -> tuple[int, Any]:
        """The next sample from upstream and its arrival number."""
        if self.arrived % MARK_EVERY == 0 or not self._marks:
            self._mark()
        if self.exhausted:
            raise StopIteration
        try:
            item = self.source.next()
        except StopIteration:
            self.exhausted = True
            raise
        self.arrived += 1
        self.lane.pulse.arrived += 1
        return self.arrived - 1, item

    def hold(self, number: int, item: Any) -> None:
        self.held[number] = item
        self.check ^= _identity(item)

    def release(self, number: int) -> Any:
        item = self.held.pop(number)
        self.check ^= _identity(item)
        return item

    def length(self, item: Sample) -> int | None:
        """Planned length in frames; None if the sample failed (counted) or is of no length."""
        try:
            length = item.plan.length
            if length <= 0:
                raise item.failure(DataError("too_short", f"no frame left ({item.plan})"), self.name)
        except DataError as error:
            self.lane.ledger.fail(error, self.name)
            return None
        except AttributeError as error:
            if isinstance(item, Sample):
                raise
            rule = f"{self.name} takes utterances, not a {type(item).__name__}"
            raise PipelineError(f"{rule}: see what the node given to .through(…) before it gives") from error
        self.lane.ledger.fine(self.name)
        return length

    def age(self) -> int:
        """How many samples ago the oldest held one arrived."""
        while self.oldest < self.arrived and self.oldest not in self.held:
            self.oldest += 1
        return self.arrived - self.oldest

    def _mark(self) -> None:
        if not self._marks or self._marks[-1][0] != self.arrived:
            self._marks.append((self.arrived, self.source.get_state()))
        self.age()
        while len(self._marks) > 1 and self._marks[1][0] <= self.oldest:
            self._marks.popleft()

    def get_state(self) -> dict[str, Any]:
        if not self.held:
            self._mark()
        self.age()
        while len(self._marks) > 1 and self._marks[1][0] <= self.oldest:
            self._marks.popleft()
        base, source = self._marks[0]
        state = {name: copy.deepcopy(getattr(self, name)) for name in self.state_fields}
        state["source"] = source
        state["window"] = self.arrived - base
        state["exhausted"] = int(self.exhausted)  # what failed behind the last arrival has been counted then
        state["held"] = pack([number - base for number in self.order()])
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
        own = self.read_fields(initial_state)
        window, order = self._read_window(initial_state)
        ended, check = self.read_state(initial_state, "exhausted", FLAG), self.read_state(initial_state, "check", CRC)
        self.source.reset(self.read_state(initial_state, "source", OBJECT))
        for name, value in own.items():
            setattr(self, name, value)
        self._replay(window, set(order), bool(ended))
        if self.check != check:
            raise StateError(changed(self.name, "other utterances are there now"))
        self.rebuild(order)

    def _read_window(self, state: dict[str, Any]) -> tuple[int, list[int]]:
        """How many samples came since the source's state was taken, and the numbers of those that are held."""
        held, wait = self.bounds()
        lost = LOST + sum(self.lane.ledger.skipped.values())
        window: int = self.read_state(state, "window", whole(MARK_EVERY + wait + lost + 1))
        try:
            order = unpack(self.read_state(state, "held", TEXT))
        except ValueError as error:
            raise self.damaged(f"held is no packed column ({error})") from error
        if len(order) > held or len(set(order)) < len(order) or max(order, default=-1) >= window:
            rule = f"at most {held} different numbers below window={window}"
            raise self.damaged(f"held has {len(order)} numbers up to {max(order)}, not {rule}")
        if window and not order:
            raise self.damaged(f"window is {window}, but nothing is held")
        return window, order

    def damaged(self, what: str) -> StateError:
        """The error for a state that cannot be this node's."""
        return StateError(f"{self.stage_name or self.name}: {what}; {DAMAGED}")

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


def taken(source: Any, stage: str) -> Any:
    """The item that ``source`` gave when the state of ``stage`` was saved. Raises: StateError if it is at its end."""
    try:
        return source.next()
    except StopIteration:
        raise StateError(changed(stage, "the data ended early")) from None


def changed(stage: str, what: str) -> str:
    """Why a state cannot be taken up by ``stage``, in the words of an error."""
    return (
        f"the data behind {stage} changed since the state was saved ({what}): restore the shards as they were, "
        'or begin the epoch again with Loader(on_change="restart")'
    )


def _identity(item: Any) -> int:
    return crc32((item.key if isinstance(item, Sample) else str(item)).encode())


def _bytes(item: Any) -> int:
    fields = item.fields if isinstance(item, Sample) else {}
    parts = sum(map(_bytes, getattr(item, "parts", ())))  # of a joined utterance
    return (
        SAMPLE_BYTES + parts + sum(len(v) if isinstance(v, bytes) else getattr(v, "nbytes", 0) for v in fields.values())
    )
