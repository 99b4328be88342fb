"""Which column of a table names recordings, and which one is the text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from typing import NamedTuple

from uio_pipes.formats.advice import USUAL
from uio_pipes.formats.archives.directory import AUDIO
from uio_pipes.tools.data.finding.files import FoundFile
from uio_pipes.tools.data.finding.forms import Cells

FILE, FOLDER = "(file)", "(folder)"  # the name of a text and that of its folder, as columns that all its rows have
Times = tuple[float | None, float | None]
_MARKS = ("_", "-", "/", "")
_TEXTS = (*USUAL["txt"], "sentence_1", "utterance", "prompt", "normalised_text", "normalized", "original", 
          "transcript_1")  # fmt: skip
_NO_TEXT = re.compile(
    r"(?i)(?!(?:speaker|source)_(?:text|sentence|transcri\w+)$)(?:.*(?:speaker|spk|gender|sex\b|age\b|accent|dialect"
    r"|lang|locale|path|file|url|source|dur|start|end\b|time|rate|license|emotion|client|phon|pinyin|ipa\b|split|subset"
    r"|book|chapter|title|domain|topic|model|device|name\b|sector|company|country|nation|region|city\b|category).*"
    r"|(?:.*[_\W])?(?:utt|uu)?id)"
)
_START, _END = (
    re.compile(rf"(?i)(?:{names})[_ ]?(?:time|sec|seconds|s)?(?:\..*)?")
    for names in ("start|st|begin|beg|onset|offset|from", "end|en|stop|to")
)
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")
_SPEAKERS = ("speaker", "speaker_id", "spk", "spk_id", "speakerid", "client_id", "user_id")
_IDENTIFIER = re.compile(rf"[^\s\d]*[-_.\d][\w.:/-]*|\W*|.*\.(?:{'|'.join(AUDIO)})\b.*")


class Way(NamedTuple):
    """How rows name recordings: by columns, joined by a mark, with what stands before and after that in names of
    recordings."""

    columns: tuple[str, ...]
    mark: str = ""
    before: str = ""
    after: str = ""

    def name(self, row: Cells) -> str:
        """Return the name of the recording; "" if the row has none."""
        parts = [row.get(column, "").strip().strip("\"'") for column in self.columns]
        return f"{self.before}{self.mark.join(parts)}{self.after}" if all(parts) else ""

    def __str__(self) -> str:
        names = {FILE: "name", FOLDER: "folder"}
        name = f" {self.mark} ".join(names.get(one) or f"column {one}" for one in self.columns)
        more = [f"{what} {affix!r}" for what, affix in (("after", self.before), ("before", self.after)) if affix]
        return " ".join([name, *more])


class Index:
    """Recordings by the last part of their names without suffix, in small letters; numbers without zeros in front, too.

    ``times``: of names that stand for a part of a recording.
    """

    def __init__(self, recordings: Sequence[FoundFile]) -> None:
        self.recordings, self.times = recordings, dict[str, Times]()
        self.by = defaultdict[str, list[int]](list)
        for number, one in enumerate(recordings):
            self.by[one.stem.casefold()].append(number)
        self._every = "\n".join(["", *self.by, ""])
        for name in [name for name in self.by if name.isdecimal() and name != str(int(name))]:
            self.by[str(int(name))] += self.by[name]

    def called(self, name: str) -> list[int]:
        """Return the recordings with the last part of a name."""
        last = name.replace("\\", "/").rpartition("/")[2].casefold()
        return self.by.get(_without_suffix(last)) or self.by.get(last) or []

    def named(self, way: Way, row: Cells, text: FoundFile, strict: bool = False) -> list[int]:
        """Return the recordings that a row names, of several those in the folders that the name and other columns have,
        or else those nearest to its text. ``strict``: the last folder of the name must be the same."""
        name = way.name(row)
        found = self.called(name)
        above = name.replace("\\", "/").removeprefix("./").casefold().split("/")[-2::-1] if found else []
        if len(found) < 2 and not (strict and above):
            return found
        cells, scores = {cell.strip().casefold() for cell in row.values()}, list[tuple[int, int, int, bool]]()
        for number in found:
            one = self.recordings[number]
            folders = f"{one.archive}/{one.folder}".casefold().split("/")
            same = [a == b for a, b in zip(above, reversed(folders), strict=False)]
            near = (
                len({*folders}.intersection(text.folder.casefold().split("/"))) if one.archive == text.archive else -1
            )
            scores.append(
                ([*same, False].index(False), len(cells.intersection(folders)), near, one.split == text.split)
            )
        best = max(scores, default=())
        return [
            n for n, score in zip(found, scores, strict=True) if score == best and (score[0] or not (strict and above))
        ]

    def ways(self, rows: Sequence[Cells], columns: Sequence[str]) -> Iterator[Way]:
        """Yield ways by which rows may name recordings: by a column as it is, by two, by one within longer names."""
        singles = [*columns[:40], FILE]
        yield from (Way((column,)) for column in singles)
        within = {column: [[*self._around(row.get(column, ""))] for row in rows] for column in (*singles, FOLDER)}
        parts = [column for column, found in within.items() if 2 * sum(map(bool, found)) >= len(rows)][:8]
        yield from (Way(pair, mark) for pair in permutations(parts, 2) for mark in _MARKS)
        for column in [column for column in parts if column != FOLDER]:
            every = zip((row.get(column, "") for row in rows), within[column], strict=True)
            names = {name: around for name, around in every if len(_without_suffix(name)) > 1}
            affixes = Counter(one for around in names.values() for one in {*around})
            best = max(affixes, key=lambda one: (affixes[one], -len("".join(one)), one), default=("", ""))
            differ = any(best) and not any(re.fullmatch(r"[-_.]?\d+", one) for one in best)  # which numbers do
            if differ and affixes[best] >= max(len(names) / 2, min(2, len(self.by) - 1)):
                yield Way((column,), "", *best)

    def _around(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what is before and after a name in those of the first recordings that have it in them."""
        name = _without_suffix(name.strip().rpartition("/")[2]).casefold()
        at = self._every.find(name) if len(name) > 0 and "\n" not in name else -1
        for _ in range(8):
            if at >= 0:
                begin, end = self._every.rfind("\n", 0, at) + 1, self._every.find("\n", at)
                yield self._every[begin:at], self._every[at + len(name) : end]
                at = self._every.find(name, end)


