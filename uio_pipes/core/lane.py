"""Lanes: how they are assigned to ranks and workers, and which values seed their random choices.

An epoch is dealt to a fixed number of lanes: item ``p`` of the epoch's order belongs to lane ``p % lanes``. Ranks and
workers only decide who runs which lane, so moving a lane elsewhere changes nothing in it. Every random choice is a
hash of names and positions (seed, epoch, stage, lane, origin), never of call order, rank or worker. All draws that
decide order, lengths or masks are integer arithmetic of this package, so that they are the same with every version of
every library.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import ReferenceType

from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.schedule import Settings

if TYPE_CHECKING:
    from uio_pipes.core.ledger import Ledger


ALLOWANCE = 1_000  # utterances, besides those that buffers hold, that may go in before one must come out
MANY = 100_000  # the same if a node of the user's may hold some, unseen
HELD = 16  # after so many times what buffers hold, even several in a row have released their oldest utterance
DEALS = 16  # rounds that may give a lane nothing if they are dealt to lanes afterwards, times the lanes


class Holding(Protocol):
    """A node that may hold items back."""

    def remaining(self) -> tuple[int, int]: ...


@dataclass
class StallGuard:
    """Whether anything still comes out of a lane: a stage that repeats its source for ever, before one that leaves
    everything out, would run without a word. A round from which nothing arrived is the last one.

    ``arrived``: utterances that a buffer, a batch or the lane's end took in. ``given``: ``arrived`` when something
    last came out of the lane. ``starved_stage``: the stage that ended because nothing came from it any more.
    ``restoring``: what comes out is not seen.
    """

    arrived: int = 0
    given: int = 0
    restoring: bool = False
    starved_stage: str = ""
    allowance: int = ALLOWANCE
    lane: ReferenceType[Holding] | None = None  # its last node

    def came_out(self) -> None:
        """Note that the lane gave something."""
        self.arrived += 1
        self.given = self.arrived

    def stalled(self, arrived: int) -> bool:
        """True if more utterances went in since the last output than one whole round (``arrived``) plus all buffers can
        explain, so later stages must have left them all out."""
        if self.restoring:
            return False
        node = self.lane() if self.lane is not None else None
        held = node.remaining()[0] if node is not None else 0
        return self.arrived - self.given > arrived + HELD * held + self.allowance

    @contextmanager
    def while_restoring(self) -> Iterator[None]:
        """While a lane is restored, let sources rest only where they rested before."""
        self.restoring = True
        try:
            yield
        finally:
            self.restoring, self.given = False, self.arrived


class ConsumedMark:
    """Records whether the last item of a node has given anything, so that an endless source knows it after a resume.

    Args:
        stall_guard: the lane's.
        state: the node's, where it has taken the item once more. Default: None.
    """

    def __init__(self, stall_guard: StallGuard, state: Mapping[str, Any] | None = None) -> None:
        self._stall_guard, self._arrived = stall_guard, stall_guard.arrived
        if state is not None and "fruitless" not in state:
            stall_guard.arrived += 1

    def saved(self) -> dict[str, Any]:
        """Return what the node's state keeps of it."""
        return {} if self._stall_guard.arrived > self._arrived else {"fruitless": 1}


ROUND_BITS = 32  # bits of ``pass_`` for the rounds of a repetition
ROUNDS = 1 << ROUND_BITS  # rounds that can be told apart
T = TypeVar("T")


def lanes_of(lanes: int, rank: int, world_size: int) -> range:
    """Return the lanes of a rank: those with ``lane % world_size == rank``."""
    return range(rank, lanes, world_size)


