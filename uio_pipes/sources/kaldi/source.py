"""``from_kaldi``: the utterances of Kaldi's ``wav.scp`` or ``feats.scp``, ``text``, ``segments`` and ``utt2spk``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.urls import AnyPath, is_named
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY, names
from uio_pipes.formats.advice import usual_of
from uio_pipes.formats.naming import check_given
from uio_pipes.io.access import PLAIN, Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.kaldi.table import KaldiTable
from uio_pipes.sources.kaldi.tables import KaldiFiles
from uio_pipes.sources.seen import Found, Seen

FIELDS = ("key", "wav", "feat", "start", "end", "txt", "speaker")  # that tables can give


@dataclass(frozen=True)
class ListKaldi(Source):
    """Utterances of Kaldi tables. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_kaldi"
    sentence: ClassVar[str] = "a Kaldi folder: `wav.scp` or `feats.scp`, `text`, `segments`"

    scp: str = field(metadata=NO_IDENTITY)
    text: str | None = field(default=None, metadata=NO_IDENTITY)
    segments: str | None = field(default=None, metadata=NO_IDENTITY)
    utt2spk: str | None = field(default=None, metadata=NO_IDENTITY)
    shuffle: bool = False
    allow_pipes: bool = False
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given(self.name, self.fields, FIELDS)

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not {"wav.scp", "feats.scp"} & seen.names:
            return Found("Kaldi's scp", from_kaldi, (seen.path,)) if is_named(seen.path, (".scp",)) else None
        kind, text = "Kaldi data folder", None if "text" in seen.names else usual_of("txt", seen.names)
        if text is None:
            return Found(kind, from_kaldi, (seen.path,))
        return Found(f"{kind}, {text} taken as text", from_kaldi, (seen.path,), {"text": os.path.join(seen.path, text)})

    def table(self) -> KaldiTable:
        """Read the tables. Raises: ListError naming file and line."""
        files = KaldiFiles(self.scp, self.text, self.segments, self.utt2spk, self.access)
        return KaldiTable(files, self.access, self.allow_pipes, self.fields)


@reaches_files
def from_kaldi(
    scp: AnyPath,
    text: AnyPath | None = None,
    *,
    segments: AnyPath | None = None,
    utt2spk: AnyPath | None = None,
    shuffle: bool = False,
    allow_pipes: bool = False,
    fields: Mapping[str, str] | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from Kaldi's tables, whose utterances are read in any order.

    Args:
        scp: ``wav.scp`` (paths, URLs, ``.ark:offset`` of audio, pipes) or ``feats.scp`` (``.ark:offset``, with
            ``[first:last]`` rows if wanted), distinguished by what they point at; or a data folder, whose tables are
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
        fields: other names for fields by those that the tables give, as in ``{"words": "txt"}``. Default: None, no
            others.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument is not a path.
        ListError: when the pipeline runs, if a table is missing or malformed, or a key stands in it twice.
    """
    named = {"scp": scp, "text": text, "segments": segments, "utt2spk": utt2spk}
    paths = {name: _path(name, value) for name, value in named.items() if value is not None or name == "scp"}
    stage = ListKaldi(
        **paths,
        shuffle=shuffle,
        allow_pipes=allow_pipes,
        access=Access.of("from_kaldi", **access),
        fields=fields,
    )
    return Pipeline((stage,)).sharding_filter().load_records()


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    require(bool(path), "from_kaldi", f"{name} must be a path or URL", value, "name a file")
    return str(path)
