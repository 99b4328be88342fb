"""The bases of all stages, frozen dataclasses of parameters, and of the nodes that run them in one lane.

Each stage has one of the three roles in :mod:`uio_pipes.core.roles`. What the runtime asks of some stages only is in
:mod:`uio_pipes.core.capabilities`.

A :class:`Node` declares its state (``state_fields``); the base class saves and restores it as a copy. A state is read
between two ``next()`` calls and describes the first item not yet delivered. Nodes that hold samples back are in
:mod:`uio_pipes.core.buffer`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import Flag, auto
from typing import Any, ClassVar
from weakref import ref

from torchdata.nodes import BaseNode

from uio_pipes.base.checks import KINDS, in_words, require, require_range
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import redact
from uio_pipes.core.chain import TIMELINE, Link
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import show
from uio_pipes.formats.naming import names_of


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

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Go to the start of the lane, or to a saved state.

        Args:
            initial_state: what :meth:`get_state` returned. Default: None, the start.

        """
        super().reset(initial_state)
        self.start()
        saved = initial_state or {}
        own = {name: copy.deepcopy(saved[name]) for name in self.state_fields if initial_state is not None}
        if self.source is not None:
            self.source.reset(saved["source"] if own else initial_state)
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
        """Return the approximate number of bytes in the buffers of this lane."""
        return self.source.memory() if hasattr(self.source, "memory") else 0


class Deferred(Node):
    """Adds a link to each sample's chain; before it ``moving``, which moves the timeline, if the sample has one."""

    def __init__(self, source: Node, link: Link, moving: Link | None = None) -> None:
        super().__init__(source)
        self.link, self.moving = link, moving

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        chain = sample.chain
        if self.moving is not None and (TIMELINE in sample.fields or chain.timed):
            chain = chain.then(self.moving)
        sample.chain = chain.then(self.link)
        return sample


class Outlet(Node):
    """Passes everything on, and tells the lane's :class:`StallGuard` of each item; for ``allowance`` see there."""

    def __init__(self, source: Node, lane: Lane, allowance: int) -> None:
        super().__init__(source)
        self.lane, lane.stall_guard.allowance, lane.stall_guard.lane = lane, allowance, ref(source)

    def next(self) -> Any:
        item = self.source.next()
        if item or self.lane.mode.skimming or not isinstance(item, (list, dict)):  # else every utterance of it failed
            self.lane.stall_guard.came_out()
        return item


def name_node(node: Node, lane: Lane, site: Site) -> Node:
    """Give ``node`` its name for messages, like ``read/shuffle`` or ``sort (number 2)``, and return it."""
    number = f" (number {site.ordinal + 1})" if site.ordinal else ""
    node.stage_name = f"{lane.source}/{site.name}{number}" if lane.source else f"{site.name}{number}"
    return node


IDENTITY, PRINTED, NAMES, RANGE, RULE = "identity", "printed", "names", "range", "rule"
NO_IDENTITY = {IDENTITY: False}  # metadata of a field that decides no result: fingerprints leave it out


class Trait(Flag):
    """Properties of stages that the graph, the planner and the reports use."""

    NONE = 0
    ONE_TO_ONE = auto()  # it gives one item for each that comes in, if none fails
    DEALS = auto()  # it gives each lane its share
    ENDLESS = auto()  # its output has no end, even if its input has one
    BOUNDED = auto()  # its output has an end, even if its input has none
    OPAQUE = auto()  # it may do anything to an utterance (functions of the user's)
    OWN_NODE = auto()  # it runs a node of the user's, of which nothing is known
    SILENT = auto()  # it may leave utterances out without counting them
    TEXTLESS = auto()  # its utterances need no transcript
    ON_TENSORS = auto()  # behind a stage that makes batches it works on tensors only: planning leaves it out
    TAKES_PCM = auto()  # where it reads audio, it also takes 16-bit samples as they are stored (Pcm16)
    TAKES_CHANNEL = auto()  # of a source: its audio is that of the ``channel`` which a row names
    DECODED = auto()  # of a source: its audio may be samples already, not only files
    ONE_RATE = auto()  # utterances whose sample rate differs from that of their batch fail in it
    LOCAL = auto()  # a part of the audio gives what the whole gives there; its frames span 2 × grid.first
    CONTINUES = auto()  # its batches go on where the one before in their lane ended, which a model remembers


def names(members: bool = False) -> Any:
    """Return the field for a source's argument ``fields``: our names of fields, by those in the data; ``members``: by
    the suffixes of members of shards."""
    return field(default=None, hash=False, metadata={NAMES: members})


def within(least: float, most: float, unit: str = "") -> dict[str, Any]:
    """Return the metadata of a parameter that is a pair (lowest, highest) within two bounds, or may be None."""
    return {RANGE: (least, most, unit)}


