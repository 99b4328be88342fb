"""Rows of tables by number: joined tables, and nested rows, which are the items of lists in JSON objects with the
fields around them. Of a large JSON only one item of its outermost list is in memory."""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from types import ModuleType
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.expressions import Expression
from uio_pipes.formats.lists.table import Parts

Row = Mapping[str, Any]


class RowsByNumber(Protocol):
    """Rows by number. One that cannot be used is a row, too: it raises its error when it is asked for."""

    @property
    def digest(self) -> str:
        """A hash of all rows."""

    @property
    def notes(self) -> Sequence[DataError]:
        """Possible problems of these files that are not failures."""

    def __len__(self) -> int: ...
    def row(self, number: int) -> Row:
        """Return a row by its number. Raises: DataError ``bad_row`` or ``bad_text``."""

    def place(self, number: int) -> str:
        """Return where a row is, for messages: ``train.tsv, line 7``."""

    def file(self, number: int) -> str:
        """Return the file of a row, from which relative paths start."""


class Rows(RowsByNumber, Protocol):
    """The rows of a table, which can also be read one after the other."""

    @property
    def files(self) -> Sequence[str]:
        """The files that the rows come from."""

    def scan(self) -> Iterator[Row | DataError]:
        """Yield all rows in their order, faster than one by one."""


class ChainedRows(Parts):
    """The rows of several tables, one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        super().__init__(map(len, parts))
        self._parts = parts
        self.files = [file for part in parts for file in part.files]
        self.notes = [note for part in parts for note in part.notes]
        self.digest = "+".join(part.digest for part in parts)

    def row(self, number: int) -> Row:
        part, within = self._find(number)
        return part.row(within)

    def place(self, number: int) -> str:
        part, within = self._find(number)
        return part.place(within)

    def file(self, number: int) -> str:
        part, within = self._find(number)
        return part.file(within)

    def scan(self) -> Iterator[Row | DataError]:
        return chain.from_iterable(part.scan() for part in self._parts)

    def _find(self, number: int) -> tuple[Rows, int]:
        at, within = self.locate(number)
        return self._parts[at], within


class ConstantRows:
    """Rows with additional constant values."""

    def __init__(self, rows: Rows, constants: Row) -> None:
        self._rows, self._constants = rows, constants
        self.files, self.notes, self.place, self.file = rows.files, rows.notes, rows.place, rows.file
        self.digest = f"{rows.digest} {sorted(constants.items())}"

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Row:
        return {**self._rows.row(number), **self._constants}

    def scan(self) -> Iterator[Row | DataError]:
        return (row if isinstance(row, DataError) else {**row, **self._constants} for row in self._rows.scan())


def hashes_of(values: Iterable[str | bytes | None], count: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each of ``count`` values; of None the largest one."""
    return np.fromiter(((hash(v) & _ALL if v is not None else _ALL) for v in values), np.uint64, count)


class RowIndex:
    """The numbers of rows by a value of theirs: 8 bytes a row, of which the lower bits are the row's number and the
    others a hash of the value. So a number that is found must be compared with its row."""

    def __init__(self, values: Iterable[str | bytes | None] | npt.NDArray[np.uint64], count: int) -> None:
        """``values``: of all rows in their order, None for a row that is not to be found; or their hashes, which become
        the index. ``count``: how many."""
        self._mask = (1 << max(1, count.bit_length())) - 1
        hashes = values if isinstance(values, np.ndarray) else hashes_of(values, count)
        hashes &= ~np.uint64(self._mask)
        for begin in range(0, count, _PIECE):  # in pieces: nothing as large is made beside them
            piece = hashes[begin : begin + _PIECE]
            piece |= np.arange(begin, begin + len(piece), dtype=np.uint64)
        hashes.sort()
        self._packed = hashes.data  # of which bisect makes numbers faster than numpy finds one

    def __len__(self) -> int:
        return len(self._packed)

    def find(self, value: str | bytes) -> list[int]:
        """Return the numbers of the rows that may have this value, in their order."""
        first, found = hash(value) & _ALL & ~self._mask, list[int]()
        at = bisect_left(self._packed, first)
        while at < len(self._packed) and (one := self._packed[at]) <= first | self._mask:
            found.append(one & self._mask)
            at += 1
        return found

    def twins(self) -> Iterator[list[int]]:
        """Yield the numbers of rows that may have one value, if there are several, in their order."""
        hashes = np.frombuffer(self._packed, np.uint64) & ~np.uint64(self._mask)
        alike = np.flatnonzero((hashes[1:] == hashes[:-1]) & (hashes[1:] != _ALL & ~self._mask))
        for some in np.split(alike, np.flatnonzero(np.diff(alike) > 1) + 1) if len(alike) else ():
            yield [one & self._mask for one in self._packed[int(some[0]) : int(some[-1]) + 2]]


