"""Corpora on the command line: ``NAME:FOLDER``, with choices as ``gigaspeech2,part=raw+dev,lang=th:FOLDER``; a card of
one's own is ``FILE.py:NAME:FOLDER``."""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import counted, is_named
from uio_pipes.formats.lists.lines import ARCHIVES as TARS
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.corpora.card import Corpus
from uio_pipes.sources.corpora.finding import There, everything, find
from uio_pipes.sources.corpora.source import CORPORA, card_of
from uio_pipes.sources.table.archives import files_named

ARCHIVES = (*TARS, ".zip")
_NAMED = re.compile(r"(?:(?P<file>[^:]+\.py):)?(?P<name>\w+)(?P<choices>(?:,\w+=[^,:]+)*):(?!//)(?P<folder>.+)")


class NamedCorpus(NamedTuple):
    """A corpus in a folder, as named on the command line. ``wanted``: values by "part" or the names of options."""

    card: Corpus
    folder: str
    wanted: Mapping[str, Sequence[str]]

    def found(self) -> There:
        """Return what is wanted of it. Raises: PipelineError, ListError."""
        return find(self.card, self.folder, self.wanted, PLAIN)

    def parts(self) -> Iterator[tuple[str, There]]:
        """Yield each part that is wanted, or else that is there at all, in the first layout that has it.

        Raises: PipelineError, ListError.
        """
        if "part" in self.wanted:
            there = self.found()
            yield from ((part, there._replace(choices={part: some})) for part, some in there.choices.items())
            return
        seen = {part for there in everything(self.card, self.folder, self.wanted, PLAIN) for part in there.choices}
        if not seen:
            self.found()  # says what was looked for
        for part in (part for part in self.card.parts if part in seen):
            yield part, find(self.card, self.folder, {**self.wanted, "part": [part]}, PLAIN)

    def kind(self, there: There, part: str = "") -> str:
        """Return what there is in words: part, layout, how many archives."""
        archives = {path for name in there.archives() for path in files_named(name) if is_named(path, ARCHIVES)}
        what = [part or self.card.name, there.layout.form, *([counted(len(archives), "archive")] if archives else [])]
        return ", ".join(what)

    @property
    def named(self) -> str | Corpus:
        """The name of a published corpus, the card of any other one."""
        return self.card.name if CORPORA.get(self.card.name) is self.card else self.card


def named_corpus(text: str) -> NamedCorpus | None:
    """Return the corpus that a text names; None if it is a path. Raises: PipelineError, ListError."""
    found = _NAMED.fullmatch(text)
    if found is None or os.path.exists(text):
        return None
    name, folder = found["name"], found["folder"]
    if not (found["file"] or name in CORPORA or found["choices"] or os.path.isdir(folder)):
        return None
    pairs = [choice.split("=", 1) for choice in found["choices"].split(",")[1:]]
    wanted = {option: value.split("+") for option, value in pairs}
    return NamedCorpus(own_card(found["file"], name) if found["file"] else card_of(name), folder, wanted)


def own_card(file: str, name: str) -> Corpus:
    """Return a card that a Python file defines. Raises: ListError."""
    if not os.path.isfile(file):
        raise ListError(f"there is no {file} with the card of a corpus")
    card = runpy.run_path(file).get(name)
    if not isinstance(card, Corpus):
        raise ListError(f"{file} has no card {name}: write {name} = uio.Corpus(…) in it")
    return card
