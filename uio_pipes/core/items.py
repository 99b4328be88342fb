"""The items that flow through a graph before there are utterances: lines of lists, files, records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Protocol

from uio_pipes.base.redact import redact
from uio_pipes.core.sample import Origin
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opening import open_binary


class Item(NamedTuple):
    """One line of a list: its text, its place in the list, and the origin for samples made of it."""

    text: str
    place: str
    origin: Origin
    access: Access = PLAIN
    expected: ShardEntry | None = None  # what the list's manifest says of a shard

    @property
    def key(self) -> str:
        return redact(self.text)

    def __repr__(self) -> str:
        return f"Item({redact(self.text)!r}, {redact(self.place)!r}, {self.origin})"


@dataclass(frozen=True, repr=False)
class File:
    """A file that can be opened, such as a shard. ``place`` is its line in the list."""

    url: str
    place: str
    origin: Origin
    access: Access = PLAIN
    expected: ShardEntry | None = None  # what the list's manifest says

    @property
    def key(self) -> str:
        return redact(self.url)

    def __repr__(self) -> str:
        return f"File({redact(self.url)!r}, {redact(self.place)!r}, {self.origin})"

    def open(self) -> IO[bytes]:
        """Open the file's bytes as they are stored. Raises: DataError if it is missing or cannot be read."""
        stream: IO[bytes] = open_binary(self.url, self.access)
        return stream


class Records(Protocol):
    """A table of utterances: a :class:`~uio_pipes.sources.listing.Listed` that also has their keys and fields."""

    def place(self, number: int) -> str: ...
    def key(self, number: int) -> str: ...

    def fields(self, number: int) -> dict[str, Any]:
        """Return ``key``, ``txt``, ``wav`` (a :class:`~uio_pipes.io.local.Ref` or a path) or ``feat``, and others,
        without reading the audio. Raises: DataError."""


class Record(NamedTuple):
    """One utterance of ``records``, of which nothing has been read yet."""

    records: Records
    number: int
    origin: Origin

    @property
    def key(self) -> str:
        return self.records.key(self.number)

    @property
    def place(self) -> str:
        return self.records.place(self.number)
