"""Opens the rows of tables of any format, chained and joined."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import redact
from uio_pipes.formats.expressions import Expression
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.naming import Asked, check_asked
from uio_pipes.formats.rows.content import WHAT, Content
from uio_pipes.formats.tables.description import TEXTS, Table
from uio_pipes.formats.tables.rows import ChainedRows, ConstantRows, JoinedRows, Rows, value_by
from uio_pipes.formats.tables.spool import Spooling, spooled
from uio_pipes.formats.tables.text import TextForm, TextRows
from uio_pipes.io.access import Access

Described = Table | str  # a table, or the lines of JSON of rows that were given in Python


def open_rows(tables: Sequence[Described], access: Access) -> Rows:
    """Return the rows of tables, one after the other. Raises: ListError, PipelineError."""
    return _chained([_table(table, access) for table in tables])


def _table(table: Described, access: Access) -> Rows:
    if isinstance(table, str):
        return TextRows([Content("the given rows", WHAT, table.encode())], TextForm(json=True))
    assert isinstance(table.paths, tuple)
    assert isinstance(table.join, tuple)
    within = () if table.within is None else tuple(expand(os.fspath(table.within), access))
    names = [name for path in map(os.fspath, table.paths) for name in ([path] if within else expand(path, access))]
    rows = _chained([_read(table, form, tuple(some), within, access) for form, some in groupby(names, table.format_of)])
    for other in table.join:
        rows = _joined(rows, _table(other, access), *other.sides())
    return ConstantRows(rows, dict(table.constants)) if table.constants else rows


def _joined(rows: Rows, other: Rows, by: Expression, to: Expression) -> Rows:
    """Return rows completed by those of another table. Raises: ListError if there is no such column, or no partner."""
    for one, side in ((rows, by), (other, to)):
        check_asked((r for r in one.scan() if not isinstance(r, DataError)), [Asked("on", side)], redact(one.file(0)))
    joined = JoinedRows(rows, other, by, to)
    if not any(joined.partners()):
        first = [next((value for row in one.scan() if (value := value_by(side, row))), None)
                 for one, side in ((rows, by), (other, to))]  # fmt: skip
        raise ListError(
            f"{redact(rows.file(0))}: no row has a match in {redact(other.file(0))}, as {by.text!r} is {first[0]!r} "
            f"and {to.text!r} there is {first[1]!r}: correct on=, or remove join="
        )
    return joined


def _read(table: Table, form: str, names: tuple[str, ...], within: tuple[str, ...], access: Access) -> Rows:
    text = table.text_form(form) if form in TEXTS else None
    if text is not None and table.expand is None and not within:
        return TextRows(names, text, access)
    path = tuple((table.expand or "").split(".")) if table.expand else ()
    return spooled(Spooling(form, names, within, path, table.encoding, text), access)


def _chained(parts: list[Rows]) -> Rows:
    return parts[0] if len(parts) == 1 else ChainedRows(parts)
