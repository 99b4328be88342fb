"""Rows within rows: the items of lists in JSON objects, each with the fields of what it is in. Of a large JSON only one
item of its outermost list is in memory."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import ModuleType
from typing import Any, BinaryIO

from uio_pipes.base.errors import ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.tables.rows import Row

WHOLE = 16 << 20  # bytes: a longer JSON is read piece by piece
_PIECE = 1 << 20  # bytes
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
    """Yield the rows of a JSON file: its object, the objects of its list, or what ``path`` leads to in them.

    If its outermost list is within an object, rows also have the values, but no lists or objects, that come before it.
    Raises: ValueError if it is no JSON, or its rows are no objects; ListError without ijson for more than 16 MiB.
    """
    head = content.read(WHOLE + 1)
    if len(head) <= WHOLE:
        value = parse_json(head.removeprefix(b"\xef\xbb\xbf").strip())
        return expanded(map(_object, value if isinstance(value, list) else [_before(value, path)]), path)
    head += content.read(_PIECE)
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
        for prefix, event, value in ijson.parse(io.BytesIO(head), use_float=True):
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


def _streamed(head: bytes, content: BinaryIO, prefix: str) -> Iterator[Any]:
    ijson = _library()
    try:
        yield from ijson.items(_Rest(head, content), prefix, buf_size=_PIECE, use_float=True)
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
    """What has been read of a file, and then the rest of it."""

    def __init__(self, head: bytes, content: BinaryIO) -> None:
        self._head, self._content = io.BytesIO(head), content

    def read(self, size: int) -> bytes:
        return self._head.read(size) or self._content.read(size)
