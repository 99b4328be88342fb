"""``load_from_raw``: utterances of WeNet's raw lists, a JSON object a line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.base.errors import DataError
from uio_pipes.core.features import LOAD_FEATURES
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Chain, Sample, run_key
from uio_pipes.core.stage import Stage
from uio_pipes.core.upcoming import Upcoming
from uio_pipes.formats.lists.raw_line import parse
from uio_pipes.io.access import CACHE_SIZE
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.sources.list_files import Item, list_files

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["LoadFromRaw", "from_raw_list"]


@dataclass(frozen=True)
class LoadFromRaw(Stage):
    """Read the utterances of a raw list: one JSON object per line, ``{"key": …, "wav": path or URL, "txt": …}``.

    A line may also have ``start`` and ``end`` (seconds: the utterance is that segment of the recording),
    ``duration`` (seconds: the audio's header is then not read to plan), ``speaker``, ``feat`` (path of a .npy array
    (T, F), instead of ``wav``), and any other name: all are kept as fields.
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
        self.upcoming: Upcoming[Item] = Upcoming(source, _load, lane.ledger)

    def next(self) -> Sample:
        while True:
            item, fields = self.upcoming.next()
            if isinstance(fields, DataError):
                fields.key, fields.item = fields.member, item.origin.item
                self.lane.ledger.fail(fields, LoadFromRaw.name)
            else:
                self.lane.ledger.fine(LoadFromRaw.name)
                chain = self.chain.then(LOAD_FEATURES) if "feat" in fields else self.chain
                return Sample(fields, item.origin, self.run_key, chain, item.place)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        self.upcoming.clear()
        super().reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        return self.upcoming.get_state()

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.upcoming)


def _load(item: Item) -> dict[str, Any]:
    """Fields of one line; what is remote as a reference."""
    fields = parse(item.text, item.place)
    for name in ("wav", "feat"):
        value = fields.get(name)
        if isinstance(value, str) and is_local(value) is None:
            fields[name] = Whole(open_file(value, item.access))
    return fields


def from_raw_list(
    paths: Any,
    *,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from raw lists (JSON lines): ``list_files(…).sharding_filter().load_from_raw()``.

    Args:
        paths: raw lists, or their lines as dicts, as for :func:`list_files`.
        shuffle: whether to deal the lines, and so the utterances, in another order in each epoch. Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote audio. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a list is missing, empty or no raw list.
    """
    listed = list_files(paths, shuffle=shuffle, storage_options=storage_options, cache=cache, cache_size=cache_size)
    return listed.sharding_filter().load_from_raw()
