"""``open_files``: each line of the list as a file, opened through fsspec when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, ClassVar

from uio_pipes.errors import ListError
from uio_pipes.io.opening import open_binary
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Origin
from uio_pipes.sources.list_files import Item
from uio_pipes.stage import Stage

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["File", "OpenFiles"]


@dataclass(frozen=True)
class File:
    """A file that can be opened: a shard. ``place`` is its line in the list."""

    url: str
    place: str
    origin: Origin

    @property
    def key(self) -> str:
        return self.url

    def open(self) -> IO[bytes]:
        """The file's bytes as they are stored. Raises: DataError if it is missing or cannot be read."""
        stream: IO[bytes] = open_binary(self.url)
        return stream


@dataclass(frozen=True)
class OpenFiles(Stage):
    """Files from a path or any URL that fsspec knows (file, http(s), s3, oss, memory, …), a line each."""

    name: ClassVar[str] = "open_files"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "file"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _OpenNode(source)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


class _OpenNode(Node):
    def next(self) -> File:
        item: Item = self.source.next()
        if item.text.startswith("{"):
            raise ListError(
                f"{item.place} is a JSON object, not a path or URL of a shard: {item.text[:80]} … "
                "This is a raw list: use from_raw_list (WeNet's data_type raw)"
            )
        return File(item.text, item.place, item.origin)
