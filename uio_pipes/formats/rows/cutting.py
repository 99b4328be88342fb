"""Cutting the bytes of a file into rows: lines that are rows, and quoted values that go over the end of a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

OVER = 100  # lines that a row may have: a quote that is not closed within them opens nothing

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Block = tuple[Sequence[int], list[bytes]]  # the lines of rows, counted from that of the first one, and the rows


class RowBounds(NamedTuple):
    """Where the rows of a piece of a table begin and end, and in which of its lines, counted from 0.

    ``size``: bytes of the piece up to a row that may go on after it; ``lines``: how many lines these are.
    """

    starts: Positions
    ends: Positions
    numbers: Positions
    size: int
    lines: int


class Cutter:
    """Tells rows from blank lines and comments, and the ends of rows from line ends within quotes.

    As for Python's ``csv``, only a quote at the beginning of a value opens one, and two of them within it are one.

    Args:
        separator: text between values; one character if there are quotes.
        quoted: whether values may be in double quotes.
        escape: character before one that is meant literally, or "".
        comment: what lines begin with that are no rows, or "".
    """

    def __init__(self, separator: str = " ", quoted: bool = False, escape: str = "", comment: str = "") -> None:
        self._comment = comment.encode()
        self._surely = self.surely()
        self._closed = _closed_row(separator, escape) if quoted else None
        self._plain = ord(separator) if len(separator) == 1 and separator.isascii() and not escape else -1

    def surely(self) -> Flags:
        """Return for each byte whether any line that begins with it is a row."""
        found = np.ones(256, np.bool_)
        found[:33], found[list(self._comment[:1])] = False, False
        return found

    def is_row(self, line: bytes) -> bool:
        """Return whether a line is a row, or the first one of a row."""
        return bool(line.strip()) and not (self._comment and line.startswith(self._comment))

    def rows(self, piece: bytes) -> Block:
        """Return the rows of a piece of whole rows."""
        lines = piece.removesuffix(b"\n").split(b"\n")
        quoted = self._closed is not None and b'"' in piece
        numbers, rows, number = list[int](), list[bytes](), 0
        while number < len(lines):
            more, line = 0, lines[number]
            if self.is_row(line):
                more = max(0, self._more(lines[number : number + OVER])) if quoted else 0
                numbers.append(number)
                rows.append(b"\n".join(lines[number : number + more + 1]) if more else line)
            number += more + 1
        return numbers, rows

    def bounds(self, piece: bytes, last: bool) -> RowBounds:
        """Return where the rows of a piece of whole lines are. ``last``: whether nothing comes after it."""
        codes = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero(codes == 10)
        starts = np.concatenate(([0], ends[:-1] + 1))
        count = len(ends)
        heads = np.ones(count, np.bool_)  # lines with which rows begin
        if self._closed is not None and b'"' in piece:
            count = self._join(piece, codes, starts, ends, heads, last)
        size = len(piece) if count == len(ends) else int(starts[count])
        numbers = np.flatnonzero(heads[:count])
        tails = np.concatenate((numbers[1:], [count])) - 1
        are = self._are_rows(piece, codes, starts[numbers], ends[tails])
        return RowBounds(starts[numbers][are], ends[tails][are], numbers[are], size, count)

    def _join(
        self, piece: bytes, codes: npt.NDArray[np.uint8], starts: Positions, ends: Positions,
        heads: Flags, last: bool,
    ) -> int:  # fmt: skip
        """Take from ``heads`` the lines that belong to the row before; return how many lines are whole rows."""
        at = 0
        for number in self._doubtful(codes, ends):
            if number < at or not self.is_row(piece[starts[number] : ends[number]]):
                continue
            until = min(number + OVER, len(ends))
            more = self._more([piece[starts[number] : ends[number]]])
            if more < 0:
                more = self._more(piece[starts[number] : ends[until - 1]].split(b"\n"))
            if more < 0 and until == len(ends) and not last:
                return number
            at = number + max(0, more) + 1
            heads[number + 1 : at] = False
        return len(ends)

    def _doubtful(self, codes: npt.NDArray[np.uint8], ends: Positions) -> list[int]:
        """Return the lines with quotes, but for those that close each at once, as nearly all lines do: every first one
        of two quotes is at the beginning of a value, or doubles the one before it."""
        quotes = np.flatnonzero(codes == 34)
        lines = np.searchsorted(ends, quotes)
        if self._plain < 0:
            return np.unique(lines).tolist()  # type: ignore[no-any-return]
        first = (np.arange(len(quotes)) - np.searchsorted(lines, lines)) % 2 == 0
        before = codes[quotes - 1]  # of the first byte, the last line end
        strange = first & (before != 34) & (before != 10) & (before != self._plain)
        odd = np.bincount(lines) % 2 == 1
        return np.union1d(lines[strange], np.flatnonzero(odd)).tolist()  # type: ignore[no-any-return]

    def _more(self, lines: Sequence[bytes]) -> int:
        """Return how many lines after the first one belong to its row; -1 if its quote is not closed in ``lines``."""
        assert self._closed is not None
        row = b""
        for number, line in enumerate(lines):
            row = line if number == 0 else row + b"\n" + line
            if (number == 0 or b'"' in line) and self._closed.fullmatch(row):
                return number
        return -1

    def _are_rows(self, piece: bytes, codes: npt.NDArray[np.uint8], starts: Positions, ends: Positions) -> Flags:
        first = codes[starts]
        are: Flags = self._surely[first]
        for number in np.flatnonzero(~are & (first != 10)).tolist():
            are[number] = self.is_row(piece[starts[number] : ends[number]])
        return are


class ItemCutter(Cutter):
    """Knows the items of a list: lines that are more than white space, of Unicode's too, and no comments."""

    def surely(self) -> Flags:
        found = super().surely()
        found[127:], found[ord("#")] = False, False
        return found

    def is_row(self, line: bytes) -> bool:
        item = line.decode("utf-8", "surrogateescape").strip()
        return bool(item) and item[0] != "#"


class LineCutter(Cutter):
    """Treats every line as a row."""

    def surely(self) -> Flags:
        return np.ones(256, np.bool_)

    def is_row(self, line: bytes) -> bool:
        return True


def _closed_row(separator: str, escape: str) -> re.Pattern[bytes]:
    """Return what matches a row in which no quote is open."""
    between = re.escape(separator.encode())
    plain, within, after = rb"[^%s]*" % between, rb'[^"]*(?:""[^"]*)*', b""
    if len(separator.encode()) > 1:
        plain = rb"(?:(?!%s).)*" % between
    if escape:
        mark = re.escape(escape.encode())
        plain, within = rb"(?:%s.|(?!%s)[^%s])*" % (mark, between, mark), rb'(?:%s.|""|[^"%s])*' % (mark, mark)
        after = rb"(?:%s|(?!%s))" % (mark, mark)  # after a quote that closes, it is itself
    value = rb'(?:"%s"(?!")%s%s|(?!")%s)' % (within, after, plain, plain)
    return re.compile(rb"%s(?:%s%s)*" % (value, between, value), re.DOTALL)
