"""``load_records``: utterances of sources that are read in any order (indexed tars, TouchDatasets, Kaldi tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError
from uio_pipes.core.items import Record
from uio_pipes.sources.loading import Loading


@dataclass(frozen=True)
class LoadRecords(Loading):
    """Read the utterances of a source that is read in any order: indexed tars, TouchDatasets, Kaldi tables, manifests.

    ``uio.from_tar_index``, ``uio.from_indexed``, ``uio.from_kaldi``, ``uio.from_nemo`` and others end with this stage.
    Audio is read when the batch is made.
    """

    name: ClassVar[str] = "load_records"
    takes: ClassVar[tuple[str, ...]] = ("record",)

    def load(self, item: Record) -> dict[str, Any]:
        return item.records.fields(item.number)

    def key(self, item: Record, error: DataError) -> str:
        return error.key or item.key