_ALL = (1 << 64) - 1


class JoinedRows:
    """Rows of a table, completed by those of another one that have the same value.

    ``by``: the value of a row, ``to``: that of a row of the other table, of which the first one with that value counts.
    A row without one there has its own fields only. Fields of the same name are those of the first table, and a column
    that only says the same as one of the first table's is left out, unless it is ``key``, ``wav``, ``txt`` or ``feat``.
    """

    def __init__(self, rows: Rows, other: Rows, by: Expression, to: Expression) -> None:
        self.rows, self.other = rows, other
        self._by, self._to = by, to
        known = to.text in ("key", "wav", "txt", "feat")
        self._twice = to.text if by.plain and to.plain and not known else ""
        self._index = RowIndex((value_by(to, row) for row in other.scan()), len(other))
        self.files, self.notes = [*rows.files, *other.files], [*rows.notes, *other.notes]
        self.digest = f"{rows.digest}+{other.digest} {by.text} = {to.text}"

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, number: int) -> Row:
        return self._joined(self.rows.row(number))

    def place(self, number: int) -> str:
        return self.rows.place(number)

    def file(self, number: int) -> str:
        return self.rows.file(number)

    def scan(self) -> Iterator[Row | DataError]:
        for row in self.rows.scan():
            try:
                yield row if isinstance(row, DataError) else self._joined(row)
            except DataError as error:
                yield error

    def partners(self) -> Iterator[bool]:
        """Yield for each row whether the other table has a matching one."""
        return (self._partner(row) is not None for row in self.rows.scan())

    def _joined(self, row: Row) -> Row:
        other = self._partner(row)
        if other is None:
            return row
        joined = {**other, **row}
        if self._twice not in row:
            joined.pop(self._twice, None)
        return joined

    def _partner(self, row: Row | DataError) -> Row | None:
        value = value_by(self._by, row)
        for number in () if value is None else self._index.find(value):
            other = self.other.row(number)
            if value_by(self._to, other) == value:
                return other
        return None


def value_by(expression: Expression, row: Row | DataError) -> str | None:
    """Return the value by which a row is found; None if there is none."""
    try:
        found = None if isinstance(row, DataError) else expression(row)
    except DataError:
        return None
    return None if found is None else str(found)


WHOLE = 16 << 20  # bytes: a longer JSON is read piece by piece
_PIECE = 1 << 20  # rows at a time
_BUFFER = 1 << 16  # bytes at a time
NUMBER = "_number"  # after the list's name, the field with the number of an item in it, from 0


def expanded(rows: Iterable[Row], path: Sequence[str]) -> Iterator[Row]:
    """Yield the items of the lists that ``path`` leads to in each row, with the fields of all that they are in.

    Of the same name, the innermost field counts. An item that is no object is the field of the list's own name. A list
    of lists of objects gives all of these. In place of a list there may be an object of lists of one length, which
    stand side by side, or one of names and values: its items have the name as ``key``, and the value's own fields, or
    the value under the list's name. ``LIST_number`` is the number of an item in the list, from 0, of lists of lists in
    the outer one. A row without such a list gives none.
    """
    if not path:
        yield from rows
        return
    name, *rest = path
    for row in rows:
        parent, inner = {n: v for n, v in row.items() if n != name}, row.get(name)
        if rest and isinstance(inner, Mapping) and rest[0] in inner:
            yield from expanded([{**parent, **inner}], rest)
        else:
            yield from expanded(({**parent, **item} for item in _items(inner, name)), rest)


def _items(inner: Any, name: str) -> Iterator[Row]:
    if isinstance(inner, Mapping):
        lists = list(inner.values())
        if lists and all(isinstance(v, list) and len(v) == len(lists[0]) for v in lists):
            for number, values in enumerate(zip(*lists, strict=True)):
                yield {name + NUMBER: number, **dict(zip(inner, values, strict=True))}
            return
        for number, (key, value) in enumerate(inner.items()):
            yield {name + NUMBER: number, "key": key, **(value if isinstance(value, Mapping) else {name: value})}
    elif isinstance(inner, list):
        for number, item in enumerate(inner):
            yield from _item(number, item, name)


def _item(number: int, item: Any, name: str) -> Iterator[Row]:
    of_objects = isinstance(item, list) and all(isinstance(one, Mapping) for one in item)
    for one in item if of_objects else [item]:
        yield {name + NUMBER: number, **(one if isinstance(one, Mapping) else {name: one})}


