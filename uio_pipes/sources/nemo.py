"""``from_nemo``: the utterances of NeMo's manifests, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.formats.naming import FieldNames
from uio_pipes.formats.nemo.paths import ManifestGroup
from uio_pipes.formats.nemo.table import Manifests, NemoTable
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import RecordListing


@dataclass(frozen=True)
class ListNemo(RecordListing):
    """Rows of NeMo's manifests. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_nemo"
    reasons: ClassVar[frozenset[str]] = frozenset(["skipme"])

    manifests: tuple[ManifestGroup, ...]
    tars: tuple[ManifestGroup, ...] | None = None
    shuffle: bool = False
    names: FieldNames = ()
    access: Access = field(default=PLAIN, repr=False)

    def describe(self, *, stable: bool = False) -> str:
        """As for every listing, with the names of the fields."""
        return f"{self.name}(shuffle={self.shuffle}, names={self.names})" if stable else super().describe()

    def table(self) -> Manifests:
        """Look through the manifests. Raises: ListError."""
        return NemoTable(self.manifests, self.tars, self.access, self.names)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.table().skips else super().count(counts, path)
