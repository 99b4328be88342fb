"""The search: of all texts below a folder, and all ways in which they may name recordings, those that cover most."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uio_pipes.base.urls import counted
from uio_pipes.tools.data.finding.files import HEAD, Files, TextFile, split_of
from uio_pipes.tools.data.finding.forms import ANNOTATIONS, Cells, Parsed, forms_of, seconds, whole
from uio_pipes.tools.data.finding.names import FILE, MOST, SAMPLE, Index, Way, text_among

ENOUGH = 0.95  # of the recordings must have a text, or else the user is asked
_OWN_FORM = (".json", ".jsonl", ".xml", ".srt", ".vtt", ".csv", ".tsv", *ANNOTATIONS)
_SOUNDS = re.compile("(?i)phon|pinyin|lexicon")
_START, _END = (
    re.compile(rf"(?i)(?:{names})[_ ]?(?:time|sec|seconds|in_?ms|ms|s)?(?:\..*)?")
    for names in ("start|st|begin|beg|onset|offset|from", "end|en|stop|to")
)
_SPEAKERS = ("speaker", "speaker_id", "spk", "spk_id", "speakerid", "client_id", "user_id")
_TIMED = re.compile(r"\s*[\[(]?(\d+\.\d+)[\s,;-]+(\d+\.\d+)[\])]?\s+(?:.*\t)?(?:([A-Z]\w*): +)?(.*)")


class Spoken(NamedTuple):
    """What is said in a recording, or in a part of it in seconds."""

    recording: int
    text: str
    split: str
    start: float | None = None
    end: float | None = None
    speaker: str = ""


class TextSource(NamedTuple):
    """A text in the form in which it is read. ``header``: whether its first row has the names of columns."""

    text: TextFile
    form: str
    header: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[Cells]  # the first ones


@dataclass
class Candidate:
    """Texts of one form that name recordings in one way.

    ``spoken``: what they say of recordings, once they are read; ``rows``: how many they have; ``cover``: the share of
    recordings, or of the rows of a list of a split, that have both.
    """

    way: Way
    sources: list[TextSource] = field(default_factory=list)
    column: str = ""  # of the text; "" without one
    score: float = 0.0  # how much it is like a text
    spoken: list[Spoken] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)  # splits of tables, with rows that should name a recording
    cover: float = 0.0
    covered: int = 0
    wanted: int = 0
    of_rows: bool = False  # whether ``wanted`` are rows, not recordings
    split: str = ""  # that was measured

    @property
    def texts(self) -> list[TextFile]:
        """The texts of the split that was measured, or else of none, or else all."""
        every = [source.text for source in self.sources]
        wanted = [text for text in every if text.split == self.split] or [text for text in every if not text.split]
        return wanted or every

    def __str__(self) -> str:
        texts = self.texts
        if self.sources[0].form == "whole":
            return f"the {texts[0].ending} of the same name"
        where = texts[0].path if len(texts) == 1 else f"{counted(len(texts), 'file')} like {texts[0].path}"
        return f"{self.way} of {where}"


@dataclass
class Search:
    """The search in ``files``. ``part``: the split that is wanted, "" for that of training."""

    files: Files
    part: str = ""

    def __post_init__(self) -> None:
        self.index = Index(self.files.recordings)
        self.splits = [recording.split for recording in self.files.recordings]
        self.silent = list[TextFile]()  # texts that name no recording
        self.unread = list[TextFile]()  # that are called as recordings, and are more than words
        self.there = dict[str, None]()  # splits that have texts
        self.listed = False  # whether lists tell splits
        self._lately = list[tuple[str, Way]]()

    def run(self) -> list[Candidate]:
        """Return the joins that cover recordings of the wanted split, those that cover most first."""
        found = self._candidates(self.files.texts)
        self._read_lists([one for one in found if not one.column])
        best = self._ranked(found)
        if (not best or best[0].cover < ENOUGH) and self.silent:  # by what tables say of names
            for one in found:
                self._learn(one)
            silent, self.silent = self.silent, []
            best = self._ranked(found + self._candidates(silent))
        return best

    # Which texts name recordings

    def _candidates(self, texts: Sequence[TextFile]) -> list[Candidate]:
        groups = dict[tuple[object, ...], Candidate]()
        for source, way in self._sources(texts):
            of = () if source.form == "whole" else (_kind(source.text), source.form, source.columns)
            one = groups.setdefault((way, source.text.ending, *of), Candidate(way))
            one.sources.append(source)
        for one in groups.values():
            some = one.sources[:SAMPLE]
            if one.sources[0].form == "whole":
                rows = [row for source in some for row in _rows_of(source, self.files.folder)]
            else:
                rows = [row for source in some for row in source.rows[:SAMPLE]]
            one.score, one.column = text_among(rows, one.sources[0].columns, one.way)
            one.score /= 4 if _SOUNDS.search(one.sources[0].text.name) else 1
        return [*groups.values()]

    def _sources(self, texts: Sequence[TextFile]) -> Iterator[tuple[TextSource, Way]]:
        """Yield texts with the way in which they name recordings."""
        by_ending = defaultdict[str, list[TextFile]](list)
        for text in texts:
            by_ending[text.ending].append(text)
        for ending, several in by_ending.items():
            way = self._by_file(several)
            own = way is not None and (ending.endswith(_OWN_FORM) or not self._plain(several))
            for text in several:
                if way is not None and self.index.named(way.name({}, text), {}, text):
                    yield from self._of_file(text, way, own)
                elif (found := self._table(text)) is not None:
                    yield found
                else:
                    self.silent.append(text)

    def _by_file(self, texts: Sequence[TextFile]) -> Way | None:
        """Return the way in which texts name recordings by their own names, if most do."""
        rows = [{"name": Way((FILE,)).name({}, text)} for text in texts[:: max(1, len(texts) // SAMPLE)]]
        if len(texts) == 1 and not self.index.named(rows[0]["name"], {}, texts[0]):
            return None
        own = ((share, way) for share, way in self.index.ways(rows, ("name",), texts[0]) if way.columns == ("name",))
        share, way = max(own, key=lambda one: one[0])
        return way._replace(columns=(FILE,)) if share >= MOST else None

    def _of_file(self, text: TextFile, way: Way, own: bool) -> Iterator[tuple[TextSource, Way]]:
        if own:
            forms = [one for one in forms_of(text, self.files.folder) if one.rows]
            parsed = next(filter(_timed, forms), forms[0] if forms and text.ending.endswith(_OWN_FORM) else None)
            found = self._table(text) if any(len(one.rows) > 1 for one in forms) else None
            if found is not None and (parsed is not None or found[1].columns != (FILE,)):
                yield found
            elif parsed is not None:
                yield _source(text, parsed, way, None)
            else:
                self.unread.append(text)
            return
        yield TextSource(text, "whole", (), ("text",), []), way

    def _plain(self, texts: Sequence[TextFile]) -> bool:
        """Return whether most texts are words, with times or without."""
        some = [TextSource(text, "whole", (), ("text",), []) for text in texts[:: max(1, len(texts) // 9)]]
        return 2 * sum(any(row["text"] for row in _rows_of(one, self.files.folder)) for one in some) > len(some)

    def _table(self, text: TextFile) -> tuple[TextSource, Way] | None:
        """Return a table in the form and way in which most of its rows name recordings; None if few do."""
        parses = [parsed for parsed in forms_of(text, self.files.folder, HEAD) if parsed.rows]
        for form, way in self._lately:
            for parsed in parses:
                if parsed.form == form and self._share(parsed, way, text) >= 0.9:
                    return _source(text, parsed, way, self.index)
        best: tuple[float, Parsed, Way] | None = None
        for parsed in parses:
            rows = parsed.rows[parsed.headed and len(parsed.rows) > 1 :]
            some = rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]
            for share, way in self.index.ways(some, parsed.columns, text):
                share -= 0.1 * (len(parsed.columns) == 1)  # no text
                if best is None or share > best[0] + 0.01:
                    best = share, parsed, way
                if share > 0.98:
                    break
            if best is not None and best[0] > 0.98:
                break
        if best is None or best[0] < min(MOST, 0.3):
            return None
        _, parsed, way = best
        self._lately = [(parsed.form, way), *(one for one in self._lately if one != (parsed.form, way))][:4]
        return _source(text, parsed, way, self.index)

    def _share(self, parsed: Parsed, way: Way, text: TextFile) -> float:
        return self.index.share(parsed.rows[parsed.headed and len(parsed.rows) > 1 :][:SAMPLE], way, text)

    def _learn(self, table: Candidate) -> None:
        """Take the values of columns in which no value stands twice as further names of the recordings of rows."""
        for source in table.sources:
            rows = list(_rows_of(source, self.files.folder))
            for column in source.columns:
                values = [row.get(column, "") for row in rows]
                if (column,) == table.way.columns or len({*values}) < len(values) or column == table.column:
                    continue
                for row, value in zip(rows, values, strict=True):
                    for number in self.index.named(table.way.name(row, source.text), row, source.text):
                        name, (start, end) = value.rpartition("/")[2].casefold(), _times(row)
                        known = self.index.by[name]
                        known += [number] if number not in known else []
                        if start is not None and end is not None and column == "key":
                            self.index.times[name] = start, end

    # What they cover

    def _read_lists(self, lists: Iterable[Candidate]) -> None:
        """Take the splits of recordings from tables without texts whose names tell a split."""
        for one in lists:
            for source in one.sources:
                if not source.text.split:
                    continue
                for row in _rows_of(source, self.files.folder):
                    for number in self.index.named(one.way.name(row, source.text), row, source.text):
                        self.splits[number] = self.splits[number] or source.text.split
                        self.listed = True

    def _ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        with_texts = [one for one in candidates if one.column]
        for one in with_texts:
            if not one.spoken:
                self._read(one)
        wanted = self.part or self._first_split(with_texts)
        self.wanted = wanted
        for one in with_texts:
            self._measure(one, wanted)
        self.there = dict.fromkeys(said.split for one in with_texts for said in one.spoken)
        some = sorted((one for one in with_texts if one.covered), key=lambda one: (-round(one.cover, 2), -one.score))
        return self._together(some) if some and (some[0].cover < ENOUGH or some[0].of_rows) else some

    def _first_split(self, candidates: Iterable[Candidate]) -> str:
        there = Counter(self.splits) + Counter(said.split for one in candidates for said in one.spoken)
        return next((split for split in ("train", "", "dev", "test") if there[split]), "")

    def _read(self, one: Candidate) -> None:
        """Read what a candidate says of recordings. Where a name is not in the folder that it has, though most others
        are, the recording is not that one."""
        rows = [(source, row) for source in one.sources for row in _rows_of(source, self.files.folder)]
        names = [one.way.name(row, source.text) for source, row in rows]
        some = [(source, name) for (source, _), name in zip(rows, names, strict=True) if "/" in name][:1000]
        agreeing = sum(bool(self.index.named(name, {}, source.text, strict=True)) for source, name in some)
        strict = bool(some) and agreeing * 2 > len(some)
        recurring = Counter(names)
        for (source, row), name in zip(rows, names, strict=True):
            text, split = source.text, _split_in(row) or source.text.split
            found = self.index.named(name, row, text, strict) if name else []
            if len(found) > 1 and recurring[name] > 1 and len(source.columns) < 3 and len(one.sources) == 1:
                found = []  # the same name for several recordings in several rows: which one is meant does not show
            one.named[split] = one.named.get(split, 0) + (not found)
            for number in found:
                start, end = self.index.times.get(name.casefold()) or _times(row)
                speaker = next((row[name] for name in source.columns if name.lower() in _SPEAKERS and name in row), "")
                words = row.get(one.column, "").strip()
                if words or start is None:
                    of = split or self.splits[number]
                    one.spoken.append(Spoken(number, words, of, start, end, speaker))
                    one.named[of] = one.named.get(of, 0) + 1
        several = Counter(said.recording for said in one.spoken)
        if (
            all(count == 1 for count in several.values())
            and not self.index.times
            and one.sources[0].form != "annotation"
        ):
            one.spoken = [said._replace(start=None, end=None) for said in one.spoken]
        one.spoken = [said for said in one.spoken if said.text]

    def _measure(self, one: Candidate, wanted: str) -> None:
        covered = {said.recording for said in one.spoken if said.split == wanted}
        of = [number for number, split in enumerate(self.splits) if split == wanted and self._fits(one.way, number)]
        listed = [source for source in one.sources if split_of(source.text.name) == wanted != ""]
        one.split = wanted
        one.of_rows = not of or (bool(listed) and len(covered) < len(of))
        if one.of_rows:
            self.measure_rows(one)
        else:
            one.covered, one.wanted = len(covered.intersection(of)), len(of)
        one.cover = one.covered / max(one.wanted, 1)
        parts = {(said.recording, said.start) for said in one.spoken}
        if len(parts) * 1.5 < len({(said.recording, said.start, said.text) for said in one.spoken}):
            one.cover, one.covered, one.spoken = 0, 0, []  # several texts for a recording, and no times
            self.unread += [source.text for source in one.sources]

    def measure_rows(self, one: Candidate) -> None:
        """Count the rows that name a recording, in place of the recordings that have a text."""
        one.of_rows = True
        one.covered = sum(said.split == one.split for said in one.spoken)
        one.wanted = one.named.get(one.split, 0)

    def _fits(self, way: Way, number: int) -> bool:
        stem = self.index.recordings[number].stem.casefold()
        return stem.startswith(way.before) and stem.endswith(way.after)

    def _together(self, some: list[Candidate]) -> list[Candidate]:
        """Return candidates with the first one completed by others that have texts of other recordings."""
        first, added = some[0], False
        done = {said.recording for said in first.spoken}
        for other in some[1:]:
            more = [said for said in other.spoken if said.recording not in done and said.split == self.wanted]
            if first.of_rows and not (other.of_rows and other.cover >= ENOUGH):
                continue
            if len(more) * 20 >= len(first.spoken) and other.score * 4 >= first.score:
                first.spoken, added = first.spoken + more, True
                first.sources = first.sources + other.sources
                first.named = dict(Counter(first.named) + Counter(other.named))
                done |= {said.recording for said in more}
        if added:
            self._measure(first, self.wanted)
        return some


def _source(text: TextFile, parsed: Parsed, way: Way, index: Index | None) -> tuple[TextSource, Way]:
    """Return a text as it is read, and its way, with the names of columns if its first row has these."""
    rows, header = parsed.rows, tuple[str, ...]()
    if parsed.headed and len(rows) > 1:
        first = way.name(rows[0], text)
        usual = any(map(_START.fullmatch, rows[0].values())) and any(map(_END.fullmatch, rows[0].values()))
        if usual if index is None or way.columns == (FILE,) else not (first and index.named(first, {}, text)):
            cells = [rows[0].get(column, "") or column for column in parsed.columns]
            if all(len(cell) < 40 for cell in cells) and len({*cells}) == len(cells):
                header = tuple(cells)
    if header:
        rows = [{name: row[old] for name, old in zip(header, parsed.columns, strict=True) if old in row}
                for row in rows[1:]]  # fmt: skip
        names = dict(zip(parsed.columns, header, strict=True))
        way = way._replace(columns=tuple(names.get(column, column) for column in way.columns))
    return TextSource(text, parsed.form, header, header or parsed.columns, rows[: SAMPLE * 5]), way


def _timed(parsed: Parsed) -> bool:
    """Return whether rows, of which the first one may name columns, have times."""
    if parsed.headed and len(parsed.rows) > 1 and any(map(_START.fullmatch, parsed.rows[0].values())):
        named = [dict(zip(parsed.rows[0].values(), row.values(), strict=False)) for row in parsed.rows[1:9]]
    else:
        named = [dict(row) for row in parsed.rows[:9]]
    return bool(named) and all(_times(row)[1] is not None for row in named)


def _rows_of(source: TextSource, root: str) -> Iterator[Cells]:
    if source.form == "whole":
        content = source.text.text()
        timed = [_TIMED.fullmatch(line) for line in content.splitlines() if line.strip() and line[0] != "#"]
        if timed and all(timed):
            yield from (
                dict(zip(("start", "end", "speaker", "text"), found.groups(""), strict=True))
                for found in timed
                if found
            )
        else:
            yield {"text": whole(source.text, root)}
        return
    parsed = next((one for one in forms_of(source.text, root, -1, source.form) if one.form == source.form), None)
    if parsed is None:
        return
    if not source.header:
        yield from parsed.rows
        return
    for row in parsed.rows[1:]:
        yield {name: row[old] for name, old in zip(source.header, parsed.columns, strict=False) if old in row}


def _kind(text: TextFile) -> str:
    """Return the name of a table without what tells it from those of other splits, folders and numbers."""
    folder = re.escape(text.folder.rpartition("/")[2].lower())
    return re.sub(rf"{folder or '$'}|train|dev|test|valid|\d+|\W", "", text.stem.lower())


def _split_in(row: Cells) -> str:
    """Return the split that a column of a row says."""
    said = (row.get(name, "") for name in ("split", "set", "subset", "partition"))
    return next((split for value in said if value and (split := split_of(value))), "")


def _times(row: Cells) -> tuple[float | None, float | None]:
    """Return start and end of a part of a recording in seconds, as far as columns of the usual names tell both."""
    start, end = (next(filter(names.fullmatch, row), "") for names in (_START, _END))
    first, last = seconds(row.get(start, "")), seconds(row.get(end, ""))
    if first is not None and last is None and (length := seconds(row.get("duration", ""))) is not None:
        last = first + length
    return (first, last) if first is not None and last is not None and last > first else (None, None)
