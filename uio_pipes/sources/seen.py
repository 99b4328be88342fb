"""What there is at a path, as formats see it that say whether it is theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import is_named
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.naming import LOOKED_AT, renamed
from uio_pipes.io.access import PLAIN
from uio_pipes.io.folders import meant, near
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.io.stream import open_source
from uio_pipes.sources.nemo.table import expanded

GivenNames = Mapping[str, str] | None
HEAD = 1 << 16  # bytes, by which formats are recognized
ANNOTATIONS = (".stm", ".textgrid", ".segments.xml")
LIST_OF_OBJECTS = re.compile(r'"([^"\\]+)" ?: ?\[\s*\{')
_IN_LINES = frozenset(["supervisions", "messages", "conversations"])  # such lists in the lines of manifests
_NAMED = re.compile(r"[^:]*\w:(?!//)")
_JSON = (".json", ".json.gz")
_NAME = re.compile(r'"([^"\\]+)" ?:')


@dataclass(frozen=True)
class Found:
    """Data that a format has recognized: their ``kind`` in words, and the call that begins a pipeline of them.

    Attributes:
        start: a function of ``uio_pipes`` that returns a pipeline, or a format; it gets ``arguments`` and ``options``.
        lacks: what an utterance lacks to be one recording or its features; "" if nothing.
        listed: whether each line, or file, is data of its own, which can be checked one by one.
        records: gives the first records, in which a field may have another name than ours; None if their names are
            fixed.
    """

    kind: str
    start: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    lacks: str = ""
    listed: bool = False
    records: Callable[[], Sequence[Mapping[str, Any]]] | None = None


class Recognizing(Protocol):
    """What all that a pipeline can begin with says of itself. ``sentence``: what the data are, in docs/your_data.md."""

    sentence: str

    def recognize(self, seen: Seen) -> Found | None:
        """Return how these data are read; None if they are something else. Raises: ListError if they are incomplete."""


class Seen:
    """What there is at a path, looked at no further than is asked. ``fields``: names that are said of fields; ``head``:
    what is taken to be the beginning of the content."""

    def __init__(self, path: str, fields: GivenNames = None, head: bytes | None = None) -> None:
        self.path, self.fields, self.local = path, fields, is_local(path)
        self.is_inline = path.startswith("{")  # JSON in place of a path
        if head is not None:
            self.head = head

    @property
    def is_named(self) -> bool:
        """Whether it seems to be something by its name, with its place: ``librispeech:FOLDER``."""
        return _NAMED.match(self.path) is not None and not os.path.exists(self.path)

    @property
    def is_folder(self) -> bool:
        return self.local is not None and os.path.isdir(self.local)

    @cached_property
    def names(self) -> set[str]:
        """The names in a local folder; none of anything else."""
        return set(os.listdir(self.local)) if self.is_folder else set()

    @cached_property
    def head(self) -> bytes:
        """The beginning of the first file's content, decompressed. Raises: ListError."""
        names = expanded([self.path], PLAIN) if "_OP_" in self.path else expand(self.path, PLAIN)
        try:
            source = open_source(next(names))
            try:
                head: bytes = source.read_upto(0, HEAD)
            finally:
                source.close()
        except DataError as error:
            raise _unreadable(self.path, error) from error
        return head

    @cached_property
    def lines(self) -> list[str]:
        """The first lines that are neither blank nor comments, without the blanks around them. Raises: ListError."""
        if self.is_inline:
            return [self.path]
        lines = [line.strip() for line in self.head.decode("utf-8-sig", "replace").splitlines()]
        whole = lines if len(self.head) < HEAD else lines[:-1] or lines  # the head may end within the last one
        return [line for line in whole if line and not line.startswith("#")]

    @property
    def entries(self) -> list[str]:
        """The first lines of what may be a list of names; none of what is data by its own name. Raises: ListError."""
        if self.is_inline or is_named(self.path, ARCHIVES) or b"\0" in self.head or self.is_json:
            return []
        return self.lines

    @property
    def is_json(self) -> bool:
        """Whether it has a JSON object a line. Raises: ListError."""
        first = self.lines[0] if self.lines else ""
        return first.startswith("{") and first != "{" and (first.endswith("}") or not self._is_list_of_objects)

    @property
    def is_rows(self) -> bool:
        """Whether its rows are in an annotation or in one JSON, if no format knows it. Raises: ListError."""
        one = is_named(self.path, _JSON) and (not self.is_json or self._is_list_of_objects)
        return bool(self.lines) and (one or is_named(self.path.lower(), ANNOTATIONS))

    @property
    def _is_list_of_objects(self) -> bool:
        inner = LIST_OF_OBJECTS.search(self.lines[0]) if len(self.lines) == 1 and is_named(self.path, _JSON) else None
        return inner is not None and inner[1] not in _IN_LINES

    @cached_property
    def columns(self) -> frozenset[str]:
        """Our names of what the first JSON objects have, one a line. Raises: ListError."""
        lines = (
            line for line in self.lines if line.startswith("{") and (self.is_json or not is_named(self.path, _JSON))
        )
        return frozenset[str]().union(*(names_in(line, self.fields) for line in lines))

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The first JSON objects, of which the last may be cut off. Raises: ListError."""
        found = list[dict[str, Any]]()
        for line in self.lines[:LOOKED_AT]:
            with suppress(ValueError):
                found += [read] if isinstance(read := parse_json(line), dict) else []
        return found or [{}]

    def has(self, *names: str) -> bool:
        """Whether it has a JSON object a line, with one of these names and no audio by ours. Raises: ListError."""
        json = self.is_json and not self.is_inline
        return json and not self.columns.isdisjoint(names) and self.columns.isdisjoint(("wav", "feat"))


def names_in(line: str, fields: GivenNames) -> frozenset[str]:
    """Return our names of the fields of a JSON object, which may be damaged, or cut off where the head ends."""
    try:
        read = parse_json(line)
    except ValueError:
        read = dict.fromkeys(_NAME.findall(line))
    return frozenset(renamed(read, fields))


def exists(url: str) -> bool:
    """Return whether there is such a file. Raises: ListError if that cannot be found out."""
    try:
        open_binary(url).close()
    except DataError as error:
        if error.reason == "missing_file":
            return False
        raise _unreadable(url, error) from error
    return True


def no_such(url: str) -> ListError:
    """Return the error of a file that is missing, with a suggestion."""
    parent, name = os.path.split(url)
    hint = " (a Kaldi folder has wav.scp and text)" if os.path.isdir(parent) and name in ("text", "wav.scp") else ""
    return ListError(f"there is no {url}{near(url)}{hint}")


def _unreadable(url: str, error: DataError) -> ListError:
    if error.reason == "missing_file":
        return no_such(url)
    if os.path.isdir(url):
        return ListError(f"{url} is a folder, where a list is wanted: uio inspect {url} shows what is in it")
    return ListError(f"cannot read {url}: {error.message}{meant(url)}")
