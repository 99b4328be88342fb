"""Parsing of untrusted JSON and YAML: whatever is wrong with them raises an error that names the place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from uio_pipes.base.errors import PipelineError, StateError, UioError

DIGITS = 300  # of a whole number: more is no float any more


def parse_json(text: str | bytes, *, halves: bool = False) -> Any:
    """Parse JSON. Raises: ValueError, also for brackets that are nested too deeply, for endless numbers, and for halves
    of surrogate pairs, which no file can hold, unless ``halves``: names of files that are not UTF-8 have them."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass" if halves else "strict")
    try:
        value = _decoded(text)
        if not halves and ("\\ud" in text or "\\uD" in text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair (as \\ud800) is not a character") from None
    return value


def _decoded(text: str) -> Any:
    decoder = _careful if _LONG.search(text[:: DIGITS // 2]) else _plain  # a function for each number is dear
    if text[:1] in ("{", "["):
        value, end = decoder.raw_decode(text)
        if end == len(text):
            return value
    return decoder.decode(text)


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return int(digits)


_LONG = re.compile(r"\d\d")  # of characters so far apart, two are digits if a number is too long
_plain, _careful = json.JSONDecoder(), json.JSONDecoder(parse_int=_whole)

DEEPEST = 50  # levels of lists and mappings
ALIASED = 100_000  # values that aliases may add
_NUMBER = re.compile(r"[-+0-9a-fA-FxXo_:.]+")


class MarkedDict(dict[Any, Any]):
    """A mapping with the ``line`` where it begins, and the ``lines`` of its keys, counted from 1."""

    line: int
    lines: dict[Any, int]


class MarkedList(list[Any]):
    """A list with the ``lines`` of its items, counted from 1."""

    lines: list[int]


def check_yaml(text: str | bytes, name: str) -> None:
    """Raises: PipelineError if the text is not YAML, or would take absurd time or memory to load."""
    import yaml

    def refuse(event: Any, what: str) -> NoReturn:
        raise PipelineError(f"{name}, line {event.start_mark.line + 1}: {what}")

    sizes, open_, added = dict[str, int](), [("", 0)], 0  # of what aliases stand for; anchors and sizes of collections
    try:
        for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            size = 0
            if isinstance(event, yaml.AliasEvent):
                size = sizes.get(event.anchor or "", 1)
                if (added := added + size) > ALIASED:
                    refuse(event, f"its aliases expand to more than {ALIASED:,} values: write them out instead")
            elif isinstance(event, yaml.CollectionStartEvent):
                open_.append((event.anchor or "", 1))
                if len(open_) > DEEPEST:
                    refuse(event, f"lists and mappings are nested more than {DEEPEST} levels deep: flatten them")
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, size = open_.pop()
                sizes[anchor] = size
            elif isinstance(event, yaml.ScalarEvent):
                size = sizes[event.anchor or ""] = 1
                if event.implicit[0] and len(event.value) > DIGITS and _NUMBER.fullmatch(event.value):
                    refuse(event, f"a number of {len(event.value):,} digits: put it in quotes if it is a text")
            open_[-1] = (open_[-1][0], open_[-1][1] + size)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PipelineError(f"{name} is not YAML: {error}") from error


def parse_yaml(text: str | bytes, name: str) -> Any:
    """Parse YAML; ``name`` is that of the file. Raises: PipelineError naming file and line."""
    import yaml

    check_yaml(text, name)
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> MarkedDict:
        marked, own = MarkedDict(), {id(key) for key, _ in node.value}
        marked.line, marked.lines = node.start_mark.line + 1, {}
        loader.flatten_mapping(node)  # of what is merged by <<, which comes first and may be replaced
        given = set()
        for key_node, value_node in node.value:
            key, line = loader.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if isinstance(key, (list, dict)):
                raise PipelineError(
                    f"{name}, line {line}: a key must be one word: if this is a {{{{ template }}}}, fill it in"
                )
            if key in given:
                raise PipelineError(
                    f"{name}, line {line}: the key {key!r} appears twice, first in line {marked.lines[key]}"
                )
            given.update([key] if id(key_node) in own else [])
            marked[key], marked.lines[key] = loader.construct_object(value_node, deep=True), line
        return marked

    def sequence(loader: Any, node: Any) -> MarkedList:
        marked = MarkedList(loader.construct_object(item, deep=True) for item in node.value)
        marked.lines = [item.start_mark.line + 1 for item in node.value]
        return marked

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    Loader.add_constructor("tag:yaml.org,2002:seq", sequence)
    try:
        return yaml.load(text, Loader)
    except PipelineError:  # a ValueError, too
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # of a date that there is not, for example
        raise PipelineError(f"{name} is not YAML: {error}") from error


def place_of(parent: Any, key: Any, name: str) -> str:
    """Return the place of ``parent[key]`` for messages: ``data.yaml, line 7``; only ``name`` without lines."""
    lines = getattr(parent, "lines", None)
    if lines is None:
        return name
    known = key in lines if isinstance(lines, Mapping) else 0 <= key < len(lines)
    line = lines[key] if known else getattr(parent, "line", None)
    return name if line is None else f"{name}, line {line}"


@contextmanager
def refused(by: str) -> Iterator[None]:
    """Turn whatever the user's object ``by`` raises over a state into a StateError that names it."""
    try:
        yield
    except UioError:
        raise
    except Exception as error:
        raise StateError(
            f"{by} refused the state that it saved ({type(error).__name__}: {error}): it has changed since, or its "
            "reset() contains a bug"
        ) from error
