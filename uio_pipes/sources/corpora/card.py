"""``uio.Corpus``: the card of a published corpus, which describes its layouts and how to read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from uio_pipes.base.checks import in_words, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.urls import inside
from uio_pipes.formats.tables.description import Table
from uio_pipes.pipeline import Pipeline

_PLACES = frozenset(["table", "paths", "within", "join", "archives", "root", "manifest"])  # arguments that are paths
_PATTERNS = frozenset(["keep", "drop", "match"])  # arguments that are regular expressions
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_OF_ROW = re.compile(r"\bchosen\.([a-z_]+)")  # what was chosen for the table of a row
Chosen = Mapping[str, str]  # what is chosen, by the names of placeholders


@keyword_hints
@dataclass(frozen=True)
class Layout:
    """One layout of a corpus, and how to read it.

    In every text, ``{part}`` and the names of the corpus's options in braces stand for what is chosen. Where several
    languages are read together, ``chosen.lang`` in an expression is that of the row's own table, as in
    ``"data/{chosen.lang}/{shard}.tar.gz"``: rows of tables have it as a field.

    Args:
        form: its name, as "extracted" or "as downloaded".
        read: what begins the pipeline, as :func:`from_table` or :func:`from_parquet`.
        arguments: its arguments; paths start at the corpus's folder. ``fields`` complete those of the corpus.
        there: a path that is there, too, in this layout and in no other. Default: None, the archive or the table that
            is read tells.
    """

    form: str
    read: Callable[..., Pipeline]
    arguments: Mapping[str, Any]
    there: str | None = None

    def downloaded(self, archive: str, wav: str, match: str = "path | stem", archives: str = "") -> Layout:
        """Return the layout "as downloaded", where the table of this one is in an archive with its audio.

        ``wav``: what names a member, as ``match`` says it; ``archives``: the archive of a row, if not the chosen one.
        """
        table = self.arguments["table"]
        joined = tuple(replace(other, within=archive) for other in table.join)
        fields = {**self.arguments.get("fields", {}), "wav": wav}
        own = archives or PLACEHOLDER.sub(r"{chosen.\1}", archive)
        changes = {"table": replace(table, within=archive, join=joined), "archives": own}
        arguments = {**self.arguments, **changes, "match": match, "fields": fields}
        return Layout("as downloaded", self.read, arguments, archive if own != archive else None)

    @property
    def sought(self) -> tuple[str, ...]:
        """The paths of a part, with placeholders."""
        parts = next(_paths(self.arguments)).split("/")
        chosen = max((number for number, part in enumerate(parts) if PLACEHOLDER.search(part)), default=0)
        stars = next((number for number in range(chosen + 1, len(parts)) if "*" in parts[number]), len(parts))
        first = "/".join(parts[:stars])
        return (first,) if self.there in (None, first) else (first, str(self.there))

    @property
    def places(self) -> list[str]:
        """All paths that are read, with placeholders; ``there`` for archives whose names rows fill in."""
        paths = _paths(self.arguments, within=True)
        of_rows = (" | ", "{chosen.")
        return list(
            dict.fromkeys(self.there if self.there and any(map(path.__contains__, of_rows)) else path for path in paths)
        )


@keyword_hints
@dataclass(frozen=True)
class Corpus:
    """A published corpus: its parts, its layouts, and the fields of its utterances.

    Args:
        name: by which it is read.
        title: what it is, in a line.
        hours: how much of it there is, as text.
        download: what to download, and from where.
        parts: names of its parts; each is what ``{part}`` stands for in texts of a layout, or values of several
            placeholders.
        train: the parts that are read if none is named, as far as they are there.
        layouts: forms that it lies in; the first one that is there is read.
        fields: what utterances have, as ``fields`` of the function that reads them. Default: {}, those of layouts.
        options: further choices, by the names of placeholders: the values that there are, or names of values; the first
            is the default. An empty list stands for whatever is there, all of which is read if nothing is chosen; None
            for what is there, too, but of which one must be chosen if there are several. Default: {}, none.
        columns: other columns that ``fields`` may ask for. Default: (), none.
        notes: what is peculiar, and under which reasons it is counted. Default: "".
        nested: parts that hold one another, the largest first, as in ``[["L", "M", "S"]]``: of several that are there,
            only the first one is read if none is named, and counted in the sum of all. Default: (), none do.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    name: str
    title: str
    hours: str
    download: str
    parts: Mapping[str, str | Chosen]
    train: Sequence[str]
    layouts: Sequence[Layout]
    fields: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Sequence[str] | Chosen | None] = field(default_factory=dict)
    columns: Sequence[str] = ()
    notes: str = ""
    nested: Sequence[Sequence[str]] = ()

    @property
    def path_options(self) -> list[str]:
        """The options whose values are known only from file names."""
        return [name for name, values in self.options.items() if not values]

    def __post_init__(self) -> None:
        ok = bool(re.fullmatch(r"\w+", self.name))
        require(ok, "Corpus", "name must be letters, digits and _", self.name, "as in 'my_corpus'")
        layouts = self.layouts
        ok = bool(layouts) and all(isinstance(one, Layout) for one in layouts)
        require(
            ok, "Corpus", "layouts must be uio.Layout(…), at least one", layouts, "describe how its files are laid out"
        )
        known = bool(self.parts) and bool(self.train) and all(part in self.parts for part in self.train)
        require(known, "Corpus", f"train must be some of the parts ({', '.join(self.parts)})", self.train, "name one")
        ok = {part for group in self.nested for part in group} <= self.parts.keys()
        require(ok, "Corpus", f"nested must be lists of parts ({', '.join(self.parts)})", self.nested, "name these")
        names = {"part", *self.options, *(name for part in self.parts for name in chosen(self, part))}
        for layout in layouts:
            unknown = [name for name in PLACEHOLDER.findall(" ".join(layout.sought)) if name not in names]
            rule = f"placeholders must be {', '.join(sorted(names))}"
            require(not unknown, "Corpus", rule, unknown, "name others in `options`")


