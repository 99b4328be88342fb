"""Rows of tables by number, and tables of which one completes the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np

from uio_pipes.base.errors import DataError
from uio_pipes.formats.expressions import Expression
from uio_pipes.formats.lists.table import Parts

Row = Mapping[str, Any]


class Rows(Protocol):
    """The rows of a table. One that cannot be used is a row, too: it raises its error when it is asked for."""

    @property
    def digest(self) -> str:
        """A hash of all rows."""

    @property
    def files(self) -> Sequence[str]:
        """The files that the rows come from."""

    def __len__(self) -> int: ...
    def row(self, number: int) -> Row:
        """Return a row by its number. Raises: DataError ``bad_row`` or ``bad_text``."""

    def place(self, number: int) -> str:
        """Return where a row is, for messages: ``train.tsv, line 7``."""

    def file(self, number: int) -> str:
        """Return the file of a row, from which relative paths start."""

    def scan(self) -> Iterator[Row | DataError]:
        """Yield all rows in their order, faster than one by one."""


class ChainedRows(Parts):
    """The rows of several tables, one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        super().__init__(map(len, parts))
        self._parts = parts
        self.files = [file for part in parts for file in part.files]
        self.digest = "+".join(part.digest for part in parts)

    def row(self, number: int) -> Row:
        part, within = self._find(number)
        return part.row(within)

    def place(self, number: int) -> str:
        part, within = self._find(number)
        return part.place(within)

    def file(self, number: int) -> str:
        part, within = self._find(number)
        return part.file(within)

    def scan(self) -> Iterator[Row | DataError]:
        return chain.from_iterable(part.scan() for part in self._parts)

    def _find(self, number: int) -> tuple[Rows, int]:
        at, within = self.locate(number)
        return self._parts[at], within


class RowIndex:
    """The numbers of rows by a value of theirs: 8 bytes a row, of which the lower bits are the row's number and the
    others a hash of the value. So a number that is found must be compared with its row."""

    def __init__(self, values: Iterator[str | None], count: int) -> None:
        """``values``: of all rows in their order, None for a row that is not to be found. ``count``: how many."""
        self._mask = (1 << max(1, count.bit_length())) - 1
        hashes = np.fromiter(((hash(v) & _ALL if v is not None else _ALL) for v in values), np.uint64, count)
        hashes &= ~np.uint64(self._mask)
        hashes |= np.arange(count, dtype=np.uint64)
        hashes.sort()
        self._packed = hashes.data  # of which bisect makes numbers faster than numpy finds one

    def __len__(self) -> int:
        return len(self._packed)

    def find(self, value: str) -> list[int]:
        """Return the numbers of the rows that may have this value, in their order."""
        first, found = hash(value) & _ALL & ~self._mask, list[int]()
        at = bisect_left(self._packed, first)
        while at < len(self._packed) and (one := self._packed[at]) <= first | self._mask:
            found.append(one & self._mask)
            at += 1
        return found


_ALL = (1 << 64) - 1


class JoinedRows:
    """Rows of a table, completed by those of another one that have the same value.

    ``by``: the value of a row, ``to``: that of a row of the other table, of which the first one with that value counts.
    A row without one there has its own fields only. Fields of the same name are those of the first table.
    """

    def __init__(self, rows: Rows, other: Rows, by: Expression, to: Expression) -> None:
        self.rows, self.other = rows, other
        self._by, self._to = by, to
        self._index = RowIndex((_value(to, row) for row in other.scan()), len(other))
        self.files = [*rows.files, *other.files]
        self.digest = f"{rows.digest}+{other.digest} {by.text} = {to.text}"

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, number: int) -> Row:
        return self._joined(self.rows.row(number))

    def place(self, number: int) -> str:
        return self.rows.place(number)

    def file(self, number: int) -> str:
        return self.rows.file(number)

    def scan(self) -> Iterator[Row | DataError]:
        for row in self.rows.scan():
            try:
                yield row if isinstance(row, DataError) else self._joined(row)
            except DataError as error:
                yield error

    def _joined(self, row: Row) -> Row:
        value = _value(self._by, row)
        for number in () if value is None else self._index.find(value):
            other = self.other.row(number)
            if _value(self._to, other) == value:
                return {**other, **row}
        return row


def _value(expression: Expression, row: Row | DataError) -> str | None:
    """Return the value by which a row is found; None if there is none."""
    try:
        found = None if isinstance(row, DataError) else expression(row)
    except DataError:
        return None
    return None if found is None else str(found)
