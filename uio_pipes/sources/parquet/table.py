"""The rows of Parquet files as one table of utterances for all lanes of a process, row groups in memory, and the order
of groups and rows."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.hashing import Permutation, mix64, picks
from uio_pipes.base.memory import Lru
from uio_pipes.base.urls import name_of
from uio_pipes.formats.expressions import TABLE
from uio_pipes.formats.lists.json_lines import check_segment
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.formats.lists.table import ItemTable, Parts
from uio_pipes.formats.naming import FieldNames, audio_of, check_rate, renamed
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.background import Job, submit
from uio_pipes.io.opening import is_local, open_file, reference
from uio_pipes.io.references import RandomFile, Ref
from uio_pipes.sources.parquet.columns import (
    LAZY,
    PAYLOADS,
    USUAL,
    ParquetColumn,
    by_kind,
    check_same,
    columns_of,
    within,
)
from uio_pipes.sources.parquet.files import ParquetFile
from uio_pipes.sources.parquet.footers import open_files

LIGHT = ""  # the small columns, which are read together


class RowGroup:
    """Row group ``number`` of a file. Its small columns are read together, each large one when it is touched.

    What has been read stays as long as the group does. It is Arrow's memory: no row is an object of Python's.
    ``made``: fields that are expressions over columns.
    """

    def __init__(self, file: ParquetFile, number: int, columns: list[ParquetColumn], made: FieldNames = ()) -> None:
        self.file, self.number, self.made = file, number, made
        self.first = sum(file.rows[:number])
        self.columns = columns
        self._jobs: dict[str, Job[tuple[Any, str]]] = {}
        self._arrays: dict[str, Any] = {}

    def begin(self, *columns: str) -> None:
        """Start reading in the background: columns by their name, the small ones by ``LIGHT``."""
        for name in columns:
            if name not in self._jobs:
                self._jobs[name] = submit(self._reading(name))

    def _reading(self, name: str) -> Callable[[object], tuple[Any, str]]:
        file, number = self.file, self.number  # without the group itself, which would never be freed
        reads = [r for c in self.columns for r in c.reads if (c.name if c.heavy else LIGHT) == name]
        return lambda _: file.read(number, reads)

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.file.url

    def place(self, row: int) -> str:
        """Return the place of a row for messages."""
        return f"{self.file.name}, row group {self.number}, row {row}"

    def value(self, column: ParquetColumn, row: int) -> Any:
        """Return the value as an Arrow scalar. Raises: DataError ``bad_page``, or as the file."""
        array = self._arrays.get(column.name)
        if array is None or row >= len(array):
            array = self._read(column, row)
        return array[row]

    def _read(self, column: ParquetColumn, row: int) -> Any:
        """Return the column, which has the row. Raises: DataError as :meth:`value`."""
        name = column.name if column.heavy else LIGHT
        self.begin(name)
        try:
            table, wrong = self._jobs[name].result()
        except DataError as error:
            raise error.at(self.place(row)) from error
        if row >= table.num_rows:
            message = f"the column {column.name} cannot be read there ({wrong}): fetch the file again"
            raise DataError("bad_page", message, url=self.place(row))
        found = table.column(column.name)
        self._arrays[column.name] = found = found.chunk(0) if found.num_chunks == 1 else found
        return found

    def fields(self, row: int) -> dict[str, Any]:
        """Return the fields of a row; columns of bytes and files as references. What is null is left out, but audio and
        features, which are references that raise their error when they are touched.

        Raises: DataError.
        """
        fields: dict[str, Any] = {}
        for column in self.columns:
            if column.kind == "files":
                several = self.value(column, row)
                count = len(several) if several.is_valid else 0
                fields[column.field] = [Cell(self, column, row, at) for at in range(count)]
                continue
            value = None if column.kind in LAZY else self._plain(column, row)
            if value is not None:
                fields |= audio_of(value) if column.kind == "decoded" else {column.field: value}
            elif column.kind in LAZY or column.field in PAYLOADS:
                fields[column.field] = Cell(self, column, row)
        if not self.made:
            return fields
        values = {TABLE: self.file.url}
        values |= {column.name: fields[column.field] for column in self.columns if column.field in fields}
        return {name: v for name, v in fields.items() if name not in dict(self.made)} | renamed({}, self.made, values)

    def _plain(self, column: ParquetColumn, row: int) -> Any:
        scalar = self.value(column, row)
        try:
            if not scalar.is_valid:
                return None
            if column.kind == "list":
                return _array(scalar)
            if column.kind == "decoded":
                array = scalar["array"]
                rate = scalar["sampling_rate"].as_py()
                return {"array": _array(array), "sampling_rate": rate} if array.is_valid else None
            return scalar.as_py()
        except (ValueError, OverflowError) as error:  # text that is not UTF-8, a date that Python does not know
            message = f"the column {column.name} cannot be used: {error}"
            raise DataError("bad_value", message, url=self.place(row)) from error


class Cell(Ref):
    """A reference to the bytes in one row of a column, or, where it has a path instead, to that file."""

    __slots__ = ("_at", "_column", "_group", "_row")

    def __init__(self, group: RowGroup, column: ParquetColumn, row: int, at: int | None = None) -> None:
        self.file, self.offset = group, 0  # type: ignore[assignment]  # of which only the path is asked for
        self.head, self.info, self.crc = b"", None, None
        self._group, self._column, self._row, self._at = group, column, row, at

    @property
    def size(self) -> int:  # type: ignore[override]
        found = self._found()
        return len(found) if isinstance(found, memoryview) else self._open(found).size

    def read(self) -> bytes:
        return self.read_at(0, self.size)

    def read_at(self, start: int, size: int) -> bytes:
        found = self._found()
        if isinstance(found, memoryview):
            return bytes(found[start : start + max(0, size)])
        return self._open(found).read_upto(start, max(0, size))

    def taken(self) -> bytes | str | Ref:
        """Return the bytes, a copy that does not keep the row group in memory, or the path. Raises: DataError."""
        found = self._found()
        if isinstance(found, memoryview):
            return bytes(found)
        return reference(found, self._group.file.access)

    def _open(self, path: str) -> RandomFile:
        return open_file(path, self._group.file.access)

    def _found(self) -> memoryview | str:
        """Return the bytes where Arrow has them, or the path. Raises: DataError."""
        scalar = self._group.value(self._column, self._row)
        path = None
        if self._at is not None:
            scalar = scalar[self._at]
        if self._column.kind in ("file", "files") and scalar.is_valid:
            path = scalar["path"].as_py() if "path" in scalar else None
            scalar = scalar.get("bytes")
        if self._column.kind in (*LAZY, "files") and scalar is not None and scalar.is_valid:
            return memoryview(scalar.as_buffer())
        if path:
            return str(path)
        if self._column.field in PAYLOADS or self._at is not None:
            message = f"the column {self._column.name} is null there: leave the row out"
            reason = "missing_features" if self._column.field == "feat" else "missing_audio"
            raise DataError(reason, message, url=self._group.place(self._row))
        return memoryview(b"")


def _array(scalar: Any) -> npt.NDArray[Any]:
    """Return a list of numbers, or of lists of numbers, as an array. Raises: ValueError if some are null."""
    values = scalar.values
    if values.null_count:
        raise ValueError(f"{values.null_count} of its {len(values)} values are null")
    if values.type.num_fields:
        return np.stack([_array(row) for row in values])
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


_KEPT = 32 << 20  # bytes of orders within row groups


class RowOrder:
    """The number of the row at each position of the epoch: ``order[p]``, ``len(order)``.

    Position ``p`` belongs to lane ``p % lanes``. The rows, row group by row group, are cut into one run for each lane,
    which differ by a row at most; only where two runs meet is a row group read by two lanes. ``rows``: of each row
    group; ``key``: the seed of an epoch that is shuffled, by row groups and within each, None for one that is not.
    ``drawn``: row groups are drawn with replacement until they have as many rows; of the last one, only some are read.
    """

    def __init__(self, rows: list[int], lanes: int, key: int | None, drawn: bool = False) -> None:
        self._rows, self._lanes, self._key, self._drawn = rows, lanes, key, drawn
        count, sizes = len(rows), np.asarray(rows, np.int64)
        self._firsts = np.concatenate([[0], np.cumsum(sizes)])
        self._groups = np.arange(count) if key is None else Permutation(count, key).all()
        if drawn and key is not None:
            enough, total = count, self._firsts[-1]
            while sizes[picks(key, enough, count)].sum() < total:
                enough *= 2
            self._groups = picks(key, enough, count)
            self._groups = self._groups[: np.searchsorted(np.cumsum(sizes[self._groups]), total) + 1]
        ends = np.minimum(np.cumsum(sizes[self._groups]), self._firsts[-1])
        self._begins: list[int] = [0, *ends.tolist()]
        self._within = Lru("orders within row groups", _KEPT)

    def __len__(self) -> int:
        return self._begins[-1]

    def __getitem__(self, position: int) -> int:
        place, _ = self._place(position)
        at = bisect_right(self._begins, place) - 1
        group, row = int(self._groups[at]), place - self._begins[at]
        return int(self._firsts[group]) + (row if self._key is None else self._permuted(group, at)[row])

    def draw(self, position: int) -> int:
        """Return which row group a position is in, by its place in the epoch."""
        return bisect_right(self._begins, self._place(position)[0]) - 1

    def following(self, position: int) -> int | None:
        """Return the row group that the lane of ``position`` enters next, if any."""
        place, end = self._place(position)
        after = bisect_right(self._begins, place)
        return int(self._groups[after]) if self._begins[after] < end else None

    def _place(self, position: int) -> tuple[int, int]:
        """Return the place of a position among the rows as they are ordered, and the end of its lane's run."""
        lane, number = position % self._lanes, position // self._lanes
        size, longer = divmod(len(self), self._lanes)
        begin = lane * size + min(lane, longer)
        return begin + number, begin + size + (lane < longer)

    def _permuted(self, group: int, at: int) -> Permutation:
        assert self._key is not None
        number = at if self._drawn else group
        key, rows = mix64(self._key ^ mix64(number + 1)), self._rows[group]
        made: Permutation = self._within.get(number, lambda: Permutation(rows, key), lambda _: 8 * rows)
        return made


