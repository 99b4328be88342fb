"""Kaldi's folder of a part of a corpus: ``wav.scp``, ``text``; ``segments`` for recordings of several utterances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from uio_pipes.errors import ListError
from uio_pipes.prep.files import write_lines
from uio_pipes.prep.lists import Utterance

from .lists import write_raw_list

__all__ = ["make_raw_list", "read_kaldi", "read_texts", "write_kaldi"]


def write_kaldi(folder: Path, utterances: Iterable[Utterance]) -> None:
    """``wav.scp`` and ``text`` of whole recordings."""
    known = list(utterances)
    write_lines(folder / "wav.scp", (f"{one.key} {one.wav}" for one in known))
    write_lines(folder / "text", (f"{one.key} {one.txt}" for one in known))


def read_kaldi(folder: Path) -> Iterator[Utterance]:
    """The utterances that have audio and text, in the order of ``wav.scp`` (or ``segments``). Raises: ListError."""
    texts, wavs = dict(_pairs(folder / "text")), dict(_pairs(folder / "wav.scp"))
    if (folder / "segments").is_file():
        for key, rest in _pairs(folder / "segments"):
            recording, start, end = rest.split()
            if key in texts and recording in wavs:
                yield Utterance(key, wavs[recording], texts[key], float(start), float(end), recording)
    else:
        yield from (Utterance(key, wav, texts[key]) for key, wav in wavs.items() if key in texts)


def read_texts(folder: Path) -> Iterator[str]:
    """The texts, without their keys."""
    return (text for _, text in _pairs(folder / "text"))


def make_raw_list(folder: Path) -> Path:
    """``data.list`` from the others."""
    path = folder / "data.list"
    write_raw_list(path, read_kaldi(folder))
    return path


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Key and the rest of each line that has both."""
    if not path.is_file():
        raise ListError(f"there is no {path}: the recipe's stage 0 writes it")
    with path.open(encoding="utf-8") as file:
        for line in file:
            key, *rest = line.split(maxsplit=1)
            if rest:
                yield key, rest[0].strip()
