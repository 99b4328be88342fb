"""Reading and checking the fields of a line of JSON. No torch in here: packing reads lists too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import isfinite
from typing import Any, Protocol

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.naming import LOOKED_AT, TEXTLESS, FieldNames, Renames, asked, check_asked, pairs_of, renamed
from uio_pipes.io.access import Access
from uio_pipes.io.opening import beside

_REQUIRED = {"missing_key": ("key",), "missing_audio": ("wav", "feat"), "missing_text": ("txt",)}


def parse(
    text: str, place: str, names: Renames = None, needs_text: bool = True, find: Callable[[str, str], Any] = beside
) -> dict[str, Any]:
    """Return the fields of one line. ``place``: its list and line number, for messages, and for relative paths;
    ``names``: as it has them; ``needs_text``: False if it may have no ``txt``; ``find``: what a file is, by its path
    and its list.

    Raises:
        ListError: the line is not a JSON object at all (another kind of list).
        DataError: ``bad_line``, ``bad_text``, ``missing_key``, ``missing_audio``, ``missing_text`` or ``bad_segment``.
    """
    fields = parse_object(text, place, names)
    key = str(fields.get("key", ""))
    lacking = {
        reason: needed
        for reason, needed in _REQUIRED.items()
        if not any(isinstance(fields.get(n), str) and (fields[n] or n == "txt") for n in needed)
    }
    if "missing_text" in lacking and not needs_text:
        del lacking["missing_text"]
        fields.pop("txt", None)
    if lacking:
        given = dict(pairs_of(names))
        names_lacking = ", no ".join(" or ".join(given.get(n, n) for n in needed) for needed in lacking.values())
        remedy = f"; {TEXTLESS}" if "missing_text" in lacking else ""
        first, *also = (needed[0] for needed in lacking.values())
        there = parse_object(text, place) if names else fields
        message = f"the line has no {names_lacking}: {named_otherwise(first, there, *also, given=given)}{remedy}"
        raise DataError(next(iter(lacking)), message, url=place, member=key)
    check_segment(fields, place, key)
    for name in ("wav", "feat"):
        if isinstance(path := fields.get(name), str):
            fields[name] = find(path, place.rpartition(", line ")[0])
    return fields


def parse_object(text: str, place: str, names: Renames = None) -> dict[str, Any]:
    """Return the fields of one line, unchecked; a ``key`` or ``txt`` that is a number becomes text.

    ``names``: our names of fields, with those in the line.

    Raises: ListError, DataError ``bad_line`` or ``bad_text``.
    """
    if not text.startswith("{"):
        raise ListError(
            f'{place} is not a JSON object: {text[:80]!r}. A raw list has {{"key", "wav", "txt"}} a line; '
            "if this is a list of shards, use from_shard_list (WeNet's data_type shard)"
        )
    if not text.isascii():
        _check_characters(text, place)
    try:
        fields: dict[str, Any] = parse_json(text, halves=True)
    except ValueError as error:
        raise DataError("bad_line", f"damaged JSON: {error}", url=place) from error
    if names:
        fields = renamed(fields, names)
    if "\\" in text and ("\\ud" in text or "\\uD" in text):
        _check_characters(json.dumps(fields, ensure_ascii=False), place, "bad_text")
    numbers_as_text(fields, "key", "txt")
    return fields


def numbers_as_text(fields: dict[str, Any], *names: str) -> None:
    """Convert those of the fields ``names`` that are numbers to text; NaN, as pandas writes for a gap, is removed."""
    for name in names:
        value = fields.get(name)
        if type(value) is int or (type(value) is float and isfinite(value)):
            fields[name] = str(value)


def _check_characters(text: str, place: str, reason: str = "bad_line") -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # an invalid byte, kept as a surrogate, or half of an escaped pair
        raise DataError(reason, f"it is not UTF-8 (character {error.start + 1} of the line)", url=place) from error


LATEST = 1e9  # seconds: more is a mistake, and too much for counting samples


_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")


def as_seconds(value: Any) -> Any:
    """Return a time that is written as text, in seconds or as H:MM:SS, as a number; anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        if (clock := _CLOCK.fullmatch(value.strip())) is None:
            return value
        hours, minutes, seconds = clock.groups()
        return int(hours or 0) * 3_600 + int(minutes) * 60 + float(seconds.replace(",", "."))


def check_segment(fields: dict[str, Any], place: str, key: str) -> None:
    """Check ``start`` and ``end``, and convert them from text to numbers. Raises: DataError ``bad_segment``."""
    for name in ("start", "end"):
        if isinstance(fields.get(name), str):
            fields[name] = as_seconds(fields[name])
    start, end = fields.get("start"), fields.get("end")
    start = 0 if start is None else start
    numbers = all(type(v) in (int, float) and isfinite(v) and v < LATEST for v in (start, 0 if end is None else end))
    if not numbers or start < 0 or (end is not None and end <= start):
        message = f"start and end must be seconds with 0 <= start < end, not {start!r} and {end!r}"
        raise DataError("bad_segment", message, url=place, member=key)


class JsonRows:
    """The objects of JSONL files, plain or compressed, one a line, by number.

    ``entries``: paths, globs, braces or URLs; ``names``: our names of the fields, with those in the files; ``wanted``:
    what a line should be, for messages; ``text``: what the argument of that name gives for ``txt``, if there is one.

    Raises: ListError if a file is missing, damaged or has no lines, or lacks what ``names`` ask for.
    """

    def __init__(
        self,
        entries: tuple[str, ...],
        access: Access,
        names: FieldNames = (),
        wanted: str = "a JSON object a line is wanted",
        text: str | None = None,
    ) -> None:
        self.lines, self._names, self._wanted = ItemTable(entries, access), names, wanted
        self.place, self.notes = self.lines.place, list[DataError]()
        check_asked(first_objects(self.lines) if names else (), asked(names, text), self.place(0))

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def digest(self) -> str:
        """A hash of all lines."""
        return self.lines.digest

    def file(self, number: int) -> str:
        return getattr(self.lines.find(number)[0], "name", "")

    def row(self, number: int) -> dict[str, Any]:
        """Return the object of a line, with our field names.

        Raises: DataError ``bad_line`` or ``bad_text``; ListError if the first line of the file is no object, either.
        """
        text = self.lines[number]
        if not text.startswith("{"):
            message = f"not a JSON object: {text[:80]!r}; {self._wanted}"
            if not self.lines.find(number)[0][0].startswith("{"):
                raise ListError(f"{self.place(number)} is {message}")
            raise DataError("bad_line", message, url=self.place(number))
        try:
            return parse_object(text, "", self._names)
        except DataError as error:
            raise error.at(self.place(number)) from error


class _Numbered(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> str: ...


def first_objects(lines: _Numbered) -> Iterator[dict[str, Any]]:
    """Yield the objects of the first valid JSON lines."""
    for number in range(min(LOOKED_AT, len(lines))):
        with suppress(ListError, DataError):
            yield parse_object(lines[number], "")