SUFFIXES = (".parquet", ".parq", ".pq")


class _Names(Lines):
    of_folder: ClassVar[str] = "the files in it by a glob ({}/*.parquet)"

    def no_text(self, line: int) -> ListError:
        return ListError(f"{self.name} is not UTF-8 text (line {line}); the name of a Parquet file ends in .parquet")

    def check(self, piece: bytes, line: int) -> None:
        super().check(piece, line)
        if re.search(rb'^\s*\{"', piece, re.MULTILINE):
            remedy = "read it by from_raw_list (audio) or from_jsonl (texts)"
            raise ListError(f"{self.name} has JSON lines, not names of Parquet files: {remedy}")


class _Files(ItemTable):
    direct: ClassVar[tuple[str, ...]] = SUFFIXES
    form: ClassVar[type[Lines]] = _Names


def columns_here(
    entries: tuple[str, ...], access: Access, names: Mapping[str, str], wanted: tuple[str, ...] | None
) -> list[ParquetColumn]:
    """Return the columns to read of the first file, if the files are on this machine.

    Raises: ListError if it has no such columns.
    """
    first = _first_here(entries, access)
    return [] if first is None else columns_of(first.form.schema, first.name, names, wanted)


def columns_within(path: str) -> list[Mapping[str, Any]]:
    """Return a row of all columns of the first file, those that need no other name under ours; none of features, nor of
    files that are not on this machine."""
    first = _first_here((path,), PLAIN)
    there = {} if first is None else within(first.form.schema)
    usual = {theirs: ours for ours, theirs in USUAL.items()}
    known = {usual.get(name, name): own for name, own in there.items()}
    return [{"key": None, **known}] if known and "feat" not in known else []


