"""``load_from_raw``: utterances of WeNet's raw lists, a JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.errors import DataError
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Chain, Sample, run_key
from uio_pipes.sources.features import LOAD_FEATURES
from uio_pipes.sources.list_files import Item, list_files
from uio_pipes.sources.raw_line import parse
from uio_pipes.stage import Stage

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["LoadFromRaw", "from_raw_list"]


@dataclass(frozen=True)
class LoadFromRaw(Stage):
    """Utterances of a raw list: ``{"key": …, "wav": path or URL, "txt": …}`` a line.

    Optional: ``start`` and ``end`` (seconds: a segment of the recording), ``duration`` (seconds: saves reading the
    header), ``speaker``, ``feat`` (path of a .npy array (T, F) instead of ``wav``), and whatever else: kept as
    fields.
    """

    name: ClassVar[str] = "load_from_raw"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "sample"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _RawNode(source, lane)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return counts

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


class _RawNode(Node):
    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane
        self.chain, self.run_key = Chain(), run_key(lane)

    def next(self) -> Sample:
        while True:
            item: Item = self.source.next()
            try:
                fields = parse(item.text, item.place)
            except DataError as error:
                self.lane.ledger.fail(error, LoadFromRaw.name)
            else:
                self.lane.ledger.fine(LoadFromRaw.name)
                chain = self.chain.then(LOAD_FEATURES) if "feat" in fields else self.chain
                return Sample(fields, item.origin, self.run_key, chain, item.place)


def from_raw_list(paths: Any, *, shuffle: bool = False) -> Pipeline:
    """Utterances from raw lists: ``list_files(…).sharding_filter().load_from_raw()``."""
    return list_files(paths, shuffle=shuffle).sharding_filter().load_from_raw()
