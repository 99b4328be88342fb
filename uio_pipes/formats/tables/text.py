"""Text tables, one row a line: TSV, CSV, JSON lines, transcripts of ``KEY words …``. Of ten million rows only the
place of every fourth is kept."""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import redact
from uio_pipes.formats.lists.lines import (
    CHUNK,
    LONGEST,
    STEP,
    Content,
    Version,
    kept,
    opened,
    unclear_end,
    version_of,
)
from uio_pipes.formats.lists.table import Parts
from uio_pipes.formats.tables.cutting import Cutter, RowBounds
from uio_pipes.formats.tables.rows import Row
from uio_pipes.io.access import Access

IN_MEMORY = 1 << 22  # bytes: longer tables stay on disk
_HEAD = 1 << 16  # bytes in which a line ends
_UTF_8 = ("utf-8", "utf-8-sig", "ascii")
_UTF_8_MARK = codecs.BOM_UTF8
WHAT = "the table"  # for messages
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextForm(NamedTuple):
    """How the lines of a table are read.

    Attributes:
        separator: text between values; None for any number of blanks and tabs, "" if a line is one value.
        header: True if the first line of a file has the names of the columns, False if they are numbers, or the names.
            The last one of given names has the rest of the line if values are separated by None.
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
        return self.separator is None and isinstance(self.header, tuple)

    def cells(self, text: str, count: int) -> list[str]:
        """Return the values of a line of ``count`` columns; 0 for any number of them. Raises: csv.Error."""
        if (self.quoted and '"' in text) or (self.escape and self.escape in text):
            quoting = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
            options: Any = {"delimiter": self.separator or ",", "quoting": quoting, "escapechar": self.escape or None}
            lines = iter([text, ""])  # what a reader takes of it goes over the end of the row
            found = next(csv.reader(lines, **options))
            if next(lines, None) is None:
                raise csv.Error("a quote is not closed")
            return found
        if self.separator == "":
            return [text.strip()]
        if self.takes_rest and count:
            cells = text.split(None, count - 1)
            cells[-1] = cells[-1].rstrip()
            return [*cells, *[""] * (count - len(cells))]
        return text.split(self.separator)


class TextRows(Parts):
    """The rows of text tables, one after the other; see :class:`~uio_pipes.formats.tables.rows.Rows`.

    ``files``: paths, URLs, or what has been opened already.

    Raises: ListError if a table is missing, is no text, has no header, or has no rows; or a row has more than 4 MiB.
    """

    def __init__(self, files: Sequence[str | Content], form: TextForm, access: Access | None = None) -> None:
        self.form = form
        self._parts = [_part(each, form, access) for each in files]
        super().__init__(map(len, self._parts))
        self.files = [part.name for part in self._parts]
        self.notes = [note for part in self._parts for note in part.notes]
        if not len(self):
            raise ListError(f"there are no rows in {', '.join(map(redact, self.files[:3])) or 'no table'}")
        hashed = blake2b(repr(form).encode(), digest_size=16)
        for part in self._parts:
            hashed.update(part.hash)
        self.digest = hashed.hexdigest()

    def row(self, number: int) -> Row:
        part, within = self._find(number)
        found = part.parse(_block(part, within // STEP)[within % STEP][1])
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
            yield from map(part.parse, part.lines())

    def _find(self, number: int) -> tuple[_Part, int]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        at, within = self.locate(number)
        return self._parts[at], within


@lru_cache(maxsize=256)
def _block(part: _Part, number: int) -> list[tuple[int, bytes]]:
    return part.block(number)


def _part(file: str | Content, form: TextForm, access: Access | None) -> _Part:
    """Return the rows of one file; a local one that has not changed is scanned once, before there are workers."""
    version = version_of(file) if isinstance(file, str) else None
    return _Part(file, form, access) if version is None else _known(file, form, version)


@lru_cache(maxsize=64)
def _known(name: str | Content, form: TextForm, version: Version) -> _Part:
    return _Part(name, form, None)


class _Part:
    """The rows of one file, in blocks."""

    def __init__(self, file: str | Content, form: TextForm, access: Access | None) -> None:
        self.form = form
        self._cutter = Cutter(form.separator or ",", form.quoted and not form.json, form.escape, form.comment)
        self._content = opened(file, WHAT, IN_MEMORY, access) if isinstance(file, str) else file
        self.name = self._content.name
        self._to_utf_8()
        self._skipped, self._first_line = len(_UTF_8_MARK) * (self._content.read(0, 3) == _UTF_8_MARK), 1
        self.columns = () if form.json else self._header()
        self.parse: Callable[[bytes], Row | DataError] = self._parser()
        self._scan()

    def __len__(self) -> int:
        return self._count

    def place(self, number: int) -> str:
        """Return the line of a row, for messages."""
        block, within = divmod(number, STEP)
        line = int(self._numbers[block]) + _block(self, block)[within][0]
        return f"{redact(self.name)}, line {line}"

    def block(self, number: int) -> list[tuple[int, bytes]]:
        """Return the rows of a block as they are written, each with its line, counted from that of the first one."""
        begin = int(self._offsets[number])
        end = int(self._offsets[number + 1]) if number + 1 < len(self._offsets) else self._end
        return self._cutter.rows(self._content.read(begin, end - begin))

    def lines(self) -> Iterator[bytes]:
        """Yield all rows as they are written."""
        for _, chunk, found in self._chunks():
            for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True):
                yield chunk[start:end]

    # Values

    def _parser(self) -> Callable[[bytes], Row | DataError]:
        """Return what makes a row of a line."""
        form, columns, count = self.form, self.columns, len(self.columns)
        cells_of = _object if form.json else form.cells

        def parse(line: bytes) -> Row | DataError:
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                return DataError(
                    "bad_text", f"it is not {form.encoding} ({error.reason} at byte {error.start}): {_OTHER}"
                )
            if self._has_nuls and "\0" in text:
                return DataError("bad_row", f"it holds a NUL character: {text[:80]!r}; correct it, or fetch it again")
            if text.endswith("\r"):
                text = text[:-1]
            try:
                cells: Any = cells_of(text, count)
            except (csv.Error, ValueError) as error:
                return DataError("bad_row", f"{error}: {text[:80]!r}")
            if form.json:
                return cells  # type: ignore[no-any-return]
            if len(cells) == count:
                return dict(zip(columns, cells, strict=True))
            why = f"it has {len(cells)} values, and there are {count} columns ({', '.join(columns)})"
            return DataError("bad_row", f"{why}: {text[:80]!r}; correct the row, or say how the table is written")

        return parse

    def _header(self) -> tuple[str, ...]:
        """Return the names of the columns; rows begin after them. Raises: ListError."""
        if isinstance(self.form.header, tuple):
            return self.form.header
        rows = self._cutter.rows(self._content.read(self._skipped, LONGEST))
        at, line = rows[0] if rows else (0, b"")
        try:
            names = self.form.cells(line.decode().removesuffix("\r"), 0)
        except (UnicodeDecodeError, csv.Error) as error:
            remedy = "say how the table is written, by encoding=, quoted=, …"
            raise ListError(f"{redact(self.name)}: its first row cannot be read ({error}): {remedy}") from error
        if not line:
            raise ListError(f"{redact(self.name)} is empty: it has no header")
        if not self.form.header:
            return tuple(str(number + 1) for number in range(len(names)))
        after = self._content.read(self._skipped, LONGEST).split(b"\n")[: at + line.count(b"\n") + 1]
        self._skipped += sum(len(each) + 1 for each in after)
        self._first_line += len(after)
        return self._distinct(tuple(name.strip() for name in names))

    def _distinct(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Raises: ListError if two columns have one name: which of them is meant, nobody could say."""
        if twice := next((name for name, often in Counter(names).items() if name and often > 1), ""):
            remedy = "correct it, or name the columns: uio.Table(…, header=(…)) with comment= for this line"
            raise ListError(f"{redact(self.name)}: its header has the column {twice!r} twice; {remedy}")
        return names

    # Reading

    def _to_utf_8(self) -> None:
        """Write the table in UTF-8, with LF at line ends, if it is in another encoding, or has only CR there as on old
        Macs. Raises: ListError."""
        encoding, head = codecs.lookup(self.form.encoding).name, self._content.read(0, _HEAD)
        only_cr = b"\r" in head and b"\n" not in head
        if head[:2] in _WIDE:
            encoding = "utf-16"
        if encoding in _UTF_8 and not only_cr:
            return
        decoder = codecs.getincrementaldecoder(encoding)("replace" if encoding[:6] in ("utf-16", "utf-32") else _KEPT)
        written = (decoder.decode(piece, final=not piece).encode("utf-8", _KEPT) for piece in self._pieces())
        pieces = (piece.replace(b"\r", b"\n") if only_cr else piece for piece in written)
        self._content = Content(self.name, WHAT, kept(pieces, IN_MEMORY))

    def _pieces(self) -> Iterator[bytes]:
        at = 0
        while piece := self._content.read(at, CHUNK):
            yield piece
            at += len(piece)
        yield b""

    def _scan(self) -> None:
        """Note the place of the first row of each block, and hash the whole file."""
        offsets, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self._count, self._end, line, with_nul = 0, self._skipped, self._first_line, 0
        hashed = blake2b(repr(self.columns).encode(), digest_size=16)
        for offset, chunk, found in self._chunks():
            hashed.update(memoryview(chunk)[: found.size])
            if b"\0" in chunk:
                nuls = np.flatnonzero(np.frombuffer(chunk, np.uint8, found.size) == 0)
                with_nul += len(np.unique(np.searchsorted(found.starts, nuls, "right")))
            first = slice(-self._count % STEP, None, STEP)
            offsets.append(offset + found.starts[first])
            numbers.append(line + found.numbers[first])
            self._count += len(found.starts)
            self._end = offset + found.size
            line += found.lines
        if 2 * with_nul > self._count:
            what = f"{with_nul} of its {self._count} rows have NULs"
            raise ListError(f"{redact(self.name)} is not a text table ({what}): name its encoding, or its format")
        self._has_nuls = with_nul > 0
        self._offsets = np.concatenate(offsets)
        self._numbers = np.concatenate(numbers).astype(np.uint32)
        torn = line > 2 and not self._content.read(self._end - 1, 1)  # the line end that _chunks adds is not there
        self.notes = [unclear_end(self.name)] if torn and not self.form.json else []
        self.hash = hashed.digest()

    def _chunks(self) -> Iterator[tuple[int, bytes, RowBounds]]:
        """Yield the table in pieces, each with its offset and the whole rows in it. Raises: ListError."""
        at, size = self._skipped, CHUNK
        while chunk := self._content.read(at, size):
            last = len(chunk) < size
            if last and not chunk.endswith(b"\n"):
                chunk += b"\n"
            cut = chunk.rfind(b"\n") + 1
            found = self._cutter.bounds(chunk[:cut], last) if cut else None
            if found is None or not found.size:
                if size > LONGEST:
                    raise ListError(f"{redact(self.name)}: a row of more than {LONGEST} bytes begins at byte {at}")
                size = 2 * LONGEST
                continue
            yield at, chunk, found
            at, size = at + found.size, CHUNK


_OTHER = 'name the encoding, as in uio.Table(…, encoding="cp949"), or correct the row'
_KEPT = "surrogateescape"  # bytes that are no text stay what they are: they cost their row


def _object(text: str, count: int) -> Row:
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
