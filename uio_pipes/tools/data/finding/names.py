"""Which column of a table names recordings, and which one is the text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations, takewhile
from typing import NamedTuple

from uio_pipes.formats.advice import USUAL
from uio_pipes.formats.archives.directory import AUDIO
from uio_pipes.tools.data.finding.files import AudioFile, TextFile
from uio_pipes.tools.data.finding.forms import Cells

SAMPLE = 40  # rows of a table that are tried in all ways
MOST = 0.5  # of the rows of a table must name recordings
FILE, FOLDER = "(file)", "(folder)"  # columns that all rows have: their table's name without suffix, its folder's
_MARKS = ("_", "-", "/", "")
_TEXTS = (
    *USUAL["txt"],
    "sentence_1",
    "utterance",
    "prompt",
    "normalised_text",
    "normalized",
    "original",
    "transcript_1",
)
_NO_TEXT = re.compile(
    r"(?i).*(?:speaker|spk|gender|sex\b|age\b|accent|dialect|lang|locale|path|file|url|source|dur|start|end\b|time|rate"
    r"|license|emotion|client|phon|pinyin|ipa\b|split|subset|book|chapter|title|domain|topic|model|device|name\b).*|(?:.*[_\W])?(?:utt|uu)?id"
)
_IDENTIFIER = re.compile(rf"[^\s\d]*[-_.\d][\w.:/-]*|\W*|.*\.(?:{'|'.join(AUDIO)})\b.*")


class Way(NamedTuple):
    """How rows name recordings: by columns, joined by a mark, with what stands before and after that in names of
    recordings."""

    columns: tuple[str, ...]
    mark: str = ""
    before: str = ""
    after: str = ""
    digits: int = 0  # to which a number is filled with zeros

    def name(self, row: Cells, text: TextFile) -> str:
        """Return the name of the recording; "" if the row has none."""
        parts = [_cell(row, column, text) for column in self.columns]
        if not all(parts):
            return ""
        name = self.mark.join(parts)
        filled = name if name.startswith("0") and name != "0" else name.zfill(self.digits)
        return f"{self.before}{filled}{self.after}" if name else ""

    def __str__(self) -> str:
        name = f" {self.mark} ".join("name" if one == FILE else "folder" if one == FOLDER else f"column {one}" 
                                     for one in self.columns)  # fmt: skip
        more = [f"{what} {affix!r}" for what, affix in (("after", self.before), ("before", self.after)) if affix]
        return " ".join([name, *more])


def _cell(row: Cells, column: str, text: TextFile) -> str:
    if column == FILE:
        return text.stem
    return text.folder.rpartition("/")[2] if column == FOLDER else row.get(column, "").strip().strip("\"'")


def without_suffix(name: str) -> str:
    """Return a name without the suffix of audio that it may have."""
    stem, _, suffix = name.rpartition(".")
    return stem if stem and suffix.lower() in AUDIO else name


class Index:
    """Recordings by the last part of their names without suffix, as ``by`` has them, in small letters."""

    def __init__(self, recordings: Sequence[AudioFile]) -> None:
        self.recordings = recordings
        self.by = defaultdict[str, list[int]](list)
        for number, recording in enumerate(recordings):
            self.by[recording.stem.casefold()].append(number)
        self.times = dict[str, tuple[float, float]]()  # of names that stand for a part of a recording
        self._every = "\n".join(self.by)
        self._sorted = sorted(self.by)
        self._turned = sorted(stem[::-1] for stem in self.by)

    def named(self, name: str, row: Cells, text: TextFile, strict: bool = False) -> list[int]:
        """Return the recordings that a row names: of several that are called so those in the folders that the name has,
        or else other columns of the row, or those nearest to the table. ``strict``: the last folder must be the same.
        """
        path = name.replace("\\", "/").removeprefix("./").casefold()
        folder, _, last = path.rpartition("/")
        found = self.by.get(without_suffix(last)) or self.by.get(last) or []
        if folder and found:
            near = [(_common(folder.split("/"), self._folders(number)), number) for number in found]
            best = max(near)[0]
            if strict and not best:
                return []
            found = [number for score, number in near if score == best]
        if len(found) > 1:
            cells = {cell.strip().casefold() for cell in row.values()}
            scores = [(len(cells & {*self._folders(n)}), self._nearness(n, text), n) for n in found]
            best_two = max(scores)[:2]
            found = [number for *score, number in scores if tuple(score) == best_two]
        return found

    def _folders(self, number: int) -> list[str]:
        recording = self.recordings[number]
        return f"{recording.archive}/{recording.path}".casefold().split("/")[:-1]

    def _nearness(self, number: int, text: TextFile) -> tuple[int, bool]:
        """Return how many folders a recording shares with the table, and whether it is of its split."""
        recording = self.recordings[number]
        pairs = zip(recording.path.split("/")[:-1], text.folder.split("/"), strict=False)
        near = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return near if recording.archive == text.archive else -1, recording.split == text.split

    def ways(self, rows: Sequence[Cells], columns: Sequence[str], text: TextFile) -> Iterator[tuple[float, Way]]:
        """Yield ways by which rows name recordings, with the share of the rows that do: first of a column as it is."""
        known = [*columns[:12], FILE]
        yield from ((self.share(rows, way, text), way) for column in known if (way := Way((column,))))
        parts = [*filter(lambda column: self._within(rows, column, text), [*columns, FILE, FOLDER])][:8]
        for pair in permutations(parts, 2):
            for mark in _MARKS:
                way = Way(pair, mark)
                yield self.share(rows, way, text), way
        for column in known:
            for digits in {len(stem) for stem in self._sorted[:2] if stem.isdecimal()}:
                yield self.share(rows, way := Way((column,), digits=digits), text), way
            if affixes := self._affixes({Way((column,)).name(row, text) for row in rows}):
                way = Way((column,), before=affixes[0], after=affixes[1])
                yield self.share(rows, way, text), way

    def _within(self, rows: Sequence[Cells], column: str, text: TextFile) -> bool:
        """Return whether half of the values of a column are parts of names of recordings."""
        values = [without_suffix(_cell(row, column, text)).casefold() for row in rows]
        return 2 * sum(bool(value) and value in self._every for value in values) >= len(values)

    def share(self, rows: Sequence[Cells], way: Way, text: TextFile) -> float:
        """Return the share of rows that name a recording in a way."""
        named = [name for row in rows if (name := way.name(row, text))]
        return sum(bool(self.named(name, {}, text)) for name in named) / len(rows) if rows else 0.0

    def _affixes(self, names: Iterable[str]) -> tuple[str, str] | None:
        """Return what stands before and after most of these names in those of recordings."""
        found, tried = Counter[tuple[str, str]](), 0
        for name in (without_suffix(name.rpartition("/")[2]).casefold() for name in names):
            if len(name) < 2:
                continue
            tried += 1
            for several, of, is_after in ((self._sorted, name, True), (self._turned, name[::-1], False)):
                at = bisect_left(several, of)
                for stem in several[at : at + 8]:
                    if stem.startswith(of):
                        rest = stem[len(of) :]
                        found["" if is_after else rest[::-1], rest if is_after else ""] += 1
        best = max(found, key=lambda one: (found[one], -len("".join(one)), one), default=None)
        if (
            best is None
            or found[best] * 2 < tried
            or found[best] < min(2, len(self.by) - 1)
            or re.fullmatch(r"[-_.]?\d*", "".join(best))
        ):
            return None  # a number tells utterances apart
        return best


def _common(folders: Sequence[str], others: Sequence[str]) -> int:
    """Return how many folders, from the last one up, are the same."""
    count = 0
    for one, other in zip(reversed(folders), reversed(others), strict=False):
        if one != other:
            break
        count += 1
    return count


def text_among(rows: Sequence[Cells], columns: Sequence[str], way: Way) -> tuple[float, str]:
    """Return the column that is the text, by its usual name or else the first one with about as many words as any, and
    how much it is like one; (0, "") without one."""
    scores = {column: _wordiness([row.get(column, "") for row in rows], column) for column in columns}
    scores = {column: score for column, score in scores.items() if score and (column,) != way.columns[-1:]}
    for name in _TEXTS:
        for column in scores:
            if column.lower() == name:
                return 3 * scores[column], column
    best = max(scores.values(), default=0)
    return next(((score, column) for column, score in scores.items() if 2 * score >= best), (0.0, ""))


def _wordiness(values: Sequence[str], column: str) -> float:
    """Return how much values are like texts: different, with letters, of several words; 0 of what is none."""
    there = [value.strip() for value in values if value.strip()]
    if len(there) * 2 < len(values) or not there or (_NO_TEXT.fullmatch(column) and column.lower() not in _TEXTS):
        return 0.0
    if sum(_IDENTIFIER.fullmatch(value) is not None for value in there) * 2 > len(there):
        return 0.0
    letters = sum(character.isalpha() for value in there for character in value)
    length = sum(map(len, there))
    if letters * 5 < length * 2 or (letters < 2 * len(there) and all(map(str.isascii, there))):
        return 0.0
    words = sum(" " in value or not value.isascii() for value in there) / len(there)
    return (
        (0.2 + len({*there}) / len(there))
        * min(sum(len(value.encode()) for value in there) / len(there), 100)
        * (1 + 2 * words)
    )
