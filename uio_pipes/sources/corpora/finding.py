"""Finds a corpus in a folder: its layout, parts, and other options."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.base.urls import folder_of, inside, redact
from uio_pipes.formats.archives.directory import is_template
from uio_pipes.formats.lists.table import matching
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local
from uio_pipes.sources.corpora.card import PLACEHOLDER, Chosen, Corpus, Layout, chosen, fill, filled, largest, option

logger = logging.getLogger(__name__)

Wanted = Mapping[str, Sequence[str]]  # what is chosen, by "part" or the name of an option


class There(NamedTuple):
    """The part of a corpus that exists in one of its layouts.

    Attributes:
        layout: the layout.
        folder: where its paths start.
        choices: for each part that is there, what is there of it by the names of placeholders.
    """

    layout: Layout
    folder: str
    choices: dict[str, list[Chosen]]

    def at(self, path: str) -> str:
        """Return the place of one of the layout's paths: a glob, or of an archive that rows name a literal path."""
        local = is_local(self.folder)
        return inside(self.folder if local is None or is_template(path) else glob.escape(local), path)

    def only(self, parts: Sequence[str], wanted: Wanted, corpus: Corpus) -> There:
        """Return only these parts, with the wanted values of options."""
        open_ = [name for name in wanted if name != "part" and not corpus.options[name]]

        def fits(choice: Chosen) -> bool:
            return all(choice.get(name) in wanted[name] for name in open_)

        return self._replace(choices={part: [one for one in self.choices[part] if fits(one)] for part in parts})

    def archives(self) -> list[str]:
        """Return the globs of the archives that are read; ``{…}`` in them is filled in by rows."""
        if self.layout.there is not None:
            choices = [one for several in self.choices.values() for one in several]
            return list(dict.fromkeys(self.at(fill(self.layout.there, choice)) for choice in choices))
        named = self.arguments({}).get("archives", ())
        return [named] if isinstance(named, str) else list(named)

    def arguments(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments that read everything found. ``fields``: those of the corpus."""
        choices = [one for several in self.choices.values() for one in several]
        return filled(self.layout, choices, fields, self.at, self.folder)


def find(corpus: Corpus, folder: str, wanted: Wanted, access: Access) -> There:
    """Return the wanted part of a corpus in the first layout that contains all of it.

    ``wanted`` has "part", or else the parts for training are, and values of options, or else the default.

    Raises: PipelineError for a part or option that the corpus has not got, ListError for one that is not there, or if
        nothing is.
    """
    check(corpus, wanted)
    several = list(everything(corpus, folder, wanted, access))
    parts = wanted.get("part")
    for there in several:
        some = [part for part in parts or corpus.train if part in there.choices]
        if some and (parts is None or len(some) == len(parts)):
            some = largest(corpus, some) if parts is None else some
            wholly = there.only(some, wanted, corpus)
            if all(wholly.choices.values()) and _has_each(wholly, wanted, corpus):
                _tell_of_others(corpus, folder, wholly, wanted, several)
                return _of_one(corpus, folder, wholly, wanted)
    raise ListError(_missing(corpus, folder, wanted, several) if several else _nothing(corpus, folder))


def everything(corpus: Corpus, folder: str, wanted: Wanted, access: Access) -> Iterator[There]:
    """Yield what is there in each layout that is, in their order, for the options that have given values.

    Raises: ListError if paths cannot be made below the folder.
    """
    whole = folder if (local := is_local(folder)) is None else os.path.abspath(local)
    if found := set(whole) & set("{}|"):
        raise ListError(
            f"{redact(whole)}: the path of a corpus must not contain {in_words(sorted(found))}: "
            "rename the folder, or use a symbolic link to it"
        )
    for layout in corpus.layouts:
        for base, known in _bases(layout.sought[0], whole, corpus.path_options):
            choices = {part: list(_choices(corpus, layout, base, part, wanted, access)) for part in corpus.parts}
            fitting = {part: [one for one in some if known.items() <= one.items()] for part, some in choices.items()}
            if there := {part: some for part, some in fitting.items() if some}:
                yield There(layout, base, there)
                break


def _has_each(there: There, wanted: Wanted, corpus: Corpus) -> bool:
    """Return whether there is each value that is wanted, of each part that is."""
    whole = [*there.choices.values()]
    if "part" not in wanted:
        whole = [[choice for some in whole for choice in some]]
    pairs = [(name, value) for name, values in wanted.items() if name != "part" for value in values]
    return all(
        any(choice.get(name) == option(corpus, name, value) for choice in some)
        for some in whole
        for name, value in pairs
    )


def _tell_of_others(corpus: Corpus, folder: str, chosen: There, wanted: Wanted, several: Sequence[There]) -> None:
    """Log what would be read, too, if it were not there in another layout only.

    Of an option of which one value must be chosen, such as releases that hold each other, the others are no loss.
    """
    single = [name for name, known in corpus.options.items() if known is None and name not in wanted]
    read = {(name, one.get(name)) for name in single for some in chosen.choices.values() for one in some}

    def named(there: There) -> dict[str, None]:
        parts = [part for part in wanted.get("part") or corpus.train if part in there.choices and is_apart(part)]
        choices = there.only(parts, wanted, corpus).choices.items()
        return {
            " ".join([part, *(c[n] for n in corpus.path_options if n in c)]): None
            for part, some in choices
            for c in some
            if all((name, c.get(name)) in read for name in single)
        }

    def is_apart(part: str) -> bool:
        """Return whether what is read holds nothing of a part, nor the other way round."""
        others = [one for one in chosen.choices if one != part]
        return "part" in wanted or all(len(largest(corpus, [one, part])) == 2 for one in others)

    known = named(chosen)
    for there in several:
        more = [name for name in named(there) if name not in known]
        known |= dict.fromkeys(more)
        if more:
            logger.warning(
                "from_corpus: %s has %s of %s in another layout (%s) than the first (%s), which is not read: "
                "read it with a separate from_corpus, and uio.mix both",
                *(redact(folder), ", ".join(more), corpus.name, there.layout.form, chosen.layout.form),
            )


def check(corpus: Corpus, wanted: Wanted) -> None:
    """Raises: PipelineError for a part, an option or a value of it that the corpus has not got."""
    for name, values in wanted.items():
        if name != "part" and name not in corpus.options:
            known = ", ".join(["part", *corpus.options])
            raise PipelineError(f"from_corpus: {corpus.name} has no option {name!r}; it has {known}")
        known_values = (corpus.parts if name == "part" else corpus.options[name]) or ()
        for value in values if known_values else ():
            if value not in known_values:
                has = ", ".join(known_values)
                raise PipelineError(
                    f"from_corpus: {corpus.name} has no {name} {value!r}; it has {has}: name one of these"
                )


def _of_one(corpus: Corpus, folder: str, there: There, wanted: Wanted) -> There:
    """Return what is there. Raises: ListError if it is of several values of an option of which one must be chosen."""
    for name in (name for name, known in corpus.options.items() if known is None and name not in wanted):
        values = dict.fromkeys(one[name] for some in there.choices.values() for one in some if name in one)
        if len(values) > 1:
            raise ListError(
                f"{redact(folder)} has {corpus.name} in several {name}s ({', '.join(values)}), which may hold the same "
                f"utterances: name one, {name}=…, or several in a list"
            )
    return there


def _bases(sought: str, folder: str, names: Sequence[str]) -> Iterator[tuple[str, Chosen]]:
    """Yield where paths may start: the folder, or one above if it is itself one of a layout's folders; ``names`` are
    those of placeholders whose values it then tells."""
    yield folder, {}
    above, parts = folder.rstrip("/"), sought.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        above, path = folder_of(above) or ".", "/".join(parts[:count])
        if PLACEHOLDER.search(fill(path, dict.fromkeys(names, ""))):
            return
        if found := _captured(path, names).search(folder.rstrip("/")):
            yield above, found.groupdict()


def _choices(corpus: Corpus, layout: Layout, base: str, part: str, wanted: Wanted, access: Access) -> Iterator[Chosen]:
    """Yield what is there of a part, for all values of options that are wanted."""
    given = {name: (wanted.get(name) or list(known)[:1]) if known else () for name, known in corpus.options.items()}
    fixed = {name: values for name, values in given.items() if values}
    of_parts = {name for one in corpus.parts for name in chosen(corpus, one)}
    if (of_parts & {*PLACEHOLDER.findall(" ".join(layout.places))}) - chosen(corpus, part).keys():
        return  # a layout of other parts
    for values in product(*fixed.values()):
        named = zip(fixed, values, strict=True)
        choice = {**chosen(corpus, part), **{name: option(corpus, name, value) for name, value in named}}
        first, *others = layout.sought
        path = fill(first, choice)
        open_ = [name for name, some in given.items() if not some and f"{{{name}}}" in path]
        found = matching(_star(path, open_, base), access)
        patterns = [
            _captured(fill(sought, choice), open_) for sought in (first, *(o.sought[0] for o in corpus.layouts))
        ]
        chosen_by = [_choice_in(one, *patterns) for one in found] if open_ else [dict[str, str]()][: len(found)]
        for each in dict.fromkeys(tuple(one.items()) for one in chosen_by if one is not None):
            whole = {**choice, **dict(each)}
            if all(matching(_star(fill(other, whole), (), base), access) for other in others):
                yield whole


def _choice_in(path: str, own: re.Pattern[str], *others: re.Pattern[str]) -> Chosen | None:
    """Return what a pattern finds in a path; None if another one of the same placeholders leaves less to them, as
    ``mls_{lang}_opus`` does than ``mls_{lang}``."""
    if (found := own.search(path)) is None:
        return None
    hits = [hit for one in others if one.groups == own.groups and (hit := one.search(path))]
    return found.groupdict() if all(_left(found) <= _left(hit) for hit in hits) else None


def _left(found: re.Match[str]) -> int:
    """Return how many characters of a path placeholders stand for."""
    return sum(map(len, found.groups()))


def _star(path: str, names: Sequence[str], base: str) -> str:
    local = is_local(base)
    starred = re.sub("|".join(rf"\{{{name}\}}" for name in names), "*", path) if names else path
    return inside(base if local is None else glob.escape(local), starred)


def _captured(path: str, names: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of a path that finds the values of placeholders."""
    pattern = re.escape(path).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    pattern = re.sub(r"\\\[([^]]*)\\\]", lambda found: f"[{found[1].replace(chr(92), '')}]", pattern)
    for name in names:
        place = re.escape(f"{{{name}}}")
        pattern = pattern.replace(place, f"(?P<{name}>[^/]+)", 1).replace(place, f"(?P={name})")
    return re.compile(f"(?:^|/){pattern}$")


def _missing(corpus: Corpus, folder: str, wanted: Wanted, several: Sequence[There]) -> str:
    """Return what of the wanted is not there, and what is."""
    parts = [part for part in wanted.get("part") or corpus.train if not any(part in one.choices for one in several)]
    choices = [choice for one in several for some in one.choices.values() for choice in some]
    lacking = []
    if parts:
        lacking.append(("part", " and no ".join(parts), dict.fromkeys(part for one in several for part in one.choices)))
    for name in corpus.options:
        there = dict.fromkeys(choice[name] for choice in choices if name in choice)
        if lost := [value for value in wanted.get(name, ()) if value not in there]:
            if not there:
                return f"{redact(folder)}: of {corpus.name}, file names do not tell the {name} there: remove it"
            lacking.append((name, " and no ".join(lost), there))
    if not lacking:
        return f"{redact(folder)} has what you want of {corpus.name}, but not in one layout: read parts one by one"
    what = "; ".join(f"no {name} {values}, there are {', '.join(there)}" for name, values, there in lacking)
    name, _, there = lacking[0]
    command = f"in commands {corpus.name},{name}={next(iter(there))}:{redact(folder)}"
    return (
        f"{redact(folder)}: of {corpus.name} there is {what}: name one of these ({command}), or download "
        f"{corpus.download}"
    )


def _nothing(corpus: Corpus, folder: str) -> str:
    first = {name: option(corpus, name, next(iter(known))) for name, known in corpus.options.items() if known}
    example = {**first, **chosen(corpus, corpus.train[0])}

    def shown(path: str) -> str:
        return PLACEHOLDER.sub(lambda found: found[1].upper(), fill(path, example))

    looked = "; ".join(f"{layout.form}: {in_words(map(shown, layout.sought))}" for layout in corpus.layouts)
    return (
        f"{redact(folder)} has nothing of {corpus.name} (looked for {looked}): name the folder that these are in, or "
        f"download {corpus.download}"
    )
