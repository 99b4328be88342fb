"""The nodes that run a pipeline in one lane, and the two contracts that they keep.

:class:`Node` declares what its state is (``state_fields``); the base saves and restores it, copied. A state is read
between two ``next()`` calls and describes the first item not yet delivered.

:class:`Buffer` is for nodes that hold samples back. Its state is the upstream's state from before the oldest sample
that it still holds, and for each one held, how many samples later it came. Restoring runs the upstream again from
there and passes over what has left: headers are read, nothing is decoded. This works over any upstream.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar
from zlib import crc32

from torchdata.nodes import BaseNode

from uio_pipes.errors import DataError, StateError
from uio_pipes.lane import Lane
from uio_pipes.sample import Link, Sample
from uio_pipes.state import pack, unpack

__all__ = ["Buffer", "Deferred", "Node"]

SAMPLE_BYTES = 1500  # of a sample without its payload
MARK_EVERY = 64  # samples between two upstream snapshots of a buffer


class Node(BaseNode[Any]):  # type: ignore[misc]
    """One stage in one lane: the base of your own nodes, which ``pipeline.through`` adds.

    Subclasses write ``next``, which raises StopIteration at the end, again and again if asked again.

    Args:
        source: the node before. Default: None, for the beginning of a graph.

    Attributes:
        state_fields: names of the attributes that are the node's own state: ints, strings, lists, string-keyed
            dicts.
    """

    state_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, source: BaseNode[Any] | None = None) -> None:
        super().__init__()
        self.source: Any = source

    def start(self) -> None:
        """Set the state fields to their values at the start of the lane."""

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Go to the start of the lane, or to a saved state.

        Args:
            initial_state: what :meth:`get_state` returned. Default: None, the start.
        """
        super().reset(initial_state)
        self.start()
        if self.source is not None:
            below = initial_state["source"] if initial_state is not None and self.state_fields else initial_state
            self.source.reset(below)
        if initial_state is not None:
            for name in self.state_fields:
                setattr(self, name, _of_kind(getattr(self, name), copy.deepcopy(initial_state[name])))

    def get_state(self) -> dict[str, Any]:
        """The node's state and its source's; a node without fields of its own has just its source's."""
        if not self.state_fields:
            return self.source.get_state() if self.source is not None else {}
        state = {name: copy.deepcopy(getattr(self, name)) for name in self.state_fields}
        if self.source is not None:
            state["source"] = self.source.get_state()
        return state

    def skip(self, n: int) -> None:
        """Pass over ``n`` items. Raises StopIteration if there are fewer."""
        for _ in range(n):
            self.next()

    def remaining(self) -> tuple[int, int]:
        """What is known to be left: (samples held in buffers, list items not yet opened)."""
        return self.source.remaining() if hasattr(self.source, "remaining") else (0, 0)

    def memory(self) -> int:
        """Bytes that the buffers of this lane hold, roughly."""
        return self.source.memory() if hasattr(self.source, "memory") else 0


class Deferred(Node):
    """Adds one link to each sample's chain."""

    def __init__(self, source: Node, link: Link) -> None:
        super().__init__(source)
        self.link = link

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        sample.chain = sample.chain.then(self.link)
        return sample


class Buffer(Node):
    """A node that holds samples back: numbered as they arrive, let go in any order.

    Subclasses call :meth:`pull`, :meth:`hold` and :meth:`release`, give the arrival numbers that they hold in their own
    order (:meth:`order`), and rebuild that order from the numbers and ``held`` (:meth:`rebuild`).
    """

    def __init__(self, source: Node, lane: Lane, name: str) -> None:
        super().__init__(source)
        self.lane, self.name = lane, name

    def order(self) -> Iterable[int]:
        """Arrival numbers of what is held, in the subclass's order."""
        raise NotImplementedError

    def rebuild(self, order: list[int]) -> None:
        """Take the order back up; ``held`` is filled already."""
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
        for name in self.state_fields:
            setattr(self, name, copy.deepcopy(initial_state[name]))
        self.source.reset(initial_state["source"])
        order = unpack(initial_state["held"])
        self._replay(initial_state["window"], set(order))
        if initial_state["exhausted"]:
            with contextlib.suppress(StopIteration):
                self.pull()
        if self.check != initial_state["check"]:
            raise StateError(_CHANGED.format(stage=self.name, what="other utterances are there now"))
        self.rebuild(order)

    def _replay(self, window: int, wanted: set[int]) -> None:
        try:
            for _ in range(window):
                number, item = self.pull()
                if number in wanted:
                    self.hold(number, item)
        except StopIteration:
            raise StateError(_CHANGED.format(stage=self.name, what="the data ended early")) from None

    def remaining(self) -> tuple[int, int]:
        held, items = self.source.remaining()
        return held + len(self.held), items

    def memory(self) -> int:
        return int(self.source.memory()) + sum(_bytes(item) for item in self.held.values())


_CHANGED = (
    "the data behind {stage} changed since the state was saved ({what}): restore the shards as they were, "
    'or begin the epoch again with Loader(on_change="restart")'
)


def _of_kind(start: Any, saved: Any) -> Any:
    """``saved``, if a state field that starts as ``start`` can be that. Raises: ValueError."""
    whole = type(start) is not int or (type(saved) is int and abs(saved) < 1 << 63)
    if not whole or (isinstance(start, (str, list, dict)) and not isinstance(saved, type(start))):
        raise ValueError(f"{str(saved)[:40]!r} where {start!r} was to begin with")
    return saved


def _identity(item: Any) -> int:
    return crc32((item.key if isinstance(item, Sample) else str(item)).encode())


def _bytes(item: Any) -> int:
    fields = item.fields if isinstance(item, Sample) else {}
    parts = sum(map(_bytes, getattr(item, "parts", ())))  # of a joined utterance
    return (
        SAMPLE_BYTES + parts + sum(len(v) if isinstance(v, bytes) else getattr(v, "nbytes", 0) for v in fields.values())
    )
