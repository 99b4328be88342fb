"""``list_files``: the lines of data lists, in the epoch's order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.core.items import Item
from uio_pipes.core.sample import Origin
from uio_pipes.core.stage import FileList
from uio_pipes.formats.lists.table import Table
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import Listing


@dataclass(frozen=True)
class ListFiles(Listing):
    """Lines of data lists. ``shuffle``: in another order in each epoch, by hashes of seed, epoch and number."""

    name: ClassVar[str] = "list_files"

    paths: tuple[str, ...]
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> Table:
        """Read the lists. Raises: ListError naming list and line."""
        return Table(self.paths, self.access)

    def files(self, listed: list[FileList]) -> list[FileList]:
        return [FileList(self.table, self.access)]

    def item(self, table: Table, number: int, origin: Origin) -> Item:
        return Item(table[number], table.place(number), origin, self.access, table.expected(number))
