"""Kaldi's tables as they are packed: those of one or several scps, as if all were one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from uio_pipes.base.urls import inside
from uio_pipes.formats.advice import usual_of
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.kaldi.table import JoinedColumn, KaldiTable
from uio_pipes.sources.kaldi.tables import KaldiFiles, KaldiLines, is_folder
from uio_pipes.sources.seen import exists, no_such


class _Joined(KaldiFiles):
    """The tables of several scps, or of the folders that have them; ``texts``: in place of the ``text`` beside each,
    None if there need be none."""

    def __init__(self, sources: Sequence[str], texts: Sequence[str] | None, segments: str | None) -> None:
        scps = [_scp(source) for source in sources]
        self._folders = list(dict.fromkeys(scp.rpartition("/")[0] for scp in scps))
        self.scp = read_tables(scps, 1)
        named = self._beside("text") if texts is None else texts or [_text_in(folder) for folder in self._folders]
        self.text = read_tables(named, 0) if named else None
        cut = len(sources) == 1 and scps[0].endswith("wav.scp")
        named = [segments] if segments else self._beside("segments") if cut else []
        self.segments = read_tables(named, 3, 3) if named else None
        beside = map(self._beside, ("utt2spk", "utt2dur", "utt2num_frames"))
        self.speakers, self._durations, self._frames = (read_tables(paths, 1, 1) if paths else None for paths in beside)

    def _beside(self, name: str) -> Sequence[str]:
        return [path for path in (inside(folder, name) for folder in self._folders) if exists(path)]


class _Table(KaldiTable):
    """Utterances, of which some may have no speaker, nor a text unless it is needed."""

    def __init__(self, files: KaldiFiles, allow_pipes: bool, needs_text: bool) -> None:
        super().__init__(files, PLAIN, allow_pipes)
        self._needs_text = needs_text

    def value(self, column: JoinedColumn, number: int) -> Any:
        found = self.find(column, number)
        return super().value(column, number) if found is None and column == "text" and self._needs_text else found

    def fields(self, number: int) -> dict[str, Any]:
        return {name: value for name, value in super().fields(number).items() if value is not None}


def read_tables(urls: Sequence[str], least: int, most: int | None = None) -> KaldiLines:
    """Read one of Kaldi's tables, in one or several files; ``least``, ``most``: words after the key.

    Raises: ListError, with a suggestion for a file that is missing.
    """
    if missing := next((url for url in urls if not exists(url)), None):
        raise no_such(missing)
    return KaldiLines(urls, least, most)


def kaldi_table(
    sources: Sequence[str], texts: Sequence[str] | None, segments: str | None, allow_pipes: bool
) -> KaldiTable:
    """Return the utterances of scps, or of folders with ``wav.scp`` or ``feats.scp``. Raises: ListError."""
    return _Table(_Joined(sources, texts, segments), allow_pipes, texts is not None)


def _scp(source: str) -> str:
    if not is_folder(source):
        return source
    return next((path for name in ("wav.scp", "feats.scp") if exists(path := f"{source}/{name}")), f"{source}/wav.scp")


def _text_in(folder: str) -> str:
    """Return the path of ``text`` or, if there is none, of what seems to be it."""
    path = inside(folder, "text")
    there = (
        os.listdir(folder or ".") if "://" not in folder and not exists(path) and os.path.isdir(folder or ".") else []
    )
    return inside(folder, usual_of("txt", there) or "text")
