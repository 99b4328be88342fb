"""The base of the nodes that run a pipeline in one lane, the contract that they keep, and what their states can be.

A :class:`Node` declares its state (``state_fields``); the base class saves and restores it as a copy, and refuses a
damaged or forged state before it is used, by the :class:`Kind` of each field. A state is read between two ``next()``
calls and describes the first item not yet delivered. Nodes that hold samples back are in :mod:`uio_pipes.core.buffer`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple
from weakref import ref

from torchdata.nodes import BaseNode

from uio_pipes.base.errors import DAMAGED, StateError, UioError
from uio_pipes.core.chain import Link
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.sample import Sample

MOST = 1 << 63


class Kind(NamedTuple):
    """The rule for a field, in words and as a test of a value that came out of JSON."""

    rule: str
    fits: Callable[[Any], bool]


def whole(count: int = MOST) -> Kind:
    """Return the kind of whole numbers in ``range(count)``."""
    rule = f"a whole number from 0 to {count - 1}" if count < MOST else "a whole number, 0 or more"
    return Kind(rule, lambda value: type(value) is int and 0 <= value < count)


FLAG = whole(2)
TEXT = Kind("a string", lambda value: isinstance(value, str))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
SOMETHING = Kind("anything but null", lambda value: value is not None)
_ANY = Kind("anything", lambda value: True)
_LIKE = {
    bool: Kind("true or false", lambda value: type(value) in (bool, int)),
    int: Kind("a whole number of less than 64 bits", lambda value: type(value) is int and abs(value) < MOST),
    float: Kind("a number", lambda value: type(value) in (int, float)),
    str: TEXT,
    list: Kind("a list", lambda value: isinstance(value, list)),
    dict: OBJECT,
}


def like(start: object) -> Kind:
    """Return the kind of a field by the value that it starts with; None says nothing."""
    return _LIKE.get(type(start), _ANY)


def optional(kind: Kind) -> Kind:
    """Return the kind of values that are null or of ``kind``."""
    return Kind(f"{kind.rule}, or null", lambda value: value is None or kind.fits(value))


def listed(kind: Kind) -> Kind:
    """Return the kind of lists of ``kind``."""
    return Kind(f"a list, each {kind.rule}", lambda value: isinstance(value, list) and all(map(kind.fits, value)))


def rising(kind: Kind) -> Kind:
    """Return the kind of lists of ``kind`` in which each value is higher than the one before."""
    rule, fits = listed(kind)
    return Kind(f"{rule}, rising", lambda value: fits(value) and all(a < b for a, b in pairwise(value)))


@contextmanager
def refused(by: str) -> Iterator[None]:
    """Turn whatever the user's object ``by`` raises over a state into a StateError that names it."""
    try:
        yield
    except UioError:
        raise
    except Exception as error:
        raise StateError(
            f"{by} refused the state that it saved ({type(error).__name__}: {error}): the state is damaged, or "
            f"{by} changed since. Use an older checkpoint"
        ) from error


def read_field(state: object, name: str, kind: Kind, of: str) -> Any:
    """Return field ``name`` of ``state``, which belongs to ``of``. Raises: StateError."""
    if not isinstance(state, Mapping):
        raise StateError(f"{of}: its state is {repr(state)[:60]}, not an object; {DAMAGED}")
    if name not in state or not kind.fits(state[name]):
        found = f"is {repr(state[name])[:60]}" if name in state else "is missing"
        raise StateError(f"{of}: {name} {found}, but must be {kind.rule}; {DAMAGED}")
    return state[name]


class Node(BaseNode[Any]):  # type: ignore[misc]
    """One stage in one lane: the base of your own nodes, which ``pipeline.through`` adds.

    Subclasses write ``next``, which raises StopIteration at the end, again and again if asked again.

    Args:
        source: the node before. Default: None, for the beginning of a graph.

    Attributes:
        source: the node before, or None.
        state_fields: names of the attributes that are the node's own state: ints, strings, lists, string-keyed
            dicts.
        stage_name: the stage that the node runs, for messages.
    """

    state_fields: ClassVar[tuple[str, ...]] = ()
    stage_name: str = ""

    def __init__(self, source: BaseNode[Any] | None = None) -> None:
        super().__init__()
        self.source: Any = source

    def start(self) -> None:
        """Set the state fields to their values at the start of the lane."""

    def state_kinds(self) -> Mapping[str, Kind]:
        """Return what state fields can be, if not anything of the type that they start with."""
        return {}

    def read_state(self, state: object, name: str, kind: Kind) -> Any:
        """One field of a saved state, checked.

        Args:
            state: what :meth:`get_state` returned.
            name: the field.
            kind: what it can be.

        Raises:
            StateError: it is missing, or not of this kind.
        """
        return read_field(state, name, kind, self.stage_name or type(self).__name__)

    def read_fields(self, state: object) -> dict[str, Any]:
        """All :attr:`state_fields` of a saved state, checked and copied.

        Args:
            state: what :meth:`get_state` returned.

        Raises:
            StateError: one is missing, or cannot be what it was saved as.
        """
        kinds = {name: like(getattr(self, name)) for name in self.state_fields} | dict(self.state_kinds())
        return {name: copy.deepcopy(self.read_state(state, name, kinds[name])) for name in self.state_fields}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Go to the start of the lane, or to a saved state.

        Args:
            initial_state: what :meth:`get_state` returned. Default: None, the start.

        Raises:
            StateError: it cannot be a state of this node.
        """
        super().reset(initial_state)
        self.start()
        own = {} if initial_state is None else self.read_fields(initial_state)
        if self.source is not None:
            wrapped = initial_state is not None and self.state_fields
            self.source.reset(self.read_state(initial_state, "source", OBJECT) if wrapped else initial_state)
        for name, value in own.items():
            setattr(self, name, value)

    def get_state(self) -> dict[str, Any]:
        """Return the node's state with that of its source; a node without state fields returns just its source's."""
        if not self.state_fields:
            return self.source.get_state() if self.source is not None else {}
        state = {name: copy.deepcopy(getattr(self, name)) for name in self.state_fields}
        if self.source is not None:
            state["source"] = self.source.get_state()
        return state

    def skip(self, n: int) -> None:
        """Skip ``n`` items. Raises StopIteration if there are fewer."""
        for _ in range(n):
            self.next()

    def remaining(self) -> tuple[int, int]:
        """Return what is known to be left: (samples held in buffers, list items not yet opened)."""
        return self.source.remaining() if hasattr(self.source, "remaining") else (0, 0)

    def memory(self) -> int:
        """Return roughly how many bytes the buffers of this lane hold."""
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


class Outlet(Node):
    """Passes everything on, and tells the lane's pulse that something came out. ``slack``: see :class:`Pulse`."""

    def __init__(self, source: Node, lane: Lane, slack: int) -> None:
        super().__init__(source)
        self.lane, lane.pulse.slack, lane.pulse.lane = lane, slack, ref(source)

    def next(self) -> Any:
        item = self.source.next()
        if item or self.lane.mode.skimming or not isinstance(item, (list, dict)):  # else every utterance of it failed
            self.lane.pulse.came_out()
        return item


def name_node(node: Node, lane: Lane, site: Site) -> Node:
    """Give ``node`` its name for messages, like ``read/shuffle`` or ``sort (number 2)``, and return it."""
    number = f" (number {site.ordinal + 1})" if site.ordinal else ""
    node.stage_name = f"{lane.source}/{site.name}{number}" if lane.source else f"{site.name}{number}"
    return node
