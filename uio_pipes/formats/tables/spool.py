"""Rows that are no lines of a file by themselves: JSON, Parquet, annotations, tables in archives, nested rows. They
are written once as lines of JSON, to a temporary file without a name or to the cache, and are then text tables."""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.memory import Lru, bytes_in
from uio_pipes.base.urls import redact
from uio_pipes.formats.lists.table import Parts
from uio_pipes.formats.rows.content import CHUNK, WHAT, Content, kept, unclear_end
from uio_pipes.formats.rows.numbered import LONGEST
from uio_pipes.formats.tables.annotations import ANNOTATIONS, nxt_beside, nxt_rows
from uio_pipes.formats.tables.files import TableFile, files_in, files_of
from uio_pipes.formats.tables.rows import Row, Rows, expanded, rows_of_json
from uio_pipes.formats.tables.text import TextForm, TextRows
from uio_pipes.io.access import Access
from uio_pipes.io.files import atomic_path, locked, read_bytes, write_bytes
from uio_pipes.io.local import Positioned
from uio_pipes.io.opening import is_local, open_file, version

logger = logging.getLogger("uio_pipes")
_ERROR = "\0error"  # the field of a row that stands for an error: its reason and message
_VERSION = 3  # of what is in the cache
_HELD = 8  # tables that a process keeps open, for itself and the processes that it forks


class Spooling(NamedTuple):
    """Describes rows that are to be written as lines of JSON.

    Attributes:
        format: of the files: "json", "parquet", "stm", "textgrid", "nxt", "whole" (a file is a row), or text.
        names: paths or URLs of files, or with ``within`` patterns of members.
        within: archives that the files are in.
        expand: names that lead to the lists whose items are the rows.
        encoding: of the text.
        text: how lines are read, if the format is one of lines.
    """

    format: str
    names: tuple[str, ...]
    within: tuple[str, ...] = ()
    expand: tuple[str, ...] = ()
    encoding: str = "utf-8"
    text: TextForm | None = None


def spooled(what: Spooling, access: Access) -> Rows:
    """Return the rows, written as lines of JSON unless this process or the cache has them. Raises: ListError."""
    files = [(name, _identity(name, access)) for name in what.within or what.names]
    key = blake2b(repr((_VERSION, what, files)).encode(), digest_size=16).hexdigest()
    return _held.get(key, lambda: _in_cache(what, access, key) or _in_temporary_file(what, access), bytes_in)


_held = Lru("rows of other forms", most=_HELD)


class SpooledRows(Parts):
    """Rows of ``lines``. ``counts``: of each file the name and the number of its rows. ``unclear``: the files whose
    ends are unclear."""

    def __init__(self, lines: TextRows, counts: Sequence[tuple[str, int]], unclear: Sequence[str]) -> None:
        super().__init__(count for _, count in counts)
        self._lines, self.files, self.digest = lines, [name for name, _ in counts], lines.digest
        self.notes = list(map(unclear_end, unclear))

    def row(self, number: int) -> Row:
        found = _read(self._lines.row(number))
        if isinstance(found, DataError):
            raise found.at(self.place(number))
        return found

    def place(self, number: int) -> str:
        at, within = self.locate(number)
        return f"{redact(self.files[at])}, row {within + 1}"

    def file(self, number: int) -> str:
        return self.files[self.locate(number)[0]]

    def scan(self) -> Iterator[Row | DataError]:
        return (row if isinstance(row, DataError) else _read(row) for row in self._lines.scan())


def _read(row: Row) -> Row | DataError:
    return DataError(*row[_ERROR]) if _ERROR in row else row


# Where lines go


def _identity(name: str, access: Access) -> Any:
    try:
        path = is_local(name)
        return path and os.path.abspath(path), version(name, access)
    except DataError as error:
        raise ListError(f"cannot read the table {redact(name)}: {error.message}") from error


def _is_there(name: str, access: Access) -> bool:
    try:
        return bool(_identity(name, access))
    except ListError:
        return False


def _in_temporary_file(what: Spooling, access: Access) -> Rows:
    with tempfile.TemporaryFile(buffering=0) as file:
        found = _write(what, access, file)
        copy = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)
    return SpooledRows(TextRows([Content(_name(what), WHAT, b"", copy)], TextForm(json=True)), *found)


