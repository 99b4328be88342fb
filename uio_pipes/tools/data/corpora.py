"""Corpora on the command line: ``NAME:FOLDER``, with choices as ``gigaspeech2,part=raw+dev,lang=th:FOLDER``; a card, or
a format, of one's own is ``FILE.py:NAME:DATA``. Cards as text: a table of all, a section of Markdown for each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uio_pipes.base.errors import ListError
from uio_pipes.base.modules import module_at
from uio_pipes.base.urls import is_named, name_of, plural
from uio_pipes.formats.lists.lines import ARCHIVES as TARS
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.corpora.card import Corpus, largest
from uio_pipes.sources.corpora.finding import There, everything, find
from uio_pipes.sources.corpora.source import CORPORA, card_of, from_corpus
from uio_pipes.sources.format import Format
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.sources.table.archives import files_named

ARCHIVES = (*TARS, ".zip")
_NAMED = re.compile(r"(?:(?P<file>[^:]+\.py):)?(?P<name>\w+)(?P<choices>(?:,\w+=[^,:]+)*):(?!//)(?P<folder>.+)")


class NamedCorpus(NamedTuple):
    """A corpus in a folder, as named on the command line; ``name`` may be FILE.py:NAME. ``wanted``: values by "part" or
    the names of options."""

    name: str
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
        """Return what there is in words: part, layout, how many archives, and the first and last of these."""
        named = (path for name in there.archives() for path in files_named(name) if is_named(path, ARCHIVES))
        archives = sorted(map(name_of, set(named)), key=lambda name: (len(name), name))
        ends = " … ".join(dict.fromkeys([*archives[:1], *archives[-1:]]))
        what = [f"{plural(len(archives), 'archive')} ({ends})"] if archives else []
        return ", ".join([part or self.card.name, there.layout.form, *what])


def named_corpus(text: str) -> NamedCorpus | None:
    """Return the corpus that a text names; None if it is a path. Raises: PipelineError, ListError."""
    if (found := _named(text)) is None or _own_format(found) is not None:
        return None
    name, folder = found["name"], found["folder"]
    if not (found["file"] or name in CORPORA or found["choices"] or os.path.isdir(folder)):
        return None
    pairs = [choice.split("=", 1) for choice in found["choices"].split(",")[1:]]
    wanted = {option: value.split("+") for option, value in pairs}
    named = f"{found['file']}:{name}" if found["file"] else name
    return NamedCorpus(named, card_of(named), folder, wanted)


class Named:
    """A corpus in a folder, or data of a format of one's own, as named on the command line."""

    sentence = "a published corpus, packed or extracted"

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        """Return how they are read. Raises: PipelineError, ListError, also if the data are of another format."""
        named = _named(seen.path)
        if named and (own := _own_format(named)) is not None:
            if named["choices"]:
                raise ListError(
                    f"{seen.path}: {named['name']} is a format, which has no {named['choices'][1:]}: leave it out"
                )
            if (found := own.recognize(Seen(named["folder"], seen.fields))) is None:
                raise ListError(f"{named['folder']} is not what {named['file']}:{named['name']} reads: {own.sentence}")
            return found
        if (corpus := named_corpus(seen.path)) is None:
            return None
        wanted = {name: values[0] if len(values) == 1 else values for name, values in corpus.wanted.items()}
        return Found(corpus.kind(corpus.found()), from_corpus, (corpus.name, corpus.folder), wanted)


def _named(text: str) -> re.Match[str] | None:
    return None if os.path.exists(text) else _NAMED.fullmatch(text)


def _own_format(named: re.Match[str]) -> type[Format] | None:
    value = getattr(module_at(named["file"]), named["name"], None) if named["file"] else None
    return value if isinstance(value, type) and issubclass(value, Format) else None


def listed(cards: Mapping[str, Corpus]) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each card: name, what it is, hours, forms that are read, and what to download."""
    return [(card.name, card.title, card.hours, "; ".join(forms(card)), card.download) for card in cards.values()]


def forms(card: Corpus) -> list[str]:
    """Return the names of a card's layouts, each once."""
    return list(dict.fromkeys(layout.form for layout in card.layouts))


def described(card: Corpus) -> str:
    """Return a section of Markdown about a corpus."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: Corpus) -> Iterator[str]:
    yield from (f"## {card.name}", "", f"{card.title}. Hours: {card.hours}.", "")
    options = "".join(f', {name}="…"' for name, values in card.options.items() if values == ())
    yield from (f'`uio.from_corpus("{card.name}", FOLDER, part="{next(iter(card.train))}"{options})`', "")
    yield f"- To download: {card.download}."
    nested = len(largest(card, card.train)) < len(card.train)
    default = "the first that is there" if nested else "as far as they are there"
    yield f"- Parts: {_names(card.parts)}. Read if none is named: {_names(card.train)}, {default}."
    for name, values in card.options.items():
        all_ = "by default all that are there" if values is not None else "to be named if there are several"
        what = f"{_names(values)}; by default the first" if values else all_
        yield f"- Option `{name}`: {what}."
    for layout in card.layouts:
        yield f"- Layout, {layout.form}: {_names(layout.places)}."
    yield f"- Fields: {_names(_fields(card))}."
    if card.columns:
        yield f"- Others on request: {'; '.join(card.columns)}."
    if card.notes:
        yield f"- {card.notes}"


def _fields(card: Corpus) -> list[str]:
    """Return what utterances have in any layout."""
    usual = ("key", "wav", "txt", "speaker", "lang", "start", "end", "duration")
    own = [name for layout in card.layouts for name in layout.arguments.get("fields", ())]
    there = {"key", "wav", *card.fields, *own}
    return [*(name for name in usual if name in there), *sorted(there.difference(usual))]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
