"""Hashes, draws and permutations that are the same in every process, on every machine and with every version of every
library.

Every random choice is a hash of names and positions, never of call order, rank or worker, and all draws that decide
order, lengths or masks are integer arithmetic written here.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uio_pipes.base.memory import Lru

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
    """Return the choice in [0, n) of a buffer with ``key`` at ``position``."""
    return (mix64(key ^ position) * n) >> 64


def picks(key: int, count: int, n: int) -> npt.NDArray[np.int64]:
    """Return the choices in [0, n) at the first ``count`` positions; n: less than 2³²."""
    hashes = _mix64(np.uint64(key) ^ np.arange(count, dtype=np.uint64))
    half, few = np.uint64(32), np.uint64(n)
    high = (hashes >> half) * few + ((hashes & np.uint64(0xFFFFFFFF)) * few >> half) >> half
    return np.asarray(high, np.int64)


class Draws:
    """A tiny random generator: the n-th draw is a hash of the seed and n.

    Args:
        seed: a whole number; an :class:`Op` gets one of seed, epoch, stage and utterance.
    """

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
        """Return a separate NumPy generator, for user functions with a ``rng`` parameter."""
        return np.random.Generator(np.random.Philox(key=self.seed))


class Seeded(Protocol):
    """Something with a seed, which takes time to make."""

    @property
    def seed(self) -> int: ...


class LateDraws(Draws):
    """Draws whose seed is made of that of ``source`` and ``salt`` when the first one is: most stages draw nothing to
    plan."""

    __slots__ = ("_made", "_salt", "_source")

    def __init__(self, source: Seeded, salt: int) -> None:
        self._source, self._salt, self.count = source, salt, 0
        self._made: int | None = None

    @property
    def seed(self) -> int:  # type: ignore[override]
        if self._made is None:
            self._made = mix64(self._source.seed ^ self._salt)
        return self._made


SMALL = 1 << 16  # up to this length numbers are sorted by their hashes: then every order is equally likely
BLOCK = 1 << 12  # numbers computed at a time
KEPT = 16  # blocks kept in memory
ROUNDS = 6

_Numbers = npt.NDArray[np.uint64]


class Permutation:
    """The numbers below ``n`` in an order chosen by ``key`` (64 bits), the same on every machine: ``p[i]``, ``len(p)``.

    Above 65,536 a Feistel network (Luby and Rackoff 1988) permutes all numbers with as many bits as ``n - 1``. A result
    that is not below ``n`` is permuted again (Black and Rogaway 2002); on average this takes at most two rounds. So
    the order needs no memory and no preparation.
    """

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self.bits = max(2, (n - 1).bit_length())
        self.keys = [np.uint64(key * GOLDEN * (i + 1) + i & MASK) for i in range(ROUNDS)]
        self._small: npt.NDArray[np.int64] | None = None
        if n <= SMALL:
            with np.errstate(over="ignore"):
                hashes = _mix64(np.arange(n, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key))
            self._small = np.argsort(hashes, kind="stable")
        self._blocks = Lru("orders", KEPT * BLOCK * 8)
        self._last: tuple[int, npt.NDArray[np.int64]] = -1, np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self.n:
            raise IndexError(position)
        if self._small is not None:
            return int(self._small[position])
        number, offset = divmod(position, BLOCK)
        known, block = self._last  # as one: others may read in other threads
        if known != number:
            block = self._blocks.get(number, lambda: self._some(number * BLOCK, BLOCK), lambda made: made.nbytes)
            self._last = number, block
        return int(block[offset])

    def all(self) -> npt.NDArray[np.int64]:
        """Return the whole order, (n,)."""
        if self._small is not None:
            return self._small
        out = np.empty(self.n, np.int64)
        for first in range(0, self.n, SMALL):
            out[first : first + SMALL] = self._some(first, SMALL)
        return out

    def _some(self, first: int, count: int) -> npt.NDArray[np.int64]:
        numbers = self._permuted(np.arange(first, min(self.n, first + count), dtype=np.uint64))
        while (above := numbers >= self.n).any():
            numbers[above] = self._permuted(numbers[above])
        return numbers.astype(np.int64)

    def _permuted(self, numbers: _Numbers) -> _Numbers:
        """Map the numbers of ``bits`` bits one to one onto themselves."""
        half = self.bits // 2
        low, high = numbers & np.uint64((1 << half) - 1), numbers >> np.uint64(half)
        for first, second in zip(self.keys[::2], self.keys[1::2], strict=True):
            high = high ^ (_mix64(low ^ first) & np.uint64((1 << (self.bits - half)) - 1))
            low = low ^ (_mix64(high ^ second) & np.uint64((1 << half) - 1))
        permuted: _Numbers = (high << np.uint64(half)) | low
        return permuted


def _mix64(x: _Numbers) -> _Numbers:
    """Like :func:`uio_pipes.base.hashing.mix64`, for arrays."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(GOLDEN)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: _Numbers = x ^ (x >> np.uint64(31))
    return mixed


_TYPES = {"H": 0x10000, "I": 0x100000000}


def pack(column: Iterable[int], base: int = 0) -> str:
    """Ints, of which ``base`` is taken away, as a string: 2 bytes each where they fit, else 4, in base64. What is left
    must be between 0 and 2³²."""
    values = np.frombuffer(array("q", column), np.int64) - base
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    if least < 0 or most >= _TYPES["I"]:
        raise OverflowError(f"a column of {least} to {most} cannot be packed")
    code = "H" if most < _TYPES["H"] else "I"
    return code + base64.b64encode(values.astype(code).tobytes()).decode()


def unpack(text: str) -> list[int]:
    """Return the column that :func:`pack` packed. Raises: ValueError if it is not that."""
    if text[:1] not in _TYPES:
        raise ValueError(f"it begins with {text[:1]!r}, not with one of {', '.join(_TYPES)}")
    column = array(text[0])
    column.frombytes(base64.b64decode(text[1:], validate=True))
    return column.tolist()


def module_name(name: str) -> str:
    """Return the name of a module; of a script that is run, the name by which others import it."""
    main = sys.modules.get(name) if name in ("__main__", "__mp_main__") else None
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec else Path(file).stem if file else name
