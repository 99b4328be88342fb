"""Text tables, one row a line: TSV, CSV, JSON lines, transcripts of ``KEY words …``."""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import redact
from uio_pipes.formats.rows.content import CHUNK, WHAT, Content, kept, opened
from uio_pipes.formats.rows.cutting import Cutter, RowBounds
from uio_pipes.formats.rows.numbered import LONGEST, HashedRows
from uio_pipes.formats.tables.rows import ChainedRows, Row
from uio_pipes.io.access import Access

_HEAD = 1 << 16  # bytes in which a line ends
_UTF_8 = ("utf-8", "utf-8-sig", "ascii")
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


class TextRows(ChainedRows):
    """The rows of text tables, one after the other. ``files``: paths, URLs, or what has been opened already.

    Raises: ListError if a table is missing, is no text, has no header, or has no rows; or a row has more than 4 MiB.
    """

    def __init__(self, files: Sequence[str | Content], form: TextForm, access: Access | None = None) -> None:
        super().__init__([TextFile.known(each, access, form) for each in files])
        if not len(self):
            raise ListError(f"there are no rows in {', '.join(map(redact, self.files[:3])) or 'no table'}")


class TextFile(HashedRows):
    """The rows of one file; see :class:`~uio_pipes.formats.tables.rows.Rows`."""

    def __init__(self, file: str | Content, access: Access | None, form: TextForm) -> None:
        self.form, self._with_nul = form, 0
        self.cutter = Cutter(form.separator or ",", form.quoted and not form.json, form.escape, form.comment)
        super().__init__(in_utf_8(opened(file, WHAT, access) if isinstance(file, str) else file, form))
        if 2 * self._with_nul > len(self):
            what = f"{self._with_nul} of its {len(self)} rows have NULs"
            raise ListError(f"{redact(self.name)} is not a text table ({what}): name its encoding, or its format")
        self.files, self.digest = [self.name], self.hash.hexdigest()

    def row(self, number: int) -> Row:
        found = self.parse(self.raw(number))
        if isinstance(found, DataError):
            raise found.at(self.place(number))
        return found

    def file(self, number: int) -> str:
        return self.name

    def scan(self) -> Iterator[Row | DataError]:
        return map(self.parse, self.rows())

    @property
    def notes(self) -> list[DataError]:
        return [] if self.form.json else super().notes

    def prepare(self) -> None:
        """Read the names of the columns; rows begin after them."""
        self.columns = () if self.form.json else self._header()
        self.hash.update(repr((self.form, self.columns)).encode())
        self.parse = self._parser()

    def look(self, piece: bytes, found: RowBounds, line: int) -> None:
        super().look(piece, found, line)
        if b"\0" in piece:
            nuls = np.flatnonzero(np.frombuffer(piece, np.uint8) == 0)
            self._with_nul += len(np.unique(np.searchsorted(found.starts, nuls, "right")))

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
            if self._with_nul and "\0" in text:
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
            return DataError("bad_row", f"{why}: {text[:80]!r}; correct the row, or describe the table's format")

        return parse

    def _header(self) -> tuple[str, ...]:
        """Return the names of the columns; rows begin after them. Raises: ListError."""
        if isinstance(self.form.header, tuple):
            return self.form.header
        numbers, rows = self.cutter.rows(self.content.read(self._begin, LONGEST))
        at, line = (numbers[0], rows[0]) if rows else (0, b"")
        try:
            names = self.form.cells(line.decode().removesuffix("\r"), 0)
        except (UnicodeDecodeError, csv.Error) as error:
            remedy = "describe its format with encoding=, quoted=, …"
            raise ListError(f"{redact(self.name)}: its first row cannot be read ({error}): {remedy}") from error
        if not line:
            raise ListError(f"{redact(self.name)} is empty: it has no header")
        if not self.form.header:
            return tuple(str(number + 1) for number in range(len(names)))
        after = self.content.read(self._begin, LONGEST).split(b"\n")[: at + line.count(b"\n") + 1]
        self._begin += sum(len(each) + 1 for each in after)
        self._first_line += len(after)
        return self._distinct(tuple(name.strip() for name in names))

    def _distinct(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Raises: ListError if two columns have one name: which of them is meant, nobody could say."""
        if twice := next((name for name, often in Counter(names).items() if name and often > 1), ""):
            remedy = "correct it, or name the columns: uio.Table(…, header=(…)) with comment= for this line"
            raise ListError(f"{redact(self.name)}: its header has the column {twice!r} twice; {remedy}")
        return names


def in_utf_8(content: Content, form: TextForm) -> Content:
    """Return a table in UTF-8, with LF at line ends, if it is in another encoding, or has only CR there as on old Macs.
    Raises: ListError."""
    encoding, head = codecs.lookup(form.encoding).name, content.read(0, _HEAD)
    only_cr = b"\r" in head and b"\n" not in head
    if head[:2] in _WIDE:
        encoding = "utf-16"
    if encoding in _UTF_8 and not only_cr:
        return content
    decoder = codecs.getincrementaldecoder(encoding)("replace" if encoding[:6] in ("utf-16", "utf-32") else _KEPT)
    pieces = (decoder.decode(piece, final=not piece).encode("utf-8", _KEPT) for piece in _pieces(content))
    return Content(content.name, WHAT, kept(piece.replace(b"\r", b"\n") if only_cr else piece for piece in pieces))


def _pieces(content: Content) -> Iterator[bytes]:
    at = 0
    while piece := content.read(at, CHUNK):
        yield piece
        at += len(piece)
    yield b""


_OTHER = 'name the encoding, as in uio.Table(…, encoding="cp949"), or correct the row'
_KEPT = "surrogateescape"  # bytes that are no text stay what they are: they cost their row


def _object(text: str, count: int) -> Row:
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
