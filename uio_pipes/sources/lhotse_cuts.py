"""``from_lhotse_cuts``: the cuts of Lhotse's manifests, in any order, read without Lhotse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.core.stage import added
from uio_pipes.formats.lhotse.cut import Pairs
from uio_pipes.formats.lhotse.table import CutTable
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import RecordListing


@dataclass(frozen=True)
class ListCuts(RecordListing):
    """Cuts of Lhotse's manifests. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_cuts"

    paths: tuple[str, ...]
    shuffle: bool = False
    fields: Pairs = ()
    allow_pipes: bool = added(False)
    access: Access = field(default=PLAIN, repr=False)

    def describe(self, *, stable: bool = False) -> str:
        """As for every listing; which fields are read is part of a fingerprint, too."""
        shown = f"{self.name}(shuffle={self.shuffle}, fields={self.fields}{self._named()})"
        return shown if stable else super().describe()

    def table(self) -> CutTable:
        """Read the manifests. Raises: ListError."""
        return CutTable(self.paths, self.access, self.fields, self.allow_pipes)
