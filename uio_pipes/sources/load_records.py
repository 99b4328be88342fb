"""``load_records``: utterances of sources that are read in any order (indexed tars, TouchDataset, Kaldi's tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError
from uio_pipes.core.features import LOAD_FEATURES
from uio_pipes.core.items import Record
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Chain, Sample, run_key
from uio_pipes.core.stage import Stage
from uio_pipes.core.upcoming import Upcoming

__all__ = ["LoadRecords"]


@dataclass(frozen=True)
class LoadRecords(Stage):
    """Read the utterances of a source that is read in any order: indexed tars, TouchDatasets, Kaldi tables.

    ``uio.from_tar_index``, ``uio.from_indexed`` and ``uio.from_kaldi`` end with this stage. Audio is read when the
    batch is made.
    """

    name: ClassVar[str] = "load_records"
    takes: ClassVar[tuple[str, ...]] = ("record",)
    gives: ClassVar[str] = "sample"
    refers: ClassVar[bool] = True

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _RecordsNode(source, lane)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return counts


class _RecordsNode(Node):
    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane
        self.chain, self.run_key = Chain(), run_key(lane)
        self.upcoming: Upcoming[Record] = Upcoming(source, lambda r: r.records.fields(r.number), lane.ledger)

    def next(self) -> Sample:
        while True:
            record, fields = self.upcoming.next()
            if isinstance(fields, DataError):
                fields.key, fields.item = fields.key or record.key, record.origin.item
                self.lane.ledger.fail(fields, LoadRecords.name)
            else:
                self.lane.ledger.fine(LoadRecords.name)
                chain = self.chain.then(LOAD_FEATURES) if "feat" in fields else self.chain
                place = record.records.place(record.number)
                return Sample(fields, record.origin, self.run_key, chain, place)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        self.upcoming.clear()
        super().reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        return self.upcoming.get_state()

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.upcoming)
