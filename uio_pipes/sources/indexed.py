"""``from_indexed``: the utterances of TouchDatasets, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from uio_pipes.base.checks import require
from uio_pipes.core.stage import added, names
from uio_pipes.formats.naming import names_of
from uio_pipes.formats.touch.folder import DEFAULT
from uio_pipes.formats.touch.table import IndexedTable
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import RecordListing


@dataclass(frozen=True)
class ListIndexed(RecordListing):
    """Utterances of TouchDatasets, none read yet. ``shuffle``: in another random order in each epoch."""

    name: ClassVar[str] = "list_indexed"

    dirs: tuple[str, ...]
    shuffle: bool = False
    metainfo: str | None = None
    verify: Literal["crc"] | None = added(None)
    indexes: str | None = None
    texts: tuple[str, ...] = added(DEFAULT)
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names()

    def __post_init__(self) -> None:
        ok = self.metainfo is None or (isinstance(self.metainfo, str) and self.metainfo and "/" not in self.metainfo)
        rule = "metainfo must be the name of a pair of files without .bin or .idx"
        require(bool(ok), "from_indexed", rule, self.metainfo, 'try "metainfo_v2"')
        ok = self.verify in (None, "crc")
        require(ok, "from_indexed", "verify must be 'crc' or None", self.verify, "leave it out")
        ok = isinstance(self.shuffle, bool)
        require(ok, "from_indexed", "shuffle must be True or False", self.shuffle, "choose one")
        names_of("from_indexed", self.fields)

    def table(self) -> IndexedTable:
        verify = self.verify == "crc"
        return IndexedTable(self.dirs, self.metainfo, self.access, verify, self.indexes, self.texts, self.fields)
