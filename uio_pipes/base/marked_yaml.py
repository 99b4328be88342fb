"""YAML whose mappings and lists remember the lines that they came from, so that errors can name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.base.errors import PipelineError


class MarkedDict(dict[Any, Any]):
    """A mapping with the ``line`` where it begins, and the ``lines`` of its keys, counted from 1."""

    line: int
    lines: dict[Any, int]


class MarkedList(list[Any]):
    """A list with the ``lines`` of its items, counted from 1."""

    lines: list[int]


def parse_yaml(text: str | bytes, name: str) -> Any:
    """Parse YAML; ``name`` is that of the file. Raises: PipelineError naming file and line."""
    import yaml

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
            if key in given:
                raise PipelineError(f"{name}, line {line}: {key!r} is there twice, first in line {marked.lines[key]}")
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
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PipelineError(f"{name} is not YAML: {error}") from error


def place_of(parent: Any, key: Any, name: str) -> str:
    """Return the place of ``parent[key]`` for messages: ``data.yaml, line 7``; only ``name`` without lines."""
    lines = getattr(parent, "lines", None)
    if lines is None:
        return name
    known = key in lines if isinstance(lines, Mapping) else 0 <= key < len(lines)
    line = lines[key] if known else getattr(parent, "line", None)
    return name if line is None else f"{name}, line {line}"
