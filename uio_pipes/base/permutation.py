"""A shuffled ``range(n)``, computed only where it is read: ten million items are as quick to start on as ten."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from uio_pipes.base.hashing import GOLDEN, MASK
from uio_pipes.base.lru import Lru

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
        self._small = _by_hashes(n, key) if n <= SMALL else None
        self._blocks = Lru(KEPT * BLOCK * 8)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self.n:
            raise IndexError(position)
        if self._small is not None:
            return int(self._small[position])
        number, offset = divmod(position, BLOCK)
        block = self._blocks.get(number, lambda: self._some(number * BLOCK, BLOCK), lambda made: made.nbytes)
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


def _by_hashes(n: int, key: int) -> npt.NDArray[np.int64]:
    with np.errstate(over="ignore"):
        hashes = _mix64(np.arange(n, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key))
    return np.argsort(hashes, kind="stable")
