"""Kaldi's folder for a part of a corpus: ``wav.scp``, ``text``, and ``segments`` for recordings of many utterances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from uio_pipes.base.errors import ListError
from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.reading import Utterance, open_utterances

from .lists import write_raw_list

__all__ = ["make_raw_list", "read_kaldi", "read_texts", "write_kaldi"]


def write_kaldi(folder: Path, utterances: Iterable[Utterance]) -> None:
    """Write ``wav.scp`` and ``text`` for whole recordings."""
    known = list(utterances)
    write_lines(folder / "wav.scp", (f"{one.key} {one.wav}" for one in known))
    write_lines(folder / "text", (f"{one.key} {one.txt}" for one in known))


def read_kaldi(folder: Path) -> Iterator[Utterance]:
    """Yield the utterances that have audio and text, in the order of ``wav.scp`` or ``segments``. Raises: ListError."""
    if not (folder / "wav.scp").is_file():
        raise ListError(f"there is no {folder / 'wav.scp'}: the recipe's stage 0 writes it")
    return (one for one in open_utterances([str(folder)]) if isinstance(one, Utterance))


def read_texts(folder: Path) -> Iterator[str]:
    """Yield the texts of these utterances."""
    return (one.txt or "" for one in read_kaldi(folder))


def make_raw_list(folder: Path) -> Path:
    """Write ``data.list`` from Kaldi's files; return its path."""
    path = folder / "data.list"
    write_raw_list(path, read_kaldi(folder))
    return path
