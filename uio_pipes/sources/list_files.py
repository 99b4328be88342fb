"""``list_files``: the lines of data lists, in the epoch's order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from uio_pipes.base.checks import require
from uio_pipes.base.redact import redact
from uio_pipes.core.sample import Origin
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.lists.table import Table
from uio_pipes.io.access import CACHE_SIZE, PLAIN, Access
from uio_pipes.sources.listing import Listing

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

Entry = str | os.PathLike[str] | Mapping[str, object]

__all__ = ["Item", "ListFiles", "list_files"]


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
class ListFiles(Listing):
    """Lines of data lists. ``shuffle``: in another order each epoch, by hashes of seed, epoch and number."""

    name: ClassVar[str] = "list_files"

    paths: tuple[str, ...]
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; for fingerprints without the paths: what the lists hold has a fingerprint of its own."""
        return f"list_files(shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> Table:
        """Read the lists. Raises: ListError naming list and line."""
        return Table(self.paths, self.access)

    def item(self, table: Table, number: int, origin: Origin) -> Item:
        return Item(table[number], table.place(number), origin, self.access, table.expected(number))

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


def list_files(
    paths: str | os.PathLike[str] | Iterable[Entry],
    *,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from data lists.

    Args:
        paths: list file(s) with a path, URL or JSON object per line; globs; ``{a,b}`` and ``{00..99}`` braces;
            URLs; names of tar shards themselves (``data/*.tar``); JSON objects as dicts. Give one, or several in a
            Python list. In list files, blank lines and lines that start with ``#`` are ignored.
        shuffle: whether to deal the lines in another order in each epoch. Default: False.
        storage_options: options for fsspec's file systems, with which lists, shards and audio are read: ``{"key":
            …, "secret": …}`` for all, or by protocol: ``{"s3": {…}, "https": {"headers": {…}}}``. They are neither
            printed nor saved in a state. Default: None.
        cache: local folder that keeps copies of remote files, shared by all processes of the machine. Default:
            None, no copies.
        cache_size: bytes that those copies may take, as a number or as text ("200GB"); the copies that were not
            used for the longest time go first. Default: "100GB".

    Raises:
        PipelineError: nothing was given, or something that is no path.
        ListError: when the pipeline runs, if a list is missing, empty or no list.
    """
    from uio_pipes.pipeline import Pipeline

    one = isinstance(paths, (str, os.PathLike, Mapping))
    require(
        one or isinstance(paths, Iterable), "list_files", "paths must be a path or a list of paths", paths, "name one"
    )
    given = [paths] if one else list(paths)  # type: ignore[arg-type]
    require(bool(given), "list_files", "at least one list or shard must be given", paths, "name a list file")
    access = Access.of("list_files", storage_options, cache, cache_size)
    return Pipeline((ListFiles(tuple(map(_entry, given)), shuffle, access),))


def _entry(entry: object) -> str:
    if isinstance(entry, Mapping):
        return json.dumps(dict(entry), ensure_ascii=False)
    path = os.fspath(entry) if isinstance(entry, (str, os.PathLike)) else ""
    require(
        bool(path.strip()),
        "list_files",
        "each entry must be a path, a URL or a dict of one utterance",
        entry,
        "name a list file",
    )
    return str(path)
