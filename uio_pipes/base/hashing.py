"""Hashes and draws that are the same in every process, on every machine and with every version of every library.

Every random choice is a hash of names and positions, never of call order, rank or worker, and all draws that decide
order, lengths or masks are integer arithmetic written here.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15


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
