"""The search: of all texts below a folder, and all ways in which they may name recordings, those that cover most."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import plural
from uio_pipes.sources.seen import HEAD
from uio_pipes.tools.data.finding.files import Files, FoundFile, split_of, wanted_split
from uio_pipes.tools.data.finding.forms import NAMED, WHOLE, Cells, forms_of
from uio_pipes.tools.data.finding.names import FILE, FOLDER, Index, Way, segment_in, text_among, times_of

ENOUGH = 0.95  # of the recordings must have a text, or else the user is asked
_FEW = 0.3  # of the rows of a table must name recordings
_SAMPLE = 40  # rows of tables that are tried in all ways
_KINDS = 9  # names of texts of one ending, of which more tell nothing
_OWN = ("JSO", "XML", "ann")
_SOUNDS = re.compile("(?i)phon|pinyin|lexicon")
_SPLITS = ("split", "set", "subset", "partition")
T = TypeVar("T")


class Spoken(NamedTuple):
    """What is said in a recording, or in a part of it in seconds."""

    recording: int
    text: str
    split: str
    start: float | None = None
    end: float | None = None
    speaker: str = ""


@dataclass
class Join:
    """Texts of one form whose rows name recordings in one way.

    ``column``: that of the text, "" without one, and ``score``, how much it is like a text.

    ``spoken``: what they say of recordings; ``named``: how many rows should name one, by splits. Of ``wanted``
    recordings of a ``split``, or rows if ``of_rows``, ``covered`` have both.
    """

    form: str
    way: Way
    texts: list[FoundFile]
    column: str = ""
    score: float = 0.0
    spoken: list[Spoken] = field(default_factory=list)
    named: Counter[str] = field(default_factory=Counter)
    split: str = ""
    covered: int = 0
    wanted: int = 0
    of_rows: bool = False

    @property
    def cover(self) -> float:
        return self.covered / max(self.wanted, 1)

    def rows(self, text: FoundFile) -> list[Cells]:
        """Return the rows of one of the texts, with its own name and folder."""
        rows = next((one.rows for one in forms_of(text, form=self.form) if one.form == self.form), [])
        return [{**row, **_names_of(text)} for row in rows]

    def of_split(self) -> list[FoundFile]:
        """Return the texts of the split that was measured, or else of none, or else all."""
        of = [[text for text in self.texts if text.split == split] for split in (self.split, "")]
        return of[0] or of[1] or self.texts

    def __str__(self) -> str:
        """What they cover, in a sentence."""
        texts, lost = self.of_split(), self.wanted - self.covered
        where = texts[0].path if len(texts) == 1 else f"{plural(len(texts), 'file')} like {texts[0].path}"
        by = (
            f"the {texts[0].ending} of the same name, like {texts[0].path}"
            if self.form == WHOLE
            else f"{self.way} of {where}"
        )
        if self.of_rows:
            name = "names" if self.wanted == 1 else "name"
            return f"{self.covered:,} of {plural(self.wanted, 'row')} {name} a recording by {by}"
        none = f"; {lost:,} {'has' if lost == 1 else 'have'} none" if lost > 0 else ""
        return f"{self.covered:,} of {plural(self.wanted, 'recording')} have a text by {by}{none}"

    def measure_rows(self) -> None:
        """Count the rows that name a recording, in place of the recordings that have a text."""
        self.of_rows, self.wanted = True, self.named[self.split]
        self.covered = sum(said.split == self.split for said in self.spoken)


class Search:
    """The search in ``files``. ``part``: the split that is wanted, "" for that of training."""

    def __init__(self, files: Files, part: str = "") -> None:
        self.files, self.part, self.wanted = files, part, part
        self.index = Index(files.recordings)
        self.splits = [recording.split for recording in files.recordings]
        self.silent, self.unread = list[FoundFile](), list[FoundFile]()  # that name none, or are more than words
        self.there = set[str]()  # splits that have texts

    def run(self) -> list[Join]:
        """Return the joins that cover recordings of the wanted split, those that cover most first."""
        found = self._joins(self.files.texts)
        for one in [one for one in found if not one.column]:
            for text in one.texts:  # whose name may tell the split of what it lists
                for row in one.rows(text) if text.split else ():
                    for number in self.index.named(one.way, row, text):
                        self.splits[number] = self.splits[number] or text.split
            found += self._joins(self._with_lines(one))
        best = self._ranked(found)
        if (not best or best[0].cover < ENOUGH) and self.silent:  # by what tables say of names
            for one in found:
                self._learn(one)
            silent, self.silent = self.silent, []
            best = self._ranked(found + self._joins(silent))
        return best

    # Which texts name recordings

    def _joins(self, texts: Iterable[FoundFile]) -> list[Join]:
        """Return the joins of texts: of those of one ending that are called as recordings, and of tables that are
        called alike."""
        endings, found = defaultdict[str, list[FoundFile]](list), list[Join]()
        for text in texts:
            endings[text.ending].append(text)
        for several in (tree for every in endings.values() for tree in self._trees(every)):
            groups = defaultdict[str, list[FoundFile]](list)
            for text in several:
                groups["" if self.index.called(text.stem) else _kind(text)].append(text)
            if len(groups) > max(_KINDS, len(several) / 2):
                groups = defaultdict(list, {"": several})
            for kind, alike in groups.items():
                if one := self._join(alike):
                    found.append(one)
                else:
                    (self.silent if kind else self.unread).extend(alike)
        return found

    def _trees(self, texts: list[FoundFile]) -> Iterable[list[FoundFile]]:
        """Return texts by the folders that tell apart two of equal names that speak of the same recordings, as
        ``transcriptions`` and ``emotions`` do; all in one if there are none."""
        alike = sorted(texts, key=lambda one: (one.stem, one.folder))
        twins = [pair for pair in pairwise(alike) if pair[0].stem == pair[1].stem]
        for one, other in _some(twins):
            both = [here.folder.split("/") for here in (one, other)]
            if len(both[0]) == len(both[1]) and self._spoken_of(one) & self._spoken_of(other):
                differ = [at for at, (a, b) in enumerate(zip(*both, strict=True)) if a != b]
                trees = defaultdict[tuple[str, ...], list[FoundFile]](list)
                for text in texts:
                    folders = text.folder.split("/")
                    trees[tuple(folders[at] for at in differ if at < len(folders))].append(text)
                return trees.values()
        return [texts]

    def _spoken_of(self, text: FoundFile) -> set[int]:
        """Return the recordings whose names are words of a text, or its own name."""
        words = {text.stem, *re.split(r"[\s,;|:=\"()]+", text.text(HEAD))}
        return {number for word in words for number in self.index.named(Way((FILE,)), {FILE: word}, text)}

    def _join(self, texts: list[FoundFile]) -> Join | None:
        """Return the join of texts in the form and way in which most of their rows name recordings; None if few do."""
        parses, best, made = defaultdict[str, list[list[Cells]]](list), _FEW, None
        for text in (some := _some(texts)):
            for parsed in forms_of(text, HEAD):
                if parsed.rows:
                    parses[parsed.form].append([{**row, **_names_of(text)} for row in parsed.rows])
        for form, several in parses.items():
            rows = [row for of in several for row in _some(of, 1 + _SAMPLE // len(several))]
            columns = tuple(dict.fromkeys(name for row in rows for name in row if name not in (FILE, FOLDER)))
            for way in self.index.ways(rows, columns):
                if f"{form}{NAMED}" in parses and not self.index.called(way.name(rows[0])):
                    continue
                timed = all(times_of(row)[0] is not None for row in rows[:9])
                if way.columns != (FILE,) if form == WHOLE else FILE in way.columns and not (timed or form[:3] in _OWN):
                    continue
                named = sum(bool((name := way.name(row)) and self.index.called(name)) for row in rows) / len(rows)
                share = named * len(several) / len(some) - 0.1 * (len(columns) == 1 and form != WHOLE)
                if share > best + 0.01:
                    score, column = text_among(rows, columns, way.columns[-1:])
                    score /= 4 if _SOUNDS.search(texts[0].stem) else 1
                    best, made = share, Join(form, way, texts, column, score)
                if share > 0.98:
                    return made
        return made

    def _learn(self, table: Join) -> None:
        """Take the values of columns in which no value stands twice as further names of the recordings of rows."""
        for text in table.texts:
            rows = table.rows(text)
            for column in {name for row in rows[:1] for name in row} - {*table.way.columns, table.column, FILE, FOLDER}:
                values = [row.get(column, "").rpartition("/")[2].casefold() for row in rows]
                for row, name in zip(rows, values, strict=True) if len({*values}) == len(values) else ():
                    self.index.by[name] = [*{*self.index.by[name], *self.index.named(table.way, row, text)}]
                    if column == "key" and (times := times_of(row))[0] is not None:
                        self.index.times[name] = times

    def _with_lines(self, one: Join) -> Iterator[FoundFile]:
        """Yield the rows of a table without texts with these from the lines of another file: of ``train.yaml`` or
        ``segments`` with ``train.en``; of several languages the first that a folder names: ``en-de`` or ``en/de``."""
        for text in one.texts:
            near = [other for other in self.silent if other.folder == text.folder]
            near = [one for one in near if one.stem == text.stem or split_of(one.stem) == text.split != ""]
            found = [re.search(rf"/{one.ending[1:]}(?:[-_][^/]+)?/", f"/{one.folder}/") for one in near]
            hits = sorted((hit.start(), number) for number, hit in enumerate(found) if hit)
            if hits or len(near) == 1:
                other, rows = near[hits[0][1] if hits else 0], one.rows(text)
                if len(lines := other.text().splitlines()) == len(rows):
                    said = (json.dumps({**row, "text": line}) for row, line in zip(rows, lines, strict=True))
                    yield other._replace(ending=".lines.jsonl", data="\n".join(said).encode())

    # What they cover

    def _ranked(self, joins: Iterable[Join]) -> list[Join]:
        with_texts = [one for one in joins if one.column]
        for one in with_texts:
            if not one.spoken:
                self._read(one)
        self.there = {said.split for one in with_texts for said in one.spoken}
        self.wanted = wanted_split({*self.splits, *self.there}, self.part)
        for one in with_texts:
            self._measure(one)
        some = sorted((one for one in with_texts if one.covered), key=lambda one: (-round(one.cover, 2), -one.score))
        if some and (some[0].cover < ENOUGH or some[0].of_rows):
            self._complete(some[0], some[1:])
        return some

    def _read(self, one: Join) -> None:
        """Read what a join says of recordings. Where a name is not in the folder that it has, though most others are,
        the recording is not that one."""
        rows = [(text, row) for text in one.texts for row in one.rows(text)]
        in_folders = [(text, row) for text, row in rows if "/" in one.way.name(row)][:1000]
        strict = sum(bool(self.index.named(one.way, row, text, True)) for text, row in in_folders) * 2 > len(in_folders)
        parts = segment_in(rows[0][1]) if rows else {}
        for text, row in rows:
            part = next(filter(None, (split_of(row[column]) for column in _SPLITS if column in row)), "") or text.split
            found = self.index.named(one.way, row, text, strict)
            one.named[part] += not found
            times = self.index.times.get(one.way.name(row).casefold()) if self.index.times else None
            start, end = times or (times_of(row) if "start" in parts else (None, None))
            words = row.get(one.column, "").strip()
            for number in found if words or start is None else ():
                split = part or self.splits[number]
                one.named[split] += 1
                one.spoken.append(Spoken(number, words, split, start, end, row.get(parts.get("speaker", ""), "")))
        once = max(Counter(said.recording for said in one.spoken).values(), default=0) < 2
        if once and not self.index.times and one.form != "annotation":
            one.spoken = [said._replace(start=None, end=None) for said in one.spoken]
        one.spoken = [said for said in one.spoken if said.text]

    def _measure(self, one: Join) -> None:
        covered = {said.recording for said in one.spoken if said.split == self.wanted}
        stems = ((n, self.index.recordings[n].stem.casefold()) for n, of in enumerate(self.splits) if of == self.wanted)
        fitting = {n for n, stem in stems if stem.startswith(one.way.before) and stem.endswith(one.way.after)}
        one.split, one.covered, one.wanted = self.wanted, len(covered & fitting), len(fitting)
        if not fitting:
            one.measure_rows()
        parts = {(said.recording, said.start) for said in one.spoken}
        if len(parts) * 1.5 < len({(said.recording, said.start, said.text) for said in one.spoken}):
            one.covered, one.spoken = 0, []  # several texts for a recording, and no times
            self.unread += one.texts

    def _complete(self, first: Join, others: Sequence[Join]) -> None:
        """Add to a join what others say of other recordings."""
        for other in others:
            done = {said.recording for said in first.spoken}
            more = [said for said in other.spoken if said.recording not in done and said.split == self.wanted]
            alike = other.score * 4 >= first.score and (not first.of_rows or (other.of_rows and other.cover >= ENOUGH))
            if alike and len(more) * 20 >= len(first.spoken):
                first.spoken, first.texts = first.spoken + more, first.texts + other.texts
                first.named += other.named
        self._measure(first)

    # What is said of them

    def chosen(self, first: Join | None) -> tuple[list[Spoken], list[str]]:
        """Return what is read by a join, each once, or recordings without texts; and sentences on that."""
        here, count = self.wanted or "what is in no split", self.splits.count(self.wanted)
        if first is None:
            spoken = [Spoken(number, "", of) for number, of in enumerate(self.splits) if of == self.wanted]
            notes = [f"none of {plural(count, 'recording')} has a text that is known"]
        else:
            spoken = [said for said in first.spoken if said.split == self.wanted]
            notes = [str(first)]
        spoken = [*{(said.recording, said.start, said.speaker): said for said in reversed(spoken)}.values()]
        if (left := count - len({said.recording for said in spoken})) > (1 - ENOUGH) * count:
            are = "is" if left == 1 else "are"
            notes += [f"{plural(left, 'more recording')} of {self.wanted or 'no split'} {are} not read"]
        if others := [one for one in ("train", "dev", "test") if one in {*self.splits, *self.there} - {self.wanted}]:
            notes += [f"{here} is read, and not {' or '.join(others)} (--part {others[0]})"]
        return spoken, notes

    def ask(self, found: Sequence[Join]) -> None:
        """Raises: ListError if there are texts, and none that are surely those of the recordings."""
        folder, count = self.files.folder, self.splits.count(self.wanted)
        if found:
            best = ", ".join(f"uio start {one.of_split()[0].place} ({one})" for one in found[:2])
            problem = f"no texts cover {ENOUGH * 100:.0f} % of the recordings. Name the one to take: {best}"
            raise ListError(f"{folder}: {problem}")
        if others := sorted(self.there - {"", self.wanted}):
            have = f"{' and '.join(others)} {'have' if len(others) > 1 else 'has'}"
            problem = f"{self.wanted or 'what is in no split'} has no texts that are known, and {have}"
            raise ListError(f"{folder}: {problem}: uio start {folder} --part {others[0]} reads these")
        for text in (*self.unread[:1], *self.silent):
            content = text.text(1 << 20)
            many = 1 < count <= 2 * len(re.findall(r"[\n{\[]", content))  # lines, or what is in JSON
            if text in self.unread or (many and not text.archive):
                several = f"{plural(len(self.unread), 'text')} like " if self.unread else ""
                raise ListError(
                    f"{folder} has {plural(count, 'recording')} and {several}{text.path}, which names them in no known "
                    f"form ({' '.join(content[:200].split())[:60]!r}): write one file with KEY TEXT a "
                    "line, where KEY is the name of the recording, or the text alone in a file of that name"
                )


def _some(several: Sequence[T], most: int = 9) -> list[T]:
    """Return some of several things, from all over them."""
    return [*several[:: max(1, len(several) // most)][:most]]


def _names_of(text: FoundFile) -> dict[str, str]:
    return {FILE: text.stem, FOLDER: text.folder.rpartition("/")[2]}


def _kind(text: FoundFile) -> str:
    """Return the name of a table without what tells it from those of other splits, folders and numbers."""
    folder = re.escape(text.folder.rpartition("/")[2].lower())
    return re.sub(rf"{folder or '$'}|train|dev|test|valid|\d+|\W", "", text.stem.lower()) or text.ending