def _in_cache(what: Spooling, access: Access, key: str) -> Rows | None:
    """Return the rows in ``uio-tables`` of the cache's folder, written by the first process that wants them; None
    without a cache, or if it cannot be written."""
    if access.cache is None:
        return None
    folder = Path(access.cache) / "uio-tables"
    lines, counts = folder / f"{key}.jsonl", folder / f"{key}.json"
    try:
        with locked(folder / f"{key}.lock"):
            if not counts.exists():
                with atomic_path(lines) as part, open(part, "wb", buffering=0) as file:
                    found = _write(what, access, file)
                    os.fsync(file.fileno())
                write_bytes(counts, json.dumps(found).encode())
        return SpooledRows(TextRows([str(lines)], TextForm(json=True)), *json.loads(read_bytes(counts)))
    except (OSError, ValueError) as error:
        logger.warning("the cache %s cannot be used for tables (%s): continuing without it", folder, error)
        return None


def _name(what: Spooling) -> str:
    return (what.within or what.names)[0]


def _write(what: Spooling, access: Access, file: Any) -> tuple[list[tuple[str, int]], list[str]]:
    """Write the rows, and return how many each file has, and which files' ends are unclear. Raises: ListError if there
    are no rows."""
    counts, unclear, buffer = list[tuple[str, int]](), list[str](), bytearray()
    for name, row in _rows(what, access):
        if isinstance(row, DataError) and row.reason == "unclear_end":
            unclear.append(name)
            continue
        if not counts or counts[-1][0] != name:
            counts.append((name, 0))
        counts[-1] = (name, counts[-1][1] + 1)
        buffer += _line(row)
        if len(buffer) > CHUNK:
            file.write(buffer)
            buffer.clear()
    file.write(buffer)
    if not counts:
        of = f": no row has a list {'.'.join(what.expand)}; correct expand=" if what.expand else ""
        raise ListError(f"there are no rows in {redact(_name(what))}{of}")
    return counts, unclear


def _line(row: Row | DataError) -> bytes:
    if isinstance(row, DataError):
        row = {_ERROR: [row.reason, row.message]}
    try:
        line = json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError as error:
        return _line(DataError("bad_text", f"a text in the row is not valid Unicode ({error.reason}): correct it"))
    if len(line) > LONGEST:
        return _line(
            DataError("bad_row", f"the row has {len(line):,} bytes, more than 4 MiB: if it is a list, set expand=")
        )
    return line


# Where rows come from

_NamedRow = tuple[str, Row | DataError]  # the file's name and a row


def _rows(what: Spooling, access: Access) -> Iterator[_NamedRow]:
    names = what.names
    if what.format == "nxt":
        beside = dict.fromkeys(other for name in names for other in nxt_beside(name))
        names = (*names, *(other for other in beside if what.within or _is_there(other, access)))
    files = files_in(what.within, names, access) if what.within else files_of(names, access)
    if what.format == "nxt":
        yield from nxt_rows(files)
        return
    for file in files:
        try:
            for row in _READERS.get(what.format, _text)(file, what, access):
                yield file.name, row
        except (ValueError, DataError) as error:
            message = error.message if isinstance(error, DataError) else str(error)
            yield file.name, DataError("bad_table", f"{message}: the rest of the file cannot be read; fetch it again")


Read = Callable[[TableFile, Spooling, Access], Iterable[Row | DataError]]


def _whole(file: TableFile, what: Spooling, access: Access) -> Iterator[Row]:
    yield {"path": file.name, "text": file.content.read().decode(what.encoding)}


def _parquet(file: TableFile, what: Spooling, access: Access) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ListError("tables in Parquet need pyarrow: pip install 'uio_pipes[parquet]'") from None
    if what.within:
        content: Any = io.BytesIO(file.content.read())
    else:
        opened = open_file(file.name, access)
        content = Positioned(opened.read_upto, opened.size)
    try:
        table = pq.ParquetFile(content)
        light = [f.name for f in table.schema_arrow if "binary" not in str(f.type)]
        for batch in table.iter_batches(columns=light, use_threads=False):
            yield from expanded(batch.to_pylist(), what.expand)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _text(file: TableFile, what: Spooling, access: Access) -> Iterator[Row | DataError]:
    assert what.text is not None
    data = kept(iter(lambda: file.content.read(CHUNK), b""))
    if isinstance(data, bytes) and not data.strip():
        return
    rows = TextRows([Content(file.name, WHAT, data)], what.text)
    for row in rows.scan():
        if isinstance(row, DataError):
            yield row
        else:
            yield from expanded([row], what.expand)
    yield from rows.notes


_READERS: dict[str, Read] = {
    "json": lambda file, what, access: rows_of_json(file.content, what.expand),
    "parquet": _parquet,
    **dict.fromkeys(ANNOTATIONS, lambda file, what, access: ANNOTATIONS[what.format](file, what.encoding)),
    "whole": _whole,
}
