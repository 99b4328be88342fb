"""What flows through a graph before there are utterances: lines of lists, files, records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Protocol

from uio_pipes.base.redact import redact
from uio_pipes.core.sample import Origin
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opening import open_binary

__all__ = ["File", "Item", "Record", "Records"]


class Item(NamedTuple):
    """One line of a list: its text, where it stands, and the origin of what will come out of it."""

    text: str
    place: str
    origin: Origin
    access: Access = PLAIN
    expected: ShardEntry | None = None  # of a shard, where the list has a manifest

    @property
    def key(self) -> str:
        return redact(self.text)


@dataclass(frozen=True)
class File:
    """A file that can be opened: a shard. ``place`` is its line in the list."""

    url: str
    place: str
    origin: Origin
    access: Access = PLAIN
    expected: ShardEntry | None = None  # what the list's manifest says

    @property
    def key(self) -> str:
        return redact(self.url)

    def open(self) -> IO[bytes]:
        """The file's bytes as they are stored. Raises: DataError if it is missing or cannot be read."""
        stream: IO[bytes] = open_binary(self.url, self.access)
        return stream


class Records(Protocol):
    """Utterances by number: what :class:`~uio_pipes.sources.listing.Listed` says, and their fields."""

    def __len__(self) -> int: ...
    def place(self, number: int) -> str: ...
    def key(self, number: int) -> str:
        """The utterance's name."""

    def fields(self, number: int) -> dict[str, Any]:
        """``key``, ``txt``, ``wav`` (a :class:`~uio_pipes.io.local.Ref`, or a path) or ``feat``, and others. Audio is
        not read. Raises: DataError."""


class Record(NamedTuple):
    """One utterance of ``records``, not looked at yet."""

    records: Records
    number: int
    origin: Origin

    @property
    def key(self) -> str:
        return self.records.key(self.number)

    @property
    def place(self) -> str:
        return self.records.place(self.number)
