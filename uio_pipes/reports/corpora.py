"""Cards of corpora as text: a table of all, and a section of Markdown for each, as ``docs/corpora.md`` has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from uio_pipes.sources.corpora.card import Corpus


def listed(cards: Mapping[str, Corpus]) -> list[tuple[str, str, str, str]]:
    """Return a row for each card: name, what it is, hours, forms that are read."""
    return [(card.name, card.title, card.hours, "; ".join(forms(card))) for card in cards.values()]


def forms(card: Corpus) -> list[str]:
    """Return the names of a card's layouts, each once."""
    return list(dict.fromkeys(layout.form for layout in card.layouts))


def described(card: Corpus) -> str:
    """Return a section of Markdown about a corpus."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: Corpus) -> Iterator[str]:
    yield from (f"## {card.name}", "", f"{card.title}. Hours: {card.hours}.", "")
    yield from (f"`{_example(card)}`", "")
    yield f"- To download: {card.download}."
    default = "the first that is there" if card.nested else "as far as they are there"
    yield f"- Parts: {_names(card.parts)}. Read if none is named: {_names(card.train)}, {default}."
    for name, values in card.options.items():
        what = f"{_names(values)}; by default the first" if values else "by default all that are there"
        yield f"- Option `{name}`: {what}."
    for layout in card.layouts:
        yield f"- Layout, {layout.form}: {_names(layout.places)}."
    yield f"- Fields: {_names(_fields(card))}."
    if card.columns:
        yield f"- Others on request: {'; '.join(card.columns)}."
    if card.notes:
        yield f"- {card.notes}"


def _example(card: Corpus) -> str:
    part = next(iter(card.train))
    options = "".join(f', {name}="…"' for name, values in card.options.items() if not values)
    return f'uio.from_corpus("{card.name}", FOLDER, part="{part}"{options})'


def _fields(card: Corpus) -> list[str]:
    """Return what utterances have in any layout."""
    usual = ("key", "wav", "txt", "speaker", "lang", "start", "end", "duration")
    own = [name for layout in card.layouts for name in layout.arguments.get("fields", ())]
    there = {"key", "wav", *card.fields, *own}
    return [*(name for name in usual if name in there), *sorted(there.difference(usual))]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
