"""``from_indexed``: the utterances of TouchDatasets, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from uio_pipes.base.checks import require
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
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
    verify: Literal["crc"] | None = None
    indexes: str | None = None
    texts: tuple[str, ...] | None = added(DEFAULT)
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
        given = dict(names_of("from_indexed", self.fields))
        rule = "fields are names in the metadata, and audio is in audio.bin, not there"
        require(given.keys().isdisjoint(["wav", "feat"]), "from_indexed", rule, given, "leave wav and feat out")

    @property
    def textless(self) -> bool:  # type: ignore[override]
        return self.texts is None

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        stage = self if lane.needs_text else replace(self, texts=())
        return super(ListIndexed, stage).build(source, lane, site)

    def table(self) -> IndexedTable:
        verify, texts = self.verify == "crc", self.texts or ()
        return IndexedTable(self.dirs, self.metainfo, self.access, verify, self.indexes, texts, self.fields)