def _first_here(entries: tuple[str, ...], access: Access) -> ParquetFile | None:
    """Return the first of the files, if they are on this machine; None, too, if it cannot be read: the run says so."""
    if not all(map(is_local, entries)):
        return None
    try:
        return ParquetFile(_Files(entries, access)[0], access)
    except (DataError, ListError, IndexError):
        return None


class ParquetTable(Parts):
    """All rows of the given files, in their order, with the row groups as its parts; only footers have been read.

    ``names``: our names of fields, with those of their columns; ``wanted``: other columns, None for all.

    Raises: ListError naming the file.
    """

    weights = None

    def __init__(
        self, entries: tuple[str, ...], access: Access, names: Mapping[str, str], wanted: tuple[str, ...] | None
    ) -> None:
        listed = _Files(entries, access)
        self.files = open_files(list(listed), access)
        first = self.files[0]
        schema = first.form.schema
        self._columns = columns_of(schema, first.name, names, wanted)
        for file in self.files:
            if file.form.schema is not schema:
                check_same(self._columns, columns_of(file.form.schema, file.name, names, wanted), file.name, first.name)
        self._made = tuple(by_kind(names, schema.names)[1].items())
        self._groups = [(at, i) for at, file in enumerate(self.files) for i in range(len(file.rows))]
        self.rows = [self.files[at].rows[i] for at, i in self._groups]
        super().__init__(self.rows)
        if not len(self):
            raise ListError(f"nothing in {', '.join(entries[:3])}: the files have no rows")
        self.digest = blake2b(b"".join(file.digest for file in self.files), digest_size=16).hexdigest()
        self._used: WeakValueDictionary[int, RowGroup] = WeakValueDictionary()
        self._last: RowGroup | None = None

    def group(self, at: int) -> RowGroup:
        """Return a row group, the same object as long as it is in use."""
        group = self._used.get(at)
        if group is None:
            file, number = self._groups[at]
            group = self._used[at] = RowGroup(self.files[file], number, self._columns, self._made)
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
        """Return the fields of a row, without reading large columns. Raises: DataError."""
        at, row = self.locate(number)
        self._last = group = self.group(at)
        return fields_in(group, row)


def fields_in(group: RowGroup, row: int) -> dict[str, Any]:
    """Return the fields of a row of a row group, without reading large columns. Raises: DataError."""
    fields = group.fields(row)
    for name in ("key", "txt"):
        if isinstance(fields.get(name), (int, float)):
            fields[name] = str(fields[name])
    if not fields.get("key"):
        fields["key"] = f"{os.path.splitext(name_of(group.file.name))[0]}-{group.first + row:06d}"
    needed = dict(group.made).get("txt") or next((c.name for c in group.columns if c.needed), "")
    if needed and "txt" not in fields:
        message = f"the column {needed}, which is asked for as the text, is null there"
        raise DataError("missing_text", message, url=group.place(row), member=fields["key"])
    wav = fields.get("wav")
    if isinstance(wav, str):
        fields["wav"] = reference(wav, group.file.access)
    elif isinstance(wav, np.ndarray):
        check_rate(fields, group.place(row))
    if "start" in fields or "end" in fields:
        check_segment(fields, group.place(row), fields["key"])
    return fields