def worker_of(lane: int, world_size: int, num_workers: int) -> int:
    """Return the worker (of its rank) that runs ``lane``; 0 if the main process does (``num_workers=0``)."""
    return (lane // world_size) % max(1, num_workers)


class Site(NamedTuple):
    """The place of a stage in a graph: its name, and its number among the stages of that name."""

    name: str
    ordinal: int

    @property
    def salt(self) -> int:
        return stable_hash("site", self.name, self.ordinal)

    def within(self, source: str) -> str:
        """Return the name of the place in the whole graph; ``source``: the path of names through mixes."""
        return f"{source}/{self.name}" + (f" {self.ordinal + 1}" if self.ordinal else "")


@dataclass
class Mode:
    """The current mode of a lane. While it is ``skimming``, batches are passed over and not made; ``saved`` is False
    where nobody asks for its state."""

    skimming: bool = False
    saved: bool = True


class RowOrigin(NamedTuple):
    """The origin of an utterance of a batch: see :class:`~uio_pipes.core.sample.Origin`.

    ``frames``: its length as the batch has it; ``tokens``: how many labels it has; ``sample_rate`` in Hz.
    """

    key: str
    source: str | None = None
    url: str | None = None
    item: int | None = None
    offset: int | None = None
    sub: tuple[int, ...] = ()
    frames: int | None = None
    tokens: int | None = None
    sample_rate: int | None = None
    speaker: str | None = None


@dataclass
class DrawnOrder:
    """The order of a source's items where a later ``stage`` draws it, each ``number + copy * (number of all)``.

    ``load``: makes the fields of an item; ``order``: that of the pass which the source is in.
    """

    stage: Any
    load: Callable[[Any], dict[str, Any]] | None = None
    order: Any = None


@dataclass(frozen=True)
class Lane:
    """One lane of one epoch, as nodes see it.

    ``ledger`` counts and applies the failure policy; ``tables`` holds what all lanes of a process share (lists);
    ``pass_`` counts how often the lane's data has been dealt again; ``source`` is the path of names through mixes;
    ``stall_guard`` tells whether anything comes through, ``mode`` how the lane runs, ``settings`` what changes on the
    way; ``dealt``: the items at this place are dealt to so many lanes later. Utterances for whose key one of
    ``key_filters`` is true are left out of their batches, and those for whose URL and key ``excluded`` is; ``origins``
    takes a note of each utterance that is made, if somebody wants it; ``needs_text``: False where a later stage brings
    the transcripts; ``drawn``: the order of the source, if a later stage draws it; ``resampled``: whether the source
    draws its items with replacement.
    """

    ledger: Ledger
    index: int = 0
    count: int = 1
    seed: int = 0
    epoch: int = 0
    pass_: int = 0
    source: str = ""
    tables: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    stall_guard: StallGuard = field(default_factory=StallGuard, repr=False)
    mode: Mode = field(default_factory=Mode, repr=False)
    settings: Settings = field(default_factory=Settings, repr=False)
    dealt: int = 1
    key_filters: tuple[Callable[[str], bool], ...] = field(default=(), repr=False)
    excluded: Callable[[str, str], bool] | None = field(default=None, repr=False)
    origins: list[RowOrigin] | None = field(default=None, repr=False)
    needs_text: bool = True
    drawn: DrawnOrder | None = field(default=None, repr=False)
    resampled: bool = False

    @property
    def run_key(self) -> bytes:
        """The key for the hashes of an epoch's samples."""
        return f"{self.seed}/{self.epoch}".encode()

    @contextmanager
    def replay(self, *, skimming: bool) -> Iterator[None]:
        """Count nothing until the end of the block: what happens in it was counted when it happened first."""
        self.mode.skimming = skimming
        try:
            with self.ledger.quietly(True):
                yield
        finally:
            self.mode.skimming = False

    @property
    def makes_batches(self) -> bool:
        """False while the lane is being restored or batches are skipped."""
        return not (self.ledger.quiet or self.mode.skimming)

    def stalls(self, stage: str, round_: int, arrived: int) -> bool:
        """True if a repeating stage should rest after ``round_``; for ``arrived`` see :meth:`StallGuard.stalled`.

        The lane's state remembers it: a buffer that is restored runs the stage once more, and sees no output.
        """
        place = self.pass_, round_
        if not self.settings.has_mark(stage, place):
            if not self.stall_guard.stalled(arrived):
                return False
            self.settings.mark(stage, place)
        return True

    def common(self) -> Lane:
        """Return the lane for nodes before ``sharding_filter``: one for all lanes, but only the first one counts."""
        ledger = self.ledger if self.index == 0 else self.ledger.silent()
        return replace(self, index=0, ledger=ledger, dealt=self.count)

    def in_round(self, round_: int) -> Lane:
        """Return the lane for round ``round_`` of nodes that are repeated: the round is a pass of its own."""
        return replace(self, pass_=(self.pass_ << ROUND_BITS) + round_)

    def within(self, name: str) -> Lane:
        """Return the lane for the nodes of the pipeline ``name`` in a mix."""
        return replace(self, source=f"{self.source}/{name}" if self.source else name)

    def key(self, site: Site) -> int:
        """Return the seed of a buffer's choices, made of seed, epoch, pass, source, stage and lane."""
        return stable_hash("lane", *self._where(), site.name, site.ordinal, self.index)

    def order_key(self, site: Site) -> int:
        """Return the seed of the epoch's order: like :meth:`key`, but the same in every lane."""
        return stable_hash("order", *self._where(), site.name, site.ordinal)

    def _where(self) -> tuple[int, int, int, str]:
        return self.seed, self.epoch, self.pass_, self.source

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is shared under ``key``; the first lane of the process to ask for it calls ``make()``."""
        if key not in self.tables:
            self.tables[key] = make()
        value: T = self.tables[key]
        return value