def must_be(default: Any, rule: str, fits: Callable[[Any], bool], remedy: str) -> Any:
    """Return the field for a parameter that must be as ``rule`` says, which ``fits`` checks; ``default`` MISSING: there
    is none."""
    return field(default=default, metadata={RULE: (rule, fits, remedy)})


def least(bound: int, default: Any, remedy: str) -> Any:
    """Return the field for a number that is ``bound`` or more, or may be None."""
    return must_be(default, f"{bound} or more", lambda value: value is None or value >= bound, remedy)


def one_of(known: Collection[Any], default: Any, remedy: str = "choose one") -> Any:
    """Return the field for a parameter that is one of the ``known`` values."""
    return must_be(default, in_words(map(repr, known), "or"), lambda value: value in known, remedy)


def printed(how: Callable[[Any, bool], str | None]) -> dict[str, Any]:
    """Return the metadata of a parameter whose text ``how(stage, stable)`` gives, such as a hash of a file; None stands
    for the usual text."""
    return {PRINTED: how}


@dataclass(frozen=True)
class Stage:
    """The parameters of one stage. A new stage is a frozen dataclass in one of the three roles.

    Class attributes:
        name: the functional name, as in ``pipeline.shuffle(…)``.
        takes: the kinds of items that may come in ("item" of a list, "file", "sample", "batch").
        gives: the kind that comes out, or "same".
        note: a text printed beside the stage.
        traits: what else must be known of it.
        reasons: the words under which it leaves utterances out on purpose, a tuple.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("sample",)
    gives: ClassVar[str] = "same"
    note: ClassVar[str] = ""
    traits: ClassVar[Trait] = Trait.NONE
    reasons: ClassVar[Collection[str]] = ()

    def __post_init__(self) -> None:
        """Check the kinds of the arguments; subclasses call this first and then check their rules."""
        for f in fields(self):
            value = getattr(self, f.name)
            if RANGE in f.metadata:
                if value is not None or f.default is not None:
                    pair = require_range(self.name, f.name, value, *f.metadata[RANGE])
                    object.__setattr__(self, f.name, pair)
            elif str(f.type) in KINDS:
                what, fits = KINDS[str(f.type)]
                require(fits(value), self.name, f"{f.name} must be {what}", value, f"see help(pipeline.{self.name})")
            if RULE in f.metadata:
                rule, follows, remedy = f.metadata[RULE]
                require(follows(value), self.name, f"{f.name} must be {rule}", value, remedy)
            if NAMES in f.metadata:
                names_of(self.name, value, f.metadata[NAMES])

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Stage.__repr__  # type: ignore[method-assign]  # dataclass would make one that shows secrets
        for attribute in ("takes", "reads", "writes", "may_lack", "reasons"):
            if isinstance(text := vars(cls).get(attribute), str):
                raise PipelineError(f"{cls.__name__}.{attribute} is a tuple of names: write ({text!r},)")

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return redact(f"{type(self).__qualname__}({shown})")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        """Return the node that runs this stage in ``lane``, fed by the node ``source``. ``site``: where it stands."""
        raise NotImplementedError

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError if this stage cannot come after these."""

    def count(self, counts: list[int], path: str) -> list[int] | None:
        """Return how many items each lane gives if none fails; None if only a run shows it.

        ``counts``: how many items each lane takes in; ``path``: the names of the mixes that the stage is within.
        """
        return counts if Trait.ONE_TO_ONE in self.traits else None

    def content(self) -> list[tuple[int, str]]:
        """Return the number of items and a hash of them, for each list that this stage reads."""
        return []

    def describe(self, *, stable: bool = False) -> str:
        """Return ``name(arguments that differ from the defaults)``; ``stable``: the line of the fingerprint, which has
        all arguments that decide the result, by name and in their order."""
        own = [f for f in fields(self) if not stable or f.metadata.get(IDENTITY, True)]
        if not own and fields(self):
            return self.name
        in_order = enumerate(sorted(own, key=lambda f: f.kw_only is True))  # as in the signature
        texts = (self._shown(f, stable, named=i > 0 or stable) for i, f in in_order)
        return f"{self.name}({', '.join(filter(None, texts))})"

    def _shown(self, f: Field[Any], stable: bool, named: bool) -> str:
        """Return an argument as it is printed, or "" if it is not."""
        if not f.repr:  # it says how files are reached, perhaps with secrets, and no result depends on it
            return ""
        if PRINTED in f.metadata and (text := f.metadata[PRINTED](self, stable)) is not None:
            return redact(text)
        value = getattr(self, f.name)
        if value == f.default and not stable:
            return ""
        return f"{f.name}={show(value, stable=stable)}" if named else show(value, stable=stable)
