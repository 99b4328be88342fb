"""``list_shar``: the shards of a Lhotse Shar, each with its file of every field."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.core.items import Item
from uio_pipes.core.sample import Origin
from uio_pipes.formats.shar.shards import SharTable, Sources
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import Listing


@dataclass(frozen=True)
class ListShar(Listing):
    """Shards of a Lhotse Shar: a folder, or paths (globs and braces too) for each field, but for those ``unread``."""

    name: ClassVar[str] = "list_shar"

    sources: str | Sources
    shuffle: bool = False
    unread: frozenset[str] = frozenset()
    access: Access = field(default=PLAIN, repr=False)

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage, but fingerprints leave the paths out: the files' names have one of their own."""
        return f"list_shar(shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> SharTable:
        """Look up the files. Raises: ListError."""
        return SharTable(self.sources, self.access, self.unread)

    def item(self, table: SharTable, number: int, origin: Origin) -> Item:
        return Item(json.dumps(table.shards[number]), table.place(number), origin)
