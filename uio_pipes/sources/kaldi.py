"""``from_kaldi``: the utterances of Kaldi's ``wav.scp`` or ``feats.scp``, ``text``, ``segments``, ``utt2spk``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.core.stage import added, names
from uio_pipes.formats.kaldi.files import KaldiFiles
from uio_pipes.formats.kaldi.table import FIELDS, KaldiTable
from uio_pipes.formats.naming import check_given
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import RecordListing


@dataclass(frozen=True)
class ListKaldi(RecordListing):
    """Utterances of Kaldi tables. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_kaldi"

    scp: str
    text: str | None = None
    segments: str | None = None
    utt2spk: str | None = None
    shuffle: bool = False
    allow_pipes: bool = added(False)
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given(self.name, self.fields, FIELDS)

    def table(self) -> KaldiTable:
        """Read the tables. Raises: ListError naming file and line."""
        files = KaldiFiles(self.scp, self.text, self.segments, self.utt2spk, self.access)
        return KaldiTable(files, self.access, self.allow_pipes, self.fields)
