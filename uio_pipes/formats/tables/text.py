"""Text tables, one row a line: TSV, CSV, JSON lines, transcripts of ``KEY words …``. Of ten million rows only the
place of every sixteenth is kept."""

from __future__ import annotations

import csv
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import redact
from uio_pipes.formats.lists.lines import CHUNK, LONGEST, STEP, opened
from uio_pipes.formats.tables.rows import Row
from uio_pipes.io.access import Access

IN_MEMORY = 1 << 22  # bytes: longer tables stay on disk
_QUOTED_LINES = 100  # that a quoted value may go over


class TextForm(NamedTuple):
    """How the lines of a table are read.

    Attributes:
        separator: text between values; None for any number of blanks and tabs, "" if a line is one value.
        header: True if the first line of a file has the names of the columns, or these names. The last one of given
            names has the rest of the line if values are separated by None or by one blank.
        quoted: whether values may be in double quotes, as in CSV.
        escape: character before one that is meant literally. "" if there is none.
        comment: what lines to ignore begin with. "" if there are none.
        encoding: of the text, as Python names it.
        json: True if each line is a JSON object.
    """

    separator: str | None = "\t"
    header: bool | tuple[str, ...] = True
    quoted: bool = False
    escape: str = ""
    comment: str = ""
    encoding: str = "utf-8"
    json: bool = False

    @property
    def takes_rest(self) -> bool:
        """True if the last column has the rest of the line."""
        return self.separator in (None, " ") and not isinstance(self.header, bool)


ReadTable = tuple[str, bytes, BinaryIO | None]  # name, content, or a file that holds it