def chosen(corpus: Corpus, part: str) -> Chosen:
    """Return the values of placeholders for a part."""
    value = corpus.parts[part]
    return {"part": value} if isinstance(value, str) else value


def largest(corpus: Corpus, parts: Sequence[str]) -> list[str]:
    """Return these parts without those contained in another one of them."""
    there = {*parts}
    held = {part for group in corpus.nested for part in [one for one in group if one in there][1:]}
    return [part for part in parts if part not in held]


def option(corpus: Corpus, name: str, value: str) -> str:
    """Return the value of the placeholder of an option."""
    values = corpus.options[name]
    return values[value] if isinstance(values, Mapping) else value


def filled(
    layout: Layout, choices: Sequence[Chosen], fields: Mapping[str, str], at: Callable[[str], str], root: str
) -> dict[str, Any]:
    """Return the arguments of a layout for a choice.

    ``fields``: those of the corpus, which the layout's complete; ``at``: returns the place of a path, or of a glob
    below ``root``.
    """
    arguments = {**layout.arguments, "fields": {**fields, **layout.arguments.get("fields", {})}}
    constants = {found[0]: f"{{{found[1]}}}" for found in _OF_ROW.finditer(repr(arguments))}
    if constants and isinstance(table := arguments.get("table"), (str, Table)):
        arguments["table"] = replace(table if isinstance(table, Table) else Table(table), constants=constants)
    made = {
        name: _filled(value, choices, at if name in _PLACES - {"root"} else None, name in _PATTERNS)
        for name, value in arguments.items()
    }
    below = made.get("root")
    return made if below is None else made | {"root": inside(root, below) if below else root}


def _paths(value: Any, within: bool = False, place: bool = False) -> Iterator[str]:
    """Yield the paths in arguments: of a table in an archive that archive first, and only ``within`` it the table."""
    if isinstance(value, Table):
        if value.within is not None:
            yield str(value.within)
        if value.within is None or within:
            yield from map(str, value.paths)  # type: ignore[arg-type]
        for other in value.join if within else ():  # type: ignore[union-attr]
            yield from _paths(other, within)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _paths(one, within, name in _PLACES)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _paths(one, within, place)
    elif isinstance(value, str) and value and place:
        yield value


def _filled(value: Any, choices: Sequence[Chosen], at: Callable[[str], str] | None, pattern: bool = False) -> Any:
    """Return an argument with its placeholders filled: several paths if there are several choices (``at`` is their
    place), in a ``pattern`` what matches any of them. Raises: PipelineError if other texts would be several."""
    if isinstance(value, Table):
        made = dict.fromkeys(_table(value, choice, at) for choice in choices)
        return next(iter(made)) if len(made) == 1 else list(made)
    if isinstance(value, Mapping):
        return {name: _filled(one, choices, at, pattern) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        filled = [_filled(each, choices, at, pattern) for each in value]
        return [one for each in filled for one in (each if isinstance(each, list) else [each])]
    if not isinstance(value, str):
        return value
    if at is None:
        return PLACEHOLDER.sub(lambda found: _any_of(found, choices, pattern), value)
    paths = list(dict.fromkeys(at(fill(value, choice)) for choice in choices))
    return paths[0] if len(paths) == 1 else paths


def _table(table: Table, choice: Chosen, at: Callable[[str], str] | None) -> Table:
    changes: dict[str, Any] = {}
    inside = table.within is not None
    for one in fields(table):
        value = getattr(table, one.name)
        if one.name == "paths" and inside:
            changes["paths"] = tuple(fill(path, choice) for path in value)
        elif one.name == "join":
            changes["join"] = tuple(_table(other, choice, at) for other in value)
        elif one.name == "constants":
            texts = ((name, fill(text, choice)) for name, text in value)
            changes["constants"] = [(name, text) for name, text in texts if not PLACEHOLDER.search(text)]
        elif isinstance(value, (str, tuple)):
            filled = _filled(value, [choice], at if one.name in _PLACES else None)
            changes[one.name] = tuple(filled) if isinstance(value, tuple) else filled
    return replace(table, **changes)


def fill(text: str, choice: Chosen) -> str:
    """Return a text with the placeholders of the choice filled in; others stay."""
    return PLACEHOLDER.sub(lambda found: choice.get(found[1], found[0]), text)


def _any_of(found: re.Match[str], choices: Sequence[Chosen], pattern: bool) -> str:
    values = list(dict.fromkeys(choice[found[1]] for choice in choices if found[1] in choice))
    if len(values) < 2:
        return values[0] if values else found[0]
    if not pattern:
        raise PipelineError(
            f"from_corpus: in this layout one {found[1]} is read at a time, not {in_words(values)}: name one, or "
            "uio.mix several"
        )
    return f"(?:{'|'.join(values)})"
