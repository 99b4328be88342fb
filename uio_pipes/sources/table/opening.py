"""Opening the rows of tables, whatever their format, chained and joined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby

from uio_pipes.base.urls import AnyPath
from uio_pipes.formats.lists.lines import Content
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tables.description import TEXTS, Table
from uio_pipes.formats.tables.rows import ChainedRows, JoinedRows, Rows
from uio_pipes.formats.tables.spool import Spooling, spooled
from uio_pipes.formats.tables.text import WHAT, TextForm, TextRows
from uio_pipes.io.access import Access

Described = Table | str  # a table, or the lines of JSON of rows that were given in Python


def open_rows(tables: Sequence[Described], access: Access) -> Rows:
    """Return the rows of tables, one after the other. Raises: ListError, PipelineError."""
    return _chained([_given(table) if isinstance(table, str) else _table(table, access) for table in tables])


def _given(lines: str) -> Rows:
    return TextRows([Content("the given rows", WHAT, lines.encode())], TextForm(json=True))


def _table(table: Table, access: Access) -> Rows:
    within = () if table.within is None else tuple(expand(os.fspath(table.within), access))
    names = [name for path in _paths(table.paths) for name in ([path] if within else expand(path, access))]
    rows = _chained([_read(table, form, tuple(some), within, access) for form, some in groupby(names, table.format_of)])
    for other in _tables(table.join):
        rows = JoinedRows(rows, _table(other, access), *other.sides())
    return rows


def _read(table: Table, form: str, names: tuple[str, ...], within: tuple[str, ...], access: Access) -> Rows:
    text = table.text_form(form) if form in TEXTS else None
    if text is not None and table.expand is None and not within:
        return TextRows(names, text, access)
    path = tuple((table.expand or "").split(".")) if table.expand else ()
    return spooled(Spooling(form, names, within, path, table.encoding, text), access)


def _chained(parts: list[Rows]) -> Rows:
    return parts[0] if len(parts) == 1 else ChainedRows(parts)


def _paths(given: AnyPath | Iterable[AnyPath]) -> tuple[str, ...]:
    assert isinstance(given, tuple)
    return given


def _tables(given: Table | Sequence[Table]) -> tuple[Table, ...]:
    assert isinstance(given, tuple)
    return given