class TextRows:
    """The rows of text tables, one after the other; see :class:`~uio_pipes.formats.tables.rows.Rows`.

    ``files``: paths, URLs, or what has been read already: a name with the content in memory, or b"" and a file.

    Raises: ListError if a table is missing, is no text, has no header, or has no rows; or a row has more than 4 MiB.
    """

    def __init__(self, files: Sequence[str | ReadTable], form: TextForm, access: Access | None = None) -> None:
        self.form = form
        self._parts = [_Part(each, form, access) for each in files]
        self.files = [part.name for part in self._parts]
        self._firsts = [0, *accumulate(len(part) for part in self._parts)]
        if not len(self):
            raise ListError(f"there are no rows in {', '.join(map(redact, self.files[:3])) or 'no table'}")
        hashed = blake2b(repr(form).encode(), digest_size=16)
        for part in self._parts:
            hashed.update(part.hash)
        self.digest = hashed.hexdigest()

    def __len__(self) -> int:
        return self._firsts[-1]

    def row(self, number: int) -> Row:
        part, within = self._find(number)
        found = _block(part, within // STEP)[within % STEP]
        if isinstance(found, DataError):
            raise found.at(part.place(within))
        return found

    def place(self, number: int) -> str:
        part, within = self._find(number)
        return part.place(within)

    def file(self, number: int) -> str:
        return self._find(number)[0].name

    def scan(self) -> Iterator[Row | DataError]:
        for part in self._parts:
            for block in range(part.blocks):
                yield from part.parsed(block)

    def _find(self, number: int) -> tuple[_Part, int]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        at = bisect_right(self._firsts, number) - 1
        return self._parts[at], number - self._firsts[at]


@lru_cache(maxsize=256)
def _block(part: _Part, number: int) -> list[Row | DataError]:
    return part.parsed(number)


class _Part:
    """The rows of one file, sixteen of them a block."""

    def __init__(self, file: str | ReadTable, form: TextForm, access: Access | None) -> None:
        self.form = form
        self._file: BinaryIO | None = None
        if isinstance(file, tuple):
            self.name, self._data, self._file = file
        else:
            self.name = file
            self._data, self._file = opened(file, "the table", IN_MEMORY, access)
        self._stat = self._status()
        self._skipped = 0  # bytes before the first row: a byte order mark and the header
        self.columns = self._header()
        self._scan()

    def __len__(self) -> int:
        return self._count

    @property
    def blocks(self) -> int:
        """How many blocks of sixteen rows there are."""
        return len(self._offsets)

    def place(self, number: int) -> str:
        """Return the line of a row, for messages."""
        block = number // STEP
        ends = [len(line) for line in self._lines(self._raw(block))[: number % STEP]]
        return f"{redact(self.name)}, line {int(self._numbers[block]) + len(ends)}"

    def parsed(self, block: int) -> list[Row | DataError]:
        """Return the rows of a block, or the errors of those that cannot be used."""
        return [self._row(line) for line in self._lines(self._raw(block))]

    # Lines

    def _lines(self, raw: bytes) -> list[bytes]:
        """Cut bytes into the lines that are rows; a quoted value may hold line ends."""
        lines = raw.split(b"\n")
        if self.form.quoted and raw.count(b'"'):
            lines = _whole_lines(lines, self._separator)
        comment = self.form.comment.encode()
        return [line for line in lines if line.strip() and not (comment and line.startswith(comment))]

    @property
    def _separator(self) -> bytes:
        return (self.form.separator or ",").encode(self.form.encoding)

    def _row(self, line: bytes) -> Row | DataError:
        try:
            text = line.decode(self.form.encoding).rstrip("\r")
        except UnicodeDecodeError as error:
            return DataError("bad_text", f"it is not {self.form.encoding} ({error.reason} at byte {error.start})")
        if self.form.json:
            return _object(text)
        cells = self._cells(text)
        if len(cells) == len(self.columns):
            return dict(zip(self.columns, cells, strict=True))
        why = f"it has {len(cells)} values, and there are {len(self.columns)} columns ({', '.join(self.columns)})"
        return DataError("bad_row", f"{why}: {text[:80]!r}; correct the row, or say how the table is written")

    def _cells(self, text: str) -> list[str]:
        form = self.form
        if (form.quoted and '"' in text) or (form.escape and form.escape in text):
            return self._csv(text)
        if form.separator == "":
            return [text.strip()]
        if form.takes_rest:
            cells = text.strip().split(form.separator, len(self.columns) - 1)
            return [*cells, *[""] * (len(self.columns) - len(cells))]
        return text.split(form.separator)

    def _csv(self, text: str) -> list[str]:
        quoting = csv.QUOTE_MINIMAL if self.form.quoted else csv.QUOTE_NONE
        options: Any = {"delimiter": self.form.separator or ",", "quoting": quoting, "doublequote": True}
        try:
            lines = text.splitlines(keepends=True)
            return next(csv.reader(lines, escapechar=self.form.escape or None, **options), [])
        except csv.Error:
            return []

    # Reading

    def _raw(self, block: int) -> bytes:
        begin = int(self._offsets[block])
        end = int(self._offsets[block + 1]) if block + 1 < len(self._offsets) else self._end
        return self._some(begin, end - begin)

    def _some(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return self._data[offset : offset + size]
        if self._status() != self._stat:
            raise ListError(f"{redact(self.name)} was written to while in use: put a changed table beside the old one")
        return os.pread(self._file.fileno(), size, offset)

    def _status(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _header(self) -> tuple[str, ...]:
        """Return the names of the columns; rows begin after them."""
        at = 3 if self._some(0, 3) == b"\xef\xbb\xbf" else 0
        self._skipped, self._first_line = at, 1
        if self.form.json or not isinstance(self.form.header, bool):
            return () if self.form.json else tuple(self.form.header)  # type: ignore[arg-type]
        if not self.form.header:
            raise ListError(f"{redact(self.name)}: the names of its columns are not given: header=(…)")
        while True:
            start = self._some(at, LONGEST)
            line, ended, _ = start.partition(b"\n")
            at += len(line) + len(ended)
            self._first_line += 1
            comment = self.form.comment.encode()
            if not ended or (line.strip() and not (comment and line.startswith(comment))):
                break
        self._skipped = at
        try:
            names = self._cells_of_header(line.decode(self.form.encoding).rstrip("\r"))
        except UnicodeDecodeError as error:
            raise ListError(f"{redact(self.name)} is not {self.form.encoding}: name its encoding=") from error
        if not line.strip():
            raise ListError(f"{redact(self.name)} is empty: it has no header")
        return tuple(name.strip() for name in names)

    def _cells_of_header(self, text: str) -> list[str]:
        return self._csv(text) if self.form.quoted else text.split(self.form.separator or None)

    def _scan(self) -> None:
        """Note the place of every sixteenth row, and hash the whole file."""
        offsets, numbers = list[_Places](), list[_Places]()
        self._count, self._end, line = 0, self._skipped, self._first_line
        hashed = blake2b(repr(self.columns).encode(), digest_size=16)
        for offset, chunk in self._chunks():
            hashed.update(chunk)
            if b"\0" in chunk:
                raise ListError(f"{redact(self.name)} is no text table (a NUL in it): name its encoding, or its format")
            starts, ends = _row_bounds(chunk, self.form.quoted, self._separator)
            rows = np.flatnonzero(self._are_rows(chunk, starts, ends))
            first = rows[-self._count % STEP :: STEP]
            offsets.append(offset + starts[first])
            numbers.append(line + first)
            self._count += len(rows)
            self._end = offset + len(chunk)
            line += len(starts)
        self._offsets = np.concatenate(offsets or [np.zeros(0, np.int64)])
        self._numbers = np.concatenate(numbers or [np.zeros(0, np.int64)]).astype(np.uint32)
        self.hash = hashed.digest()

    def _are_rows(self, chunk: bytes, starts: _Places, ends: _Places) -> npt.NDArray[np.bool_]:
        codes = np.frombuffer(chunk, np.uint8)
        comment = self.form.comment.encode()
        first = codes[starts]
        are: npt.NDArray[np.bool_] = first > 32
        if comment:
            are &= first != comment[0]
        for number in np.flatnonzero(~are & (first != 10)):
            line = chunk[starts[number] : ends[number]]
            are[number] = bool(line.strip()) and not (comment and line.startswith(comment))
        return are

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rows in pieces of whole ones, each with its offset."""
        at, size = self._skipped, CHUNK
        while chunk := self._some(at, size):
            last = len(chunk) < size
            cut = len(chunk) if last else chunk.rfind(b"\n") + 1
            if not last and self.form.quoted:
                cut = _before_open_quote(chunk[:cut], self._separator)
            if not cut:
                if size > LONGEST:
                    raise ListError(f"{redact(self.name)}: a row of more than {LONGEST} bytes begins at byte {at}")
                size = 2 * LONGEST
                continue
            yield at, chunk[:cut] if chunk[cut - 1 : cut] == b"\n" else chunk[:cut] + b"\n"
            at, size = at + cut, CHUNK


_Places = npt.NDArray[np.int64]


def _object(text: str) -> Row | DataError:
    try:
        found = parse_json(text)
    except ValueError as error:
        return DataError("bad_row", f"damaged JSON: {error}")
    if isinstance(found, dict):
        return found
    return DataError("bad_row", f"not a JSON object: {text[:80]!r}")


# Quotes


def _row_bounds(chunk: bytes, quoted: bool, separator: bytes) -> tuple[_Places, _Places]:
    """Return where the rows of ``chunk`` begin and end."""
    codes = np.frombuffer(chunk, np.uint8)
    ends = np.flatnonzero(codes == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    if not quoted:
        return starts, ends
    counts = np.add.reduceat(codes == 34, starts) if len(starts) else np.zeros(0)
    inner = np.zeros(len(ends), bool)  # ends that are within a quoted value
    at = -1
    for number in np.flatnonzero(counts % 2):
        if number > at:
            lines = [chunk[starts[i] : ends[i]] for i in range(number, min(number + _QUOTED_LINES, len(ends)))]
            at = number + _open_for(lines, separator)
            inner[number:at] = True
    keep = ~inner
    begins = np.concatenate(([True], keep[:-1]))
    return starts[begins], ends[keep]


def _open_for(lines: list[bytes], separator: bytes) -> int:
    """Return how many of ``lines`` after the first one belong to it; 0 if its quote is never closed."""
    text = b""
    for number, line in enumerate(lines):
        text += line
        if not _is_open(text, separator):
            return number
        text += b"\n"
    return 0


def _whole_lines(lines: list[bytes], separator: bytes) -> list[bytes]:
    """Join lines that a quoted value goes over."""
    out, at = list[bytes](), 0
    while at < len(lines):
        more = _open_for(lines[at : at + _QUOTED_LINES], separator) if lines[at].count(b'"') % 2 else 0
        out.append(b"\n".join(lines[at : at + more + 1]))
        at += more + 1
    return out


def _is_open(text: bytes, separator: bytes) -> bool:
    """Return whether a quoted value in ``text`` is not closed. Only a quote at the beginning of a value opens one."""
    at = 0
    while True:
        if text[at : at + 1] == b'"':
            at += 1
            while (close := text.find(b'"', at)) >= 0 and text[close + 1 : close + 2] == b'"':
                at = close + 2
            if close < 0:
                return True
            at = close + 1
        following = text.find(separator, at)
        if following < 0:
            return False
        at = following + len(separator)


def _before_open_quote(chunk: bytes, separator: bytes) -> int:
    """Return where to cut a chunk so that no row goes over its end."""
    lines = chunk.split(b"\n")[-_QUOTED_LINES - 1 : -1]
    at = len(chunk) - sum(len(line) + 1 for line in lines)
    for number, line in enumerate(lines):
        if line.count(b'"') % 2 and at and _is_open(b"\n".join(lines[number:]), separator):
            closed = _open_for(lines[number:], separator)
            if not closed:
                return at
        at += len(line) + 1
    return len(chunk)
