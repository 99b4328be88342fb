"""``open_files``: each line of the list as a file, opened through fsspec when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.items import File, Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.stage import FileList, Stage, added
from uio_pipes.formats.tar.whole_shard import no_raw_line
from uio_pipes.io.access import CACHE_SIZE, PLAIN, Access


@dataclass(frozen=True)
class OpenFiles(Stage):
    """Treat each line of the list as a file: a path, or any URL that fsspec knows (http(s), s3, oss, gs, …).

    A file is opened when the next stage reads it. Options not given here are those of ``list_files``.

    Args:
        storage_options: options for fsspec's file systems, for all of them (``{"key": …, "secret": …}``) or by
            protocol (``{"s3": {…}}``). They are neither printed nor saved in a state. Default: None.
        cache: local folder that keeps copies of remote files, shared by all processes of the machine. Default:
            None, no copies.
        cache_size: bytes that those copies may take, as a number or as text ("200GB"); the copies that were not
            used for the longest time go first. Default: "100GB".
        interleave: shards that each lane reads at once, an utterance of each in turn. It mixes what is alike within a
            shard (a speaker, a book), and lets a slow shard keep up with its share. Default: 1.
    """

    name: ClassVar[str] = "open_files"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "file"

    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    cache: str | os.PathLike[str] | None = field(default=None, repr=False)
    cache_size: int | str = field(default=CACHE_SIZE, repr=False)
    interleave: int = added(1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.access(PLAIN)
        require(self.interleave >= 1, self.name, "interleave must be 1 or more", self.interleave, "try 8")

    @property
    def files_at_once(self) -> int:
        return self.interleave

    def access(self, given: Access) -> Access:
        """Return the access to files, given that to their list. Raises: PipelineError."""
        own = Access.of(self.name, self.storage_options, self.cache, self.cache_size)
        options = given.storage_options if self.storage_options is None else own.storage_options
        return replace(given if self.cache is None else own, storage_options=options)

    def uncountable_reason(self, kind: str) -> str:
        return "what is in shards and other archives shows only when they are read"

    def files(self, listed: list[FileList]) -> list[FileList]:
        return [FileList(one.lines, self.access(one.access)) for one in listed]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _OpenNode(source, self)


class _OpenNode(Node):
    def __init__(self, source: Node, stage: OpenFiles) -> None:
        super().__init__(source)
        self.stage, self.at_once = stage, stage.interleave
        self.given = PLAIN
        self.access = stage.access(self.given)

    def _reached(self, given: Access) -> Access:
        if given is not self.given:
            self.given, self.access = given, self.stage.access(given)
        return self.access

    def next(self) -> File:
        item: Item = self.source.next()
        no_raw_line(item.text, item.place)
        return File(item.text, item.place, item.origin, self._reached(item.access), item.expected)
