"""One line of a raw list: its fields, checked. No torch in here: packing reads lists too."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.naming import TEXTLESS, Renames, pairs_of, renamed

_REQUIRED = {"missing_key": ("key",), "missing_audio": ("wav", "feat"), "missing_text": ("txt",)}


def parse(text: str, place: str, names: Renames = None, needs_text: bool = True) -> dict[str, Any]:
    """Return the fields of one line. ``place``: its list and line number, for messages; ``names``: as it has them;
    ``needs_text``: False if it may have no ``txt``.

    Raises:
        ListError: the line is not a JSON object at all (another kind of list).
        DataError: ``bad_line``, ``bad_text``, ``missing_key``, ``missing_audio``, ``missing_text`` or ``bad_segment``.
    """
    fields = parse_object(text, place, names)
    key = str(fields.get("key", ""))
    for reason, needed in _REQUIRED.items():
        if not any(isinstance(fields.get(n), str) and (fields[n] or n == "txt") for n in needed):
            if reason != "missing_text" or needs_text:
                asked = [dict(pairs_of(names)).get(n, n) for n in needed]
                remedy = f"; {TEXTLESS}" if reason == "missing_text" else ""
                raise DataError(reason, f"the line has no {' or '.join(asked)}{remedy}", url=place, member=key)
            fields.pop("txt", None)
    check_segment(fields, place, key)
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
        fields: dict[str, Any] = parse_json(text)
    except ValueError as error:
        raise DataError("bad_line", f"damaged JSON: {error}", url=place) from error
    if names:
        fields = renamed(fields, names)
    if "\\ud" in text or "\\uD" in text:
        _check_characters(json.dumps(fields, ensure_ascii=False), place, "bad_text")
    numbers_as_text(fields, "key", "txt")
    return fields


def numbers_as_text(fields: dict[str, Any], *names: str) -> None:
    """Make text of those of the fields ``names`` that are numbers; NaN, which pandas writes for nothing, is none."""
    for name in names:
        value = fields.get(name)
        if type(value) is int or (type(value) is float and isfinite(value)):
            fields[name] = str(value)


def _check_characters(text: str, place: str, reason: str = "bad_line") -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # an invalid byte, kept as a surrogate, or half of an escaped pair
        raise DataError(reason, f"no UTF-8 (character {error.start + 1} of the line)", url=place) from error


LATEST = 1e9  # seconds: more is a mistake, and too much for counting samples


def as_seconds(value: Any) -> Any:
    """Return a time that is written as text as a number, as TouchNet reads it; anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def check_segment(fields: dict[str, Any], place: str, key: str) -> None:
    """Check ``start`` and ``end``, and make numbers of those that are text. Raises: DataError ``bad_segment``."""
    for name in ("start", "end"):
        if isinstance(fields.get(name), str):
            fields[name] = as_seconds(fields[name])
    start, end = fields.get("start"), fields.get("end")
    start = 0 if start is None else start
    numbers = all(type(v) in (int, float) and isfinite(v) and v < LATEST for v in (start, 0 if end is None else end))
    if not numbers or start < 0 or (end is not None and end <= start):
        message = f"start and end must be seconds with 0 <= start < end, not {start!r} and {end!r}"
        raise DataError("bad_segment", message, url=place, member=key)
