"""The order in which the rows of an epoch come: each lane has a run of row groups, and enters each of them once."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from uio_pipes.base.hashing import mix64
from uio_pipes.base.lru import Lru
from uio_pipes.base.permutation import Permutation

_KEPT = 32 << 20  # bytes of orders within row groups


class RowOrder:
    """The number of the row at each position of the epoch: ``order[p]``, ``len(order)``.

    Position ``p`` belongs to lane ``p % lanes``. The rows, row group by row group, are cut into one run for each lane,
    which differ by a row at most; only where two runs meet is a row group read by two lanes. ``rows``: of each row
    group; ``key``: the seed of an epoch that is shuffled, by row groups and within each, None for one that is not.
    """

    def __init__(self, rows: list[int], lanes: int, key: int | None) -> None:
        self._rows, self._lanes, self._key = rows, lanes, key
        count = len(rows)
        self._groups = np.arange(count) if key is None else Permutation(count, key).all()
        self._firsts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        self._begins: list[int] = [0, *np.cumsum(np.asarray(rows, np.int64)[self._groups]).tolist()]
        self._within = Lru(_KEPT)

    def __len__(self) -> int:
        return self._begins[-1]

    def __getitem__(self, position: int) -> int:
        place, _ = self._place(position)
        at = bisect_right(self._begins, place) - 1
        group, row = int(self._groups[at]), place - self._begins[at]
        return int(self._firsts[group]) + (row if self._key is None else self._permuted(group)[row])

    def following(self, position: int) -> int | None:
        """Return the row group that the lane of ``position`` enters next, if there is one."""
        place, end = self._place(position)
        after = bisect_right(self._begins, place)
        return int(self._groups[after]) if self._begins[after] < end else None

    def _place(self, position: int) -> tuple[int, int]:
        """Return the place of a position among the rows as they are ordered, and the end of its lane's run."""
        lane, number = position % self._lanes, position // self._lanes
        size, longer = divmod(len(self), self._lanes)
        begin = lane * size + min(lane, longer)
        return begin + number, begin + size + (lane < longer)

    def _permuted(self, group: int) -> Permutation:
        assert self._key is not None
        key, rows = mix64(self._key ^ mix64(group + 1)), self._rows[group]
        made: Permutation = self._within.get(group, lambda: Permutation(rows, key), lambda _: 8 * rows)
        return made
