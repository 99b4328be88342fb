"""The rows of a file by number, unparsed. Of ten million rows only the place of every fourth is kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.memory import bytes_in, kept
from uio_pipes.base.urls import redact
from uio_pipes.formats.rows import content
from uio_pipes.formats.rows.content import WHAT, Content, Version, opened, unclear_end, version_of
from uio_pipes.formats.rows.cutting import Block, Cutter, RowBounds
from uio_pipes.io.access import Access

if TYPE_CHECKING:
    from typing_extensions import Self

STEP = 4  # rows in a block: all of it is read to get one of them. Their places take 12 / STEP bytes a row
LONGEST = 1 << 22  # bytes of a row that is found in any case


class NumberedRows:
    """The rows of one file. A large one stays on disk, and forked processes share the places of its rows.

    Subclasses say by ``what`` it is called in messages, and :meth:`look` at all of it while it is scanned.
    """

    what: ClassVar[str] = WHAT
    cutter = Cutter()

    def __init__(self, file: str | Content, access: Access | None = None) -> None:
        """``file``: a path or URL, or what has been opened already. Raises: ListError."""
        self.content = opened(file, self.what, access) if isinstance(file, str) else file
        self.name = self.content.name
        self._begin, self._first_line = 3 * (self.content.read(0, 3) == b"\xef\xbb\xbf"), 1
        self._count, self._end, self._plain = 0, 0, False
        self.prepare()
        self._scan()

    @classmethod
    def known(cls, file: str | Content, access: Access | None = None, *how: Any) -> Self:
        """Return ``cls(file, access, *how)``. A local file is scanned once in a process, and before there are workers,
        as long as it does not change."""
        found = version_of(file) if isinstance(file, str) else None
        return cls(file, access, *how) if found is None else _known(cls, file, found, *how)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._count

    def raw(self, number: int) -> bytes:
        """Return a row, unparsed."""
        if not 0 <= number < self._count:
            raise IndexError(number)
        return _block(self, number // STEP)[1][number % STEP]

    def line(self, number: int) -> int:
        """Return the number of the line in which a row begins, from 1 on."""
        return int(self._lines[number // STEP]) + _block(self, number // STEP)[0][number % STEP]

    def place(self, number: int) -> str:
        """Return the place of a row for messages: ``data.list, line 7``."""
        return f"{_shown(self.name)}, line {self.line(number)}"

    def rows(self) -> Iterator[bytes]:
        """Yield all rows, unparsed."""
        for _, piece, found in self.pieces():
            yield from rows_in(piece, found)

    @property
    def notes(self) -> list[DataError]:
        """Possible problems of the file that are not failures."""
        torn = self._several and not self.content.read(self._end - 1, 1)  # the line end that pieces() adds is not there
        return [unclear_end(self.name)] if torn else []

    def prepare(self) -> None:
        """Look at the beginning before the rows are scanned: at a header, for instance. Raises: ListError."""

    def look(self, piece: bytes, found: RowBounds, line: int) -> None:
        """Look at the rows of a piece of the file, from ``line`` on. Raises: ListError if it cannot be used."""

    def too_long(self, offset: int) -> ListError:
        """Return the error for a row that never ends."""
        return ListError(f"{redact(self.name)}: a row of more than {LONGEST} bytes begins at byte {offset}")

    def pieces(self) -> Iterator[tuple[int, bytes, RowBounds | None]]:
        """Yield the file in pieces of whole rows: offset, bytes with a line end at their end, and where the rows are;
        None for that if each line is one. Raises: ListError."""
        at, size = self._begin, content.CHUNK
        while piece := self.content.read(at, size):
            last = len(piece) < size
            if last and not piece.endswith(b"\n"):
                piece += b"\n"
            cut = piece.rfind(b"\n") + 1
            found = None if self._plain or not cut else self.cutter.bounds(piece[:cut], last)
            whole = cut if found is None else found.size
            if not whole:
                if size > LONGEST:
                    raise self.too_long(at)
                size = 2 * LONGEST
                continue
            yield at, piece if whole == len(piece) else piece[:whole], found
            at, size = at + whole, content.CHUNK

    def _scan(self) -> None:
        """Note the place of the first row of each block."""
        offsets, lines, line, plain = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], self._first_line, True
        self._end = self._begin
        for offset, piece, found in self.pieces():
            assert found is not None
            self.look(piece, found, line)
            first = slice(-self._count % STEP, None, STEP)
            offsets.append(offset + found.starts[first])
            lines.append(line + found.numbers[first])
            plain = plain and len(found.starts) == found.lines
            self._count += len(found.starts)
            self._end = offset + found.size  # of a last line without an end one byte too far: not read
            line += found.lines
        self._plain, self._several = plain, line > 2
        # of this a number is read faster than of an array
        self._offsets = np.concatenate([*offsets, [self._end]]).data
        self._lines = np.concatenate(lines).astype(np.uint32)

    def block(self, number: int) -> Block:
        """Return the rows of a block."""
        begin, end = self._offsets[number], self._offsets[number + 1]
        data = self.content.read(begin, end - begin)
        return (range(STEP), data.split(b"\n")) if self._plain else self.cutter.rows(data)


class HashedRows(NumberedRows):
    """Rows with a ``digest`` of the whole file, which is made while it is scanned."""

    def __init__(self, file: str | Content, access: Access | None = None) -> None:
        self.hash = blake2b(digest_size=16)
        super().__init__(file, access)

    def look(self, piece: bytes, found: RowBounds, line: int) -> None:
        self.hash.update(piece)


def rows_in(piece: bytes, found: RowBounds | None) -> Iterator[bytes]:
    """Return the rows of a piece of a file; None: each line is one."""
    if found is None:
        return iter(piece[:-1].split(b"\n"))
    return (piece[start:end] for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True))


@kept("places of rows", 64, bytes_in)
def _known(cls: type[NumberedRows], name: str, version: Version, *how: Any) -> Any:
    return cls(name, None, *how)


@lru_cache(maxsize=256)  # of a few rows each: a call costs a tenth of one of a cache that counts bytes
def _block(rows: NumberedRows, number: int) -> Block:
    return rows.block(number)


_shown = lru_cache(maxsize=256)(redact)