def rows_of_json(content: BinaryIO, path: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a JSON file: its object, the objects of its list, or what ``path`` leads to in them. An object
    of objects, such as SpeechBrain's by the IDs of utterances, has a row for each, with its name as ``key``.

    If its outermost list is within an object, rows also have the values, but no lists or objects, that come before it.
    Raises: ValueError if it is no JSON, or its rows are no objects; ListError without ijson for more than 16 MiB.
    """
    head = content.read(WHOLE + 1)
    if len(head) <= WHOLE:
        value = parse_json(head.removeprefix(b"\xef\xbb\xbf").strip(), halves=True)
        if not path and isinstance(value, Mapping) and value and all(isinstance(v, Mapping) for v in value.values()):
            return ({"key": key, **item} for key, item in value.items())
        return expanded(map(_object, value if isinstance(value, list) else [_before(value, path)]), path)
    if not path and re.match(rb"(?:\xef\xbb\xbf)?\s*\{\s*\"(?:[^\"\\]|\\.)*\"\s*:\s*\{", head[:_BUFFER]):
        return ({"key": key, **_object(value)} for key, value in _streamed(head, content, "", "kvitems"))
    head += content.read(_BUFFER)
    name, parent = _outermost(head, path)
    items = _streamed(head, content, f"{name}.item" if name else "item")
    if not name:
        return expanded(map(_object, items), path)
    rows = ({**parent, **row} for number, item in enumerate(items) for row in _item(number, item, name))
    return expanded(rows, path[1:])


def _object(item: Any) -> Row:
    if not isinstance(item, Mapping):
        raise ValueError(f"its rows must be objects, not {item!r:.80}")
    return item


def _before(value: Any, path: Sequence[str]) -> Any:
    """Return an object with its outermost list, and of its other fields what :func:`rows_of_json` keeps."""
    if not (path and isinstance(value, Mapping) and isinstance(value.get(path[0]), list)):
        return value
    fields = takewhile(lambda pair: pair[0] != path[0], value.items())
    return {n: v for n, v in fields if not isinstance(v, (list, Mapping))} | {path[0]: value[path[0]]}


def _outermost(head: bytes, path: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the outermost list, "" if it is in no object, and the values that come before it."""
    ijson, parent = _library(), dict[str, Any]()
    try:
        for prefix, event, value in ijson.parse(_Rest(head, io.BytesIO()), buf_size=_BUFFER, use_float=True):
            if event == "start_array" and (not prefix or [prefix] == list(path[:1])):
                return prefix, parent
            if prefix and "." not in prefix and event in ("string", "number", "boolean", "null"):
                parent[prefix] = value
    except ijson.IncompleteJSONError:
        pass
    except ijson.JSONError as error:
        raise ValueError(str(error)) from error
    wanted = f"a list {path[0]!r} in its outermost object" if path else "a list: expand= names the one within it"
    raise ValueError(f"a JSON of more than 16 MiB must begin with {wanted}")


def _streamed(head: bytes, content: BinaryIO, prefix: str, kind: str = "items") -> Iterator[Any]:
    ijson = _library()
    try:
        yield from getattr(ijson, kind)(_Rest(head, content), prefix, buf_size=_BUFFER, use_float=True)
    except ijson.JSONError as error:
        raise ValueError(f"after its beginning: {error}") from error


def _library() -> ModuleType:
    try:
        import ijson
    except ImportError:
        message = "a JSON of more than 16 MiB is read piece by piece by ijson: pip install 'uio_pipes[tables]'"
        raise ListError(message) from None
    library: ModuleType = ijson
    return library


class _Rest:
    """What has been read of a file, and then the rest of it. Raises: ValueError before brackets are nested too deeply:
    for each of them, ijson keeps the names of all that it is in."""

    def __init__(self, head: bytes, content: BinaryIO) -> None:
        self._head, self._content = io.BytesIO(head), content
        self._depth, self._within, self._kept = 0, 0, b""  # whether a string is open; backslashes at the end

    def read(self, size: int) -> bytes:
        data = self._head.read(size) or self._content.read(size)
        text = (self._kept + data).rstrip(b"\\")
        self._kept = (self._kept + data)[len(text) :]
        plain = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
        marks = np.frombuffer(plain.translate(None, _NO_MARKS), np.uint8)
        within = (np.cumsum(marks == _QUOTE, dtype=np.int32) + self._within) & 1
        depths = np.cumsum(np.where(within, 0, _STEPS[marks]), dtype=np.int32) + self._depth
        if len(marks):
            self._depth, self._within = int(depths[-1]), int(within[-1])
            if depths.max() > DEEPEST:
                raise ValueError(f"its brackets are nested more than {DEEPEST} deep")
        return data


DEEPEST = 500  # brackets that are open at a time
_QUOTE = ord('"')
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
