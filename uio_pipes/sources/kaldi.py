"""``from_kaldi``: the utterances of Kaldi's ``wav.scp`` or ``feats.scp``, ``text``, ``segments``, ``utt2spk``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.core.items import Record
from uio_pipes.core.sample import Origin
from uio_pipes.formats.kaldi.files import KaldiFiles
from uio_pipes.formats.kaldi.table import KaldiTable
from uio_pipes.io.access import Access
from uio_pipes.sources.listing import Listing

__all__ = ["ListKaldi"]


@dataclass(frozen=True)
class ListKaldi(Listing):
    """Utterances of Kaldi's tables. ``shuffle``: in another order each epoch, without a buffer."""

    name: ClassVar[str] = "list_kaldi"
    gives: ClassVar[str] = "record"

    scp: str
    text: str | None = None
    segments: str | None = None
    utt2spk: str | None = None
    shuffle: bool = False
    allow_pipes: bool = False
    access: Access = field(default_factory=Access)

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; for fingerprints without the paths: what the tables hold has a fingerprint of its own."""
        return f"list_kaldi(shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> KaldiTable:
        """Read the tables. Raises: ListError naming file and line."""
        files = KaldiFiles(self.scp, self.text, self.segments, self.utt2spk, self.access)
        return KaldiTable(files, self.access, self.allow_pipes)

    def item(self, table: KaldiTable, number: int, origin: Origin) -> Record:
        return Record(table, number, origin)
