"""The rows of Parquet files as one table of utterances: all lanes of a process share it."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import accumulate
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import name_of
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.formats.lists.table import Table, check_segment
from uio_pipes.formats.naming import check_rate
from uio_pipes.io.access import Access
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.sources.parquet.columns import ParquetFile, check_same, columns_of
from uio_pipes.sources.parquet.group import RowGroup

SUFFIXES = (".parquet", ".parq", ".pq")
_OPENING = 16  # footers read at a time


class _Names(Lines):
    of_folder: ClassVar[str] = "the files in it by a glob ({}/*.parquet)"

    def _no_text(self, line: int) -> ListError:
        return ListError(f"{self.name} is not UTF-8 text (line {line}); the name of a Parquet file ends in .parquet")


class _Files(Table):
    direct: ClassVar[tuple[str, ...]] = SUFFIXES
    form: ClassVar[type[Lines]] = _Names


class ParquetTable:
    """All rows of the given files, in their order; only footers have been read.

    ``names``: our names of fields, with those of their columns; ``wanted``: other columns, None for all.

    Raises: ListError naming the file.
    """

    weights = None

    def __init__(
        self, entries: tuple[str, ...], access: Access, names: Mapping[str, str], wanted: tuple[str, ...] | None
    ) -> None:
        listed = _Files(entries, access)
        with ThreadPoolExecutor(_OPENING) as pool:
            self.files = list(pool.map(lambda i: ParquetFile(listed[i], access), range(len(listed))))
        columns = [columns_of(file.schema, file.name, names, wanted) for file in self.files]
        for file, own in zip(self.files, columns, strict=True):
            check_same(columns[0], own, file.name, self.files[0].name)
        self._columns = columns[0]
        self._groups = [(at, i) for at, file in enumerate(self.files) for i in range(len(file.rows))]
        self.rows = [self.files[at].rows[i] for at, i in self._groups]
        self._firsts: list[int] = [0, *accumulate(self.rows)]
        if not len(self):
            raise ListError(f"nothing in {', '.join(entries[:3])}: the files have no rows")
        self.digest = blake2b(b"".join(file.digest for file in self.files), digest_size=16).hexdigest()
        self._used: WeakValueDictionary[int, RowGroup] = WeakValueDictionary()
        self._last: RowGroup | None = None

    def __len__(self) -> int:
        return self._firsts[-1]

    def locate(self, number: int) -> tuple[int, int]:
        """Return the row group (of all files) that holds row ``number`` of all, and the row in it."""
        at = bisect_right(self._firsts, number) - 1
        return at, number - self._firsts[at]

    def group(self, at: int) -> RowGroup:
        """Return a row group, the same object as long as somebody holds it."""
        group = self._used.get(at)
        if group is None:
            file, number = self._groups[at]
            group = self._used[at] = RowGroup(self.files[file], number, self._columns)
        return group

    def place(self, number: int) -> str:
        at, row = self.locate(number)
        file, group = self._groups[at]
        return f"{self.files[file].name}, row group {group}, row {row}"

    def key(self, number: int) -> str:
        try:
            return str(self.fields(number)["key"])
        except DataError as error:
            return error.member or self.place(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of a row, no large column read. Raises: DataError."""
        at, row = self.locate(number)
        self._last = group = self.group(at)
        return fields_in(group, row)


def fields_in(group: RowGroup, row: int) -> dict[str, Any]:
    """Return the fields of a row of a row group, no large column read. Raises: DataError."""
    fields = group.fields(row)
    for name in ("key", "txt"):
        if isinstance(fields.get(name), (int, float)):
            fields[name] = str(fields[name])
    if not fields.get("key"):
        fields["key"] = f"{_stem(group.file.name)}-{group.first + row:06d}"
    if "txt" not in fields and (asked := next((c.name for c in group.columns if c.needed), "")):
        message = f"the column {asked}, which is asked for as the text, is null there"
        raise DataError("missing_text", message, url=group.place(row), member=fields["key"])
    wav = fields.get("wav")
    if isinstance(wav, str) and is_local(wav) is None:
        fields["wav"] = Whole(open_file(wav, group.file.access))
    elif isinstance(wav, np.ndarray):
        check_rate(fields, group.place(row))
    if "start" in fields or "end" in fields:
        check_segment(fields, group.place(row), fields["key"])
    return fields


def _stem(name: str) -> str:
    return os.path.splitext(name_of(name))[0]
