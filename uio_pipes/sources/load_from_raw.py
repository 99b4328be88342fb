"""``load_from_raw``: utterances of WeNet's raw lists, a JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError
from uio_pipes.core.features import LOAD_FEATURES
from uio_pipes.core.items import Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Chain, Sample, run_key
from uio_pipes.core.stage import Stage
from uio_pipes.core.upcoming import Upcoming
from uio_pipes.formats.lists.raw_line import parse
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file

__all__ = ["LoadFromRaw"]


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
    refers: ClassVar[bool] = True

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _RawNode(source, lane)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return counts


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