def _without_suffix(name: str) -> str:
    """Return a name without the suffix of audio that it may have."""
    stem, _, suffix = name.rpartition(".")
    return stem if stem and suffix.lower() in AUDIO else name


def segment_in(names: Iterable[str]) -> dict[str, str]:
    """Return our names of speaker, start, and end or duration, with what they seem to be called among these; none of
    the times without an end or a start: it would be another segment."""
    lower = {name.lower(): name for name in reversed([*names])}
    start, end = (next((name for name in names if one.fullmatch(name)), "") for one in (_START, _END))
    times = {"start": start, "end": end} if end else {"start": start, "duration": lower.get("duration", "")}
    speaker = next((lower[name] for name in _SPEAKERS if name in lower), "")
    return ({"speaker": speaker} if speaker else {}) | (times if all(times.values()) else {})


def times_of(row: Cells) -> Times:
    """Return start and end of a part of a recording in seconds, if columns of the usual names tell both."""
    named = segment_in(row)
    start, end, length = (_seconds(row.get(named.get(name, ""), "")) for name in ("start", "end", "duration"))
    last = start + length if start is not None and length is not None else end
    return (start, last) if start is not None and last is not None and last > start else (None, None)


def _seconds(value: str) -> float | None:
    """Return a time in seconds, of 5.25 or 0:00:05.25; None of anything else."""
    with suppress(ValueError):
        return float(value)
    if clock := _CLOCK.fullmatch(value.strip()):
        hours, minutes, rest = clock.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    return None


def text_among(rows: Sequence[Cells], columns: Iterable[str], taken: Sequence[str] = ()) -> tuple[float, str]:
    """Return the column that is the text, by its usual name or else the first one with about as many words as any, and
    how much it is like one; (0, "") without one."""
    scores = {column: _wordiness([row.get(column, "") for row in rows], column) for column in columns}
    scores = {column: score for column, score in scores.items() if score and column not in taken}
    usual = [column for name in _TEXTS for column in scores if column.lower() == name]
    if usual:
        return 3 * scores[usual[0]], usual[0]
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
    if letters * 5 < sum(map(len, there)) * 2 or (letters < 2 * len(there) and all(map(str.isascii, there))):
        return 0.0
    words = sum(" " in value or not value.isascii() for value in there) / len(there)
    length = min(sum(len(value.encode()) for value in there) / len(there), 100)
    return (0.2 + len({*there}) / len(there)) * length * (1 + 2 * words)
