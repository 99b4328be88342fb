"""``from_indexed``: the utterances of TouchDatasets, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from uio_pipes.base.checks import require
from uio_pipes.core.items import Record
from uio_pipes.core.sample import Origin
from uio_pipes.formats.touch.table import IndexedTable
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import Listing

__all__ = ["ListIndexed"]


@dataclass(frozen=True)
class ListIndexed(Listing):
    """Utterances of TouchDatasets, none read yet. ``shuffle``: in another order each epoch, truly random."""

    name: ClassVar[str] = "list_indexed"
    gives: ClassVar[str] = "record"

    dirs: tuple[str, ...]
    shuffle: bool = False
    metainfo: str | None = None
    verify: Literal["crc"] | None = None
    indexes: str | None = None
    access: Access = field(default=PLAIN, repr=False)

    def __post_init__(self) -> None:
        ok = self.metainfo is None or (isinstance(self.metainfo, str) and self.metainfo and "/" not in self.metainfo)
        rule = "metainfo must be the name of a pair of files without .bin or .idx"
        require(bool(ok), "from_indexed", rule, self.metainfo, 'try "metainfo_v2"')
        require(
            self.verify in (None, "crc"), "from_indexed", "verify must be 'crc' or None", self.verify, "leave it out"
        )
        require(isinstance(self.shuffle, bool), "from_indexed", "shuffle must be True or False", self.shuffle, "say")

    def describe(self, *, stable: bool = False) -> str:
        """For fingerprints without the paths: what the indexes hold has a fingerprint of its own."""
        return f"list_indexed(shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> IndexedTable:
        return IndexedTable(self.dirs, self.metainfo, self.access, self.verify == "crc", self.indexes)

    def item(self, table: IndexedTable, number: int, origin: Origin) -> Record:
        return Record(table, number, origin)
