"""Who runs what, and where randomness comes from: pure functions, and the lane that nodes are built for.

An epoch is dealt to a fixed number of lanes: item ``p`` of the epoch's order belongs to lane ``p % lanes``. Ranks and
workers only decide who runs which lane, so moving a lane elsewhere changes nothing in it. Every random choice is a
hash of names and positions (seed, epoch, stage, lane, origin), never of call order, rank or worker. All draws that
decide order, lengths or masks are integer arithmetic written here, so that they are the same with every version of
every library.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from uio_pipes.core.pulse import Pulse

if TYPE_CHECKING:
    from uio_pipes.core.ledger import Ledger

__all__ = ["Draws", "Lane", "Site", "lanes_of", "mix64", "pick", "stable_hash", "worker_of"]

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
PASSES = 32  # bits for the rounds of a repetition within a pass
T = TypeVar("T")


def stable_hash(*parts: object) -> int:
    """A 64-bit hash of ``parts`` (ints, strings, tuples of them) that is the same in every process and version."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def mix64(x: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): spreads ``x`` over all 64 bits."""
    x = (x + GOLDEN) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def pick(key: int, position: int, n: int) -> int:
    """The choice in [0, n) that a buffer with ``key`` makes at ``position``."""
    return (mix64(key ^ position) * n) >> 64


def lanes_of(lanes: int, rank: int, world_size: int) -> range:
    """The lanes of a rank: ``lane % world_size == rank``."""
    return range(rank, lanes, world_size)


def worker_of(lane: int, world_size: int, num_workers: int) -> int:
    """The worker of its rank that runs ``lane``; 0 where the main process does (``num_workers=0``)."""
    return (lane // world_size) % max(1, num_workers)


class Draws:
    """A tiny generator: the n-th draw is a hash of the seed and n."""

    __slots__ = ("count", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.count = 0

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        self.count += 1
        return (mix64(self.seed ^ (self.count * GOLDEN & MASK)) * n) >> 64

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A number in [low, high), of 32 random bits."""
        return low + (high - low) * (self.below(1 << 32) / (1 << 32))

    def generator(self) -> np.random.Generator:
        """A NumPy generator of its own, for user functions with a ``rng`` parameter."""
        return np.random.Generator(np.random.Philox(key=self.seed))


class Site(NamedTuple):
    """Where a stage stands: its name and which one of that name it is."""

    name: str
    ordinal: int

    @property
    def salt(self) -> int:
        return stable_hash("site", self.name, self.ordinal)


@dataclass(frozen=True)
class Lane:
    """One lane of one epoch, as nodes see it.

    ``ledger`` counts and applies the failure policy; ``tables`` holds what all lanes of a process share (lists);
    ``pass_`` counts how often the lane's data has been dealt again; ``source`` is the path of names through ``mix``;
    ``pulse`` tells whether anything comes through; ``dealt`` is the number of lanes that what stands here is dealt to.
    """

    ledger: Ledger
    index: int = 0
    count: int = 1
    seed: int = 0
    epoch: int = 0
    pass_: int = 0
    source: str = ""
    tables: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    pulse: Pulse = field(default_factory=Pulse, repr=False)
    dealt: int = 1

    def common(self) -> Lane:
        """As what stands before ``sharding_filter`` sees it: the same in every lane, counted in the first one only."""
        ledger = self.ledger if self.index == 0 else self.ledger.silent()
        return replace(self, index=0, ledger=ledger, dealt=self.count)

    def again(self, round_: int) -> Lane:
        """As what is repeated within the lane sees its ``round_``-th time: a pass of its own."""
        return replace(self, pass_=(self.pass_ << PASSES) + round_)

    def within(self, name: str) -> Lane:
        """As the source called ``name`` of a mix sees it."""
        return replace(self, source=f"{self.source}/{name}" if self.source else name)

    def key(self, site: Site) -> int:
        """Seed of a buffer's choices: seed, epoch, pass, source, stage, lane. (Its position is added draw by draw.)"""
        return stable_hash("lane", *self._where(), site.name, site.ordinal, self.index)

    def order_key(self, site: Site) -> int:
        """Seed of the epoch's order: as :meth:`key`, the same in every lane."""
        return stable_hash("order", *self._where(), site.name, site.ordinal)

    def _where(self) -> tuple[int, int, int, str]:
        return self.seed, self.epoch, self.pass_, self.source

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make()`` returned when the first lane of this process asked for ``key``."""
        if key not in self.tables:
            self.tables[key] = make()
        value: T = self.tables[key]
        return value
