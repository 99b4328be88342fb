"""Expressions over the fields of a record: the right-hand sides of ``fields={"speaker": "path | stem | [:7]"}``.

=============================  =======================================================================================
``sentence``                   the field of that name, whatever characters it has; ``custom.texts.0``: what dots lead to
``'en'``                       a constant
``wav/{key | [:7]}/{key}.wav`` text with expressions in braces
``a or b``                     the first of them that is there and not empty, or else the last one
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
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.urls import stem_of

TABLE = "table"  # the name under which a record has the path of what it is in
_Made = Callable[[Mapping[str, Any]], Any]
_OR = re.compile(r"\s+or\s+")
_QUOTED = re.compile(r"\s*(?:'([^']*)'|\"([^\"]*)\")(?=\s*(?:\||$)|\s+or\s)")
_PATTERN = r"((?:\\.|[^/\\])*)/"
_FILTER = re.compile(
    r"\s*\|\s*(?:"
    rf"m/{_PATTERN}|s/{_PATTERN}{_PATTERN}|"
    r"\[(-?\d*)(:?)(-?\d*)\]|/\s*(\d+(?:\.\d+)?)|([a-z]+))(?=\s|\||$)"
)
_EXAMPLE = "as in 'path | stem', 'duration | ms', '{speaker}-{id}' or \"'en'\""


class Expression(NamedTuple):
    """A compiled expression. ``names``: the fields that it reads; ``plain``: it is nothing but a name."""

    text: str
    names: tuple[str, ...]
    plain: bool
    value: _Made

    def __call__(self, record: Mapping[str, Any]) -> Any:
        """Return its value for a record, None if that has not got it. Raises: DataError ``bad_value``."""
        return self.value(record)

    def tried(self, record: Mapping[str, Any]) -> Any:
        """Return the result, or "" where the value cannot be converted."""
        try:
            return self.value(record)
        except DataError:
            return ""


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """Compile an expression. Raises: PipelineError."""
    return _Parser(text).parsed()


def lookup(record: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """Return the field ``name`` of a record, or the nested value that its dots lead to, as in ``info.texts.0``. It is
    ``default`` if that is missing, and None if a null is on the way."""
    if (value := record.get(name)) is not None or "." not in name:
        return value if value is not None or name in record else default
    value = None if name in record else record
    for part in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(part, default)
        elif isinstance(value, (list, tuple)) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None if value is None else default
    return value


class _Parser:
    """Reads an expression from left to right: alternatives, of which each is a value with filters after it."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def parsed(self) -> Expression:
        alternatives = [self._piped()]
        while self._took(_OR):
            alternatives.append(self._piped())
        if rest := self.text[self.at :].strip():
            raise self._wrong(
                f"{rest!r} is not a filter; there are {', '.join(_WORDS)}, [:7], / 16000, m/…/ and s/…/…/"
            )
        if len(alternatives) == 1:
            return alternatives[0]._replace(text=self.text)
        values = [each.value for each in alternatives]
        return Expression(self.text, _names(alternatives), False, lambda record: _first(v(record) for v in values))

    def _piped(self) -> Expression:
        made = self._value()
        while found := self._took(_FILTER):
            made = made._replace(plain=False, value=_then(made.value, self._filter(found), self.text))
        return made

    def _value(self) -> Expression:
        if quoted := self._took(_QUOTED):
            constant = quoted[1] if quoted[1] is not None else quoted[2]
            return Expression(constant, (), False, lambda record: constant)
        begin, parts = self.at, list[str | Expression]()
        while self.at < len(self.text) and self.text[self.at] != "|" and not _OR.match(self.text, self.at):
            if self.text[self.at] == "{":
                parts += [self.text[begin : self.at], compiled(self._braced())]
                begin = self.at
            else:
                self.at += 1
        rest = self.text[begin : self.at]
        if parts:
            return _template([str(parts[0]).lstrip(), *parts[1:], rest.rstrip()])
        if not (name := rest.strip()):
            raise self._wrong("a name is missing")
        return Expression(name, (name,), True, lambda record: lookup(record, name))

    def _braced(self) -> str:
        """Return what is in the braces that open here, and go on after them."""
        depth, begin = 0, self.at + 1
        for end in range(self.at, len(self.text)):
            depth += (self.text[end] == "{") - (self.text[end] == "}")
            if not depth:
                self.at = end + 1
                return self.text[begin:end]
        raise self._wrong("a brace is not closed")

    def _took(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if found := pattern.match(self.text, self.at):
            self.at = found.end()
        return found

    def _filter(self, found: re.Match[str]) -> Callable[[Any], Any]:
        match, pattern, by, first, colon, last, unit, word = found.groups()
        if match is not None:
            wanted = self._regex(match)
            return lambda value: (hit[1] if wanted.groups else hit[0]) if (hit := wanted.search(str(value))) else None
        if pattern is not None:
            replaced, by = self._regex(pattern), by.replace(r"\/", "/")
            try:
                replaced.sub(by, "")
            except (re.error, IndexError) as error:
                raise self._wrong(f"{by!r} cannot stand for what {pattern!r} matches: {error}") from error
            return lambda value: replaced.sub(by, str(value))
        if unit is not None:
            if not (divisor := float(unit)):
                raise self._wrong("nothing can be divided by 0")
            return lambda value: _divided(value, divisor)
        if word is not None:
            if word not in _WORDS:
                raise self._wrong(f"there is no filter {word!r}, only {', '.join(_WORDS)}")
            return _WORDS[word]
        if colon:
            part = slice(int(first) if first else None, int(last) if last else None)
            return lambda value: value[part]
        if not first:
            raise self._wrong("the brackets are empty")
        at = int(first)
        return lambda value: value[at] if -len(value) <= at < len(value) else None

    def _regex(self, pattern: str) -> re.Pattern[str]:
        try:
            return re.compile(pattern.replace(r"\/", "/"))
        except re.error as error:
            raise self._wrong(f"{pattern!r} is not a regular expression: {error}") from error

    def _wrong(self, what: str) -> PipelineError:
        return PipelineError(f"fields: {self.text!r} is not an expression: {what}; write it {_EXAMPLE}")


def _names(expressions: Iterable[Expression | str]) -> tuple[str, ...]:
    found = (name for each in expressions if isinstance(each, Expression) for name in each.names)
    return tuple(dict.fromkeys(found))


def _template(parts: list[str | Expression]) -> Expression:
    def filled(record: Mapping[str, Any]) -> str | None:
        made = [part if isinstance(part, str) else part.value(record) for part in parts]
        return None if None in made else "".join(map(str, made))

    return Expression("", _names(parts), False, filled)


def _then(value: _Made, apply: Callable[[Any], Any], text: str) -> _Made:
    def piped(record: Mapping[str, Any]) -> Any:
        found = value(record)
        try:
            return None if found is None else apply(found)
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise DataError("bad_value", f"{text!r} cannot be computed from {found!r:.80}: {error}") from error

    return piped


def _first(values: Iterable[Any]) -> Any:
    value = None
    for value in values:
        if value is not None and value != "":
            break
    return value


def _divided(value: Any, by: float) -> float | None:
    return None if value == "" else float(value) / by


_WORDS: dict[str, Callable[[Any], Any]] = {
    "ms": lambda value: _divided(value, 1000),
    "cs": lambda value: _divided(value, 100),
    "stem": lambda value: stem_of(str(value)),
    "name": lambda value: str(value).rpartition("/")[2],
    "folder": lambda value: str(value).rpartition("/")[0],
    "strip": lambda value: str(value).strip(),
    "lower": lambda value: str(value).lower(),
    "upper": lambda value: str(value).upper(),
}
