"""Expressions over the fields of a record: the right-hand sides of ``fields={"speaker": "path | stem | [:7]"}``.

=============================  =======================================================================================
``sentence``                   the field of that name, whatever characters it has; ``custom.texts.0``: what dots lead to
``'en'``                       a constant
``wav/{key | [:7]}/{key}.wav`` text with expressions in braces
``a or b``                     the first of them that is there and not empty
``… | [:7]``, ``… | [0]``      a slice of a text or a list, or one item
``… | stem``                   of a path the name without its suffix; ``name`` with it; ``folder`` what comes before
``… | ms``, ``… | cs``         a time in 1/1000 or 1/100 s as seconds; ``… | / 16000`` any other unit
``… | m/(\\d+)-/``             what the first group of a regular expression matches, or without a group all of it
``… | s/<[A-Z]+>//``           the text with every match of a regular expression replaced
``… | strip``                  without blanks around; ``lower``, ``upper``: in these letters
=============================  =======================================================================================

What is not there stays out: the value is then None, whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from uio_pipes.base.errors import DataError, PipelineError

Value = Callable[[Mapping[str, Any]], Any]
T = TypeVar("T")

_OR = re.compile(r"\s+or\s+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_PATTERN = r"((?:\\.|[^/\\])*)/"
_FILTER = re.compile(
    r"\s*\|\s*(?:"
    rf"m/{_PATTERN}|s/{_PATTERN}{_PATTERN}|"
    r"\[(-?\d*)(:?)(-?\d*)\]|/\s*(\d+(?:\.\d+)?)|([a-z]+))\s*"
)
_EXAMPLE = "as in 'path | stem', 'duration | ms', '{speaker}-{id}' or \"'en'\""


class Expression(NamedTuple):
    """A compiled expression. ``names``: the fields that it reads; ``plain``: it is nothing but a name."""

    text: str
    names: tuple[str, ...]
    plain: bool
    value: Value

    def __call__(self, record: Mapping[str, Any]) -> Any:
        """Return its value for a record, None if that has not got it. Raises: DataError ``bad_value``."""
        return self.value(record)


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """Compile an expression. Raises: PipelineError."""
    alternatives = [_piped(each, text) for each in _split(text, _OR)]
    if len(alternatives) == 1:
        return alternatives[0]._replace(text=text)
    values = [each.value for each in alternatives]
    names = tuple(dict.fromkeys(name for each in alternatives for name in each.names))
    return Expression(text, names, False, lambda record: _first(value(record) for value in values))


def lookup(record: Mapping[str, Any], name: str) -> Any:
    """Return the field ``name`` of a record, or else what its dots lead to, as in ``info.texts.0``; None without it."""
    if (value := record.get(name)) is not None or "." not in name:
        return value
    value = record
    for part in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _split(text: str, at: re.Pattern[str]) -> list[str]:
    """Split a text where ``at`` matches outside of quotes, braces and regular expressions."""
    pieces, begin, position = [], 0, 0
    while position < len(text):
        if (skipped := _closed(text, position)) > position:
            position = skipped
        elif found := at.match(text, position):
            pieces.append(text[begin : found.start()])
            begin = position = found.end()
        else:
            position += 1
    return [*pieces, text[begin:]]


def _closed(text: str, at: int) -> int:
    """Return the end of what is quoted, in braces, or a filter at ``at``; ``at`` itself if there is nothing such."""
    if text[at] == "{":
        depth = 0
        for end in range(at, len(text)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                return end + 1
        raise _wrong(text, "a brace is not closed")
    found = _QUOTED.match(text, at) or _FILTER.match(text, at)
    return found.end() if found else at


def _piped(text: str, whole: str) -> Expression:
    """Compile a value with its filters."""
    at = 0
    while at < len(text) and text[at] != "|":
        at = max(at + 1, _closed(text, at)) if text[at] in "{'\"" else at + 1
    source = _head(text[:at].strip(), whole)
    value = source.value
    while at < len(text):
        found = _FILTER.match(text, at)
        if not found:
            raise _wrong(whole, f"{text[at:].strip()!r} is no filter")
        value, at = _then(value, _filter(found, whole), text), found.end()
    return source if value is source.value else source._replace(plain=False, value=value)


def _head(head: str, whole: str) -> Expression:
    if quoted := _QUOTED.fullmatch(head):
        constant = quoted[1] if quoted[1] is not None else quoted[2]
        return Expression(head, (), False, lambda record: constant)
    if "{" in head:
        return _template(head)
    if not head:
        raise _wrong(whole, "a name is missing")
    return Expression(head, (head,), True, lambda record: lookup(record, head))


def _template(text: str) -> Expression:
    parts: list[str | Expression] = []
    position = begin = 0
    while (position := text.find("{", position)) >= 0:
        end = _closed(text, position)
        parts += [text[begin:position], compiled(text[position + 1 : end - 1].strip())]
        begin = position = end
    parts.append(text[begin:])

    def filled(record: Mapping[str, Any]) -> str | None:
        made = [part if isinstance(part, str) else part.value(record) for part in parts]
        return None if None in made else "".join(map(str, made))

    names = tuple(dict.fromkeys(name for part in parts if not isinstance(part, str) for name in part.names))
    return Expression(text, names, False, filled)


def _then(value: Value, apply: Callable[[Any], Any], text: str) -> Value:
    def piped(record: Mapping[str, Any]) -> Any:
        found = value(record)
        try:
            return None if found is None else apply(found)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise DataError("bad_value", f"{text!r} cannot be made of {found!r:.80}: {error}") from error

    return piped


def _first(values: Any) -> Any:
    return next((value for value in values if value is not None and value != ""), None)


def _filter(found: re.Match[str], whole: str) -> Callable[[Any], Any]:
    match, pattern, by, first, colon, last, unit, word = found.groups()
    if match is not None:
        wanted = _regex(match, whole)
        return lambda value: (hit[1] if wanted.groups else hit[0]) if (hit := wanted.search(str(value))) else None
    if pattern is not None:
        replaced = _regex(pattern, whole)
        return lambda value: replaced.sub(by, str(value))
    if unit is not None:
        return lambda value: float(value) / float(unit)
    if word is not None:
        if word not in _WORDS:
            raise _wrong(whole, f"there is no filter {word!r}, only {', '.join(_WORDS)}")
        return _WORDS[word]
    if colon:
        part = slice(int(first) if first else None, int(last) if last else None)
        return lambda value: value[part]
    if not first:
        raise _wrong(whole, "the brackets are empty")
    return lambda value: value[int(first)]


def _regex(pattern: str, whole: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern.replace(r"\/", "/"))
    except re.error as error:
        raise _wrong(whole, f"{pattern!r} is no regular expression: {error}") from error


def _stem(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


_WORDS: dict[str, Callable[[Any], Any]] = {
    "ms": lambda value: float(value) / 1000,
    "cs": lambda value: float(value) / 100,
    "stem": lambda value: _stem(str(value)),
    "name": lambda value: str(value).rpartition("/")[2],
    "folder": lambda value: str(value).rpartition("/")[0],
    "strip": lambda value: str(value).strip(),
    "lower": lambda value: str(value).lower(),
    "upper": lambda value: str(value).upper(),
}


def _wrong(text: str, what: str) -> PipelineError:
    return PipelineError(f"fields: {text!r} is no expression: {what}; write it {_EXAMPLE}")
