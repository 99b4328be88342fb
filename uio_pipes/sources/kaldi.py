"""``from_kaldi``: the utterances of Kaldi's ``wav.scp`` or ``feats.scp``, ``text``, ``segments``, ``utt2spk``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.sample import Origin
from uio_pipes.formats.kaldi.files import KaldiFiles
from uio_pipes.formats.kaldi.table import KaldiTable
from uio_pipes.io.access import Access
from uio_pipes.sources.listing import Listing
from uio_pipes.sources.load_records import Record

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["ListKaldi", "from_kaldi"]

Path = str | os.PathLike[str]


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

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


def from_kaldi(
    scp: Path,
    text: Path | None = None,
    *,
    segments: Path | None = None,
    utt2spk: Path | None = None,
    shuffle: bool = False,
    allow_pipes: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from Kaldi's tables, whose utterances are read in any order.

    Args:
        scp: ``wav.scp`` (paths, URLs, ``.ark:offset`` of audio, pipes) or ``feats.scp`` (``.ark:offset``, with
            ``[first:last]`` rows if wanted), told apart by what they point at; or a data folder, whose tables are
            used, and ``wav.scp`` if it has both. Relative paths in a table start at the working directory, as in
            Kaldi.
        text: table of ``KEY words …`` per line, for the field ``txt``. An utterance without a line is counted as
            ``missing_text``, a line without an utterance as ``missing_recording``. Default: None, the folder's own,
            or no text.
        segments: table of ``KEY RECORDING start end`` per line, in seconds; an end of -1 is the end of the
            recording. Default: None, the folder's own, or none.
        utt2spk: table of ``KEY SPEAKER`` per line, for the field ``speaker``. Default: None, the folder's own, or
            none.
        shuffle: whether to deal the utterances in another order in each epoch. Default: False.
        allow_pipes: whether to run the commands that ``wav.scp`` may have in place of paths (``sox … |``); they run
            without a shell. Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: an argument is no path.
        ListError: when the pipeline runs, if a table is missing or malformed, or a key stands in it twice.
    """
    from uio_pipes.pipeline import Pipeline

    named = {"scp": scp, "text": text, "segments": segments, "utt2spk": utt2spk}
    paths = {name: _path(name, value) for name, value in named.items() if value is not None or name == "scp"}
    stage = ListKaldi(
        **paths, shuffle=shuffle, allow_pipes=allow_pipes, access=Access.of("from_kaldi", storage_options)
    )
    return Pipeline((stage,)).sharding_filter().load_records()


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    require(bool(path), "from_kaldi", f"{name} must be a path or URL", value, "name a file")
    return str(path)
