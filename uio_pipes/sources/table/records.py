"""The utterances of a table: rows with our field names and their audio."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, Protocol

from uio_pipes.audio.forms import whole_number, with_form
from uio_pipes.audio.length import DeclaredSeconds
from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.urls import redact, stem_of
from uio_pipes.formats.advice import named_otherwise, names_file, shown
from uio_pipes.formats.expressions import TABLE, Expression, compiled
from uio_pipes.formats.lists.json_lines import as_seconds, check_segment, numbers_as_text
from uio_pipes.formats.naming import LOOKED_AT, Asked, FieldNames, check_asked, lacks
from uio_pipes.formats.tables.rows import Row, Rows
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES
from uio_pipes.sources.format import RowPlace, Utterances

logger = logging.getLogger("uio_pipes")
OURS = frozenset(["wav", "txt", "feat"])  # without any of them a row is no utterance


class RowAudio(Protocol):
    """The place of the audio of rows."""

    @property
    def digest(self) -> str:
        """A text that changes if the audio changes; "" if the table alone determines it."""

    @property
    def leftover(self) -> Counter[str]:
        """How much audio no row names, by the reasons under which it is counted. Raises: ListError."""

    @property
    def damage(self) -> list[DataError]:
        """Damage of archives, reported once; rows may be lost by it. Raises: ListError."""

    def find(self, name: str, number: int, fields: Mapping[str, Any]) -> Any:
        """Return the audio of row ``number``, not opened yet, or its bytes. Raises: DataError ``no_audio``."""


class RowFilter(NamedTuple):
    """An expression, the regular expression that its value (or an item of it) must match, and the error for rows that
    it leaves out. One object is shared by all of these, because there may be millions."""

    expression: Expression
    pattern: re.Pattern[str]
    unwanted: LeftOut

    def holds(self, row: Row) -> bool:
        value = self.expression(row)
        values = value if isinstance(value, list) else [value]
        return any(one is not None and self.pattern.fullmatch(str(one)) is not None for one in values)


def wishes(pairs: FieldNames, reason: str) -> list[RowFilter]:
    rules = ((text, pattern, LeftOut(reason, f"{text}: {pattern}")) for text, pattern in pairs)
    return [RowFilter(compiled(text), re.compile(pattern), unwanted) for text, pattern, unwanted in rules]


class TableRecords(Utterances):
    """The utterances of ``rows``, whose fields are expressions over theirs.

    ``names``: our fields with their expressions; None: all fields of the rows. ``keep``, ``drop``: expressions with
    the regular expressions of what is kept, or left out.

    Raises: ListError if no row has what an expression asks for, or none of the first ones can be read.
    """

    def __init__(
        self, rows: Rows, audio: RowAudio, names: FieldNames | None, keep: FieldNames = (), drop: FieldNames = ()
    ) -> None:
        self.rows, self.audio, self.place = rows, audio, rows.place
        self._names = None if names is None else [(ours, compiled(text)) for ours, text in names]
        self._keep, self._drop = wishes(keep, "not_kept"), wishes(drop, "dropped")
        self.digest = f"{rows.digest}{audio.digest}"
        self._of_table = any(TABLE in each.expression.names for each in self._asked())
        first = list(islice(self.rows.scan(), LOOKED_AT))
        seen = [self._row(row, number) for number, row in enumerate(first) if not isinstance(row, DataError)]
        if not seen and isinstance(first[0], DataError):
            raise ListError(f"no row can be read: {first[0].at(self.place(0))}")
        place = redact(self.rows.file(0))
        if self._names is None and not any(OURS & row.keys() for row in seen):
            raise ListError(f"{place}: no row has wav or txt: {self._advice('wav', seen[0], 'txt')}")
        check_asked(seen, self._asked(), place, self._advice)
        self._look_at_keys(seen)

    def fields(self, number: int, audio: RowAudio | None = None) -> dict[str, Any]:
        """Return the fields of an utterance, without opening its audio. ``audio``: where that is, if known by now.

        Raises: LeftOut ``not_kept`` or ``dropped``, DataError.
        """
        fields: dict[str, Any] = {}
        try:
            row = self._row(self.rows.row(number), number)
            self._sort_out(row)
            fields = self._under_our_names(row)
            self._complete(fields, number, audio or self.audio)
            return fields
        except DataError as error:
            if error.url or isinstance(error, LeftOut):
                raise
            member = str(fields.get("key", ""))
            raise type(error)(error.reason, error.message, url=self.place(number), member=member) from error

    def _asked(self) -> Iterator[Asked]:
        """Yield all expressions."""
        yield from (Asked(f"fields[{ours!r}]", expression, ours) for ours, expression in self._names or ())
        yield from (Asked("keep", wish.expression) for wish in self._keep)
        yield from (Asked("drop", wish.expression) for wish in self._drop)

    def _row(self, row: Row, number: int) -> Row:
        return {TABLE: self.rows.file(number), **row} if self._of_table else row

    def _sort_out(self, row: Row) -> None:
        """Raises: LeftOut for a row that is not wanted."""
        for wish in self._keep:
            if not wish.holds(row):
                raise wish.unwanted.with_traceback(None)
        for wish in self._drop:
            if wish.holds(row):
                raise wish.unwanted.with_traceback(None)

    def _under_our_names(self, row: Row) -> dict[str, Any]:
        if self._names is None:
            return {name: value for name, value in row.items() if value is not None}
        found = ((ours, expression.value(row)) for ours, expression in self._names)
        fields = {name: value for name, value in found if value is not None}
        if "txt" not in fields and any(ours == "txt" for ours, _ in self._names):
            raise DataError("missing_text", f"the row has no text ({', '.join(row)}): {self._remedy('txt')}")
        return fields

    def _complete(self, fields: dict[str, Any], number: int, audio: RowAudio) -> None:
        """Add the key and the audio, and make numbers of times. Raises: DataError."""
        _times(fields)
        wav = fields.get("wav")
        if isinstance(wav, str):
            if not wav:
                raise DataError("missing_audio", f"the row names no audio: {self._remedy('wav')}")
            fields.setdefault("key", _key(wav, fields.get("start")))
            fields["wav"] = audio.find(wav, number, fields)
        elif wav is None and any(name == "wav" for name, _ in self._names or ()):
            raise DataError("missing_audio", f"the row names no audio: {self._remedy('wav')}")
        if "key" not in fields:
            fields["key"] = RowPlace(self.rows, number).key
        numbers_as_text(fields, "key", "txt")
        with_form(fields, wav if isinstance(wav, str) else "")

    def _remedy(self, ours: str) -> str:
        names = {name for one, expression in self._names or () if one == ours for name in expression.names} or {ours}
        column = names.pop() if len(names) == 1 else "COLUMN"
        return f"correct it, or keep only rows that have one: keep={{'{column}': '.+'}}"

    # At the first rows

    def _look_at_keys(self, rows: Iterable[Row]) -> None:
        """Warn if names of files, which are the keys where nothing else is, do not tell utterances apart."""
        seen = dict[str, str]()
        column = next((each.text for ours, each in self._names or () if ours == "wav" and each.plain), "wav")
        for row in rows:
            with suppress(DataError):
                self._sort_out(row)
                fields = self._under_our_names(row)
                wav = fields.get("wav")
                if "key" in fields or not isinstance(wav, str):
                    return
                _times(fields)
                key = _key(wav, fields.get("start"))
                if seen.setdefault(key, wav) != wav:
                    logger.warning(
                        "%s: keys are file names, but %s and %s have the same one, %s: define another with "
                        'fields={"key": "{%s | folder | name}-{%s | stem}"}',
                        *(redact(self.rows.file(0)), seen[key], wav, key, column, column),
                    )
                    return

    def _advice(self, ours: str, row: Row, *also: str, asked: str = "", **given: Any) -> str:
        """Return what the first row has, and what to write; if a list in it has what is asked for, how to expand it."""
        has = f"it has {shown(row)}"
        if any(names_file(name) or {*"|;\t"} & {*name} for name in row):
            return (
                f"{has}: if these are no names of columns, say how it is written, uio.Table(…, separator=…, header=[…])"
            )
        names = [name for each in self._asked() for name in each.expression.names if lacks(row, name)]
        if path := max((list_with(row, name) for name in names or [asked]), key=len, default=""):
            return f'{has}; its list {path!r} has objects: uio.Table(…, expand="{path}") makes rows of them'
        return named_otherwise(ours, with_files(self.rows.file(0), row), *also, asked=asked, **given)


_COLUMNS = 200  # of which advice is given: to look for a file takes several calls of the system


def with_files(table: str, row: Row) -> Row:
    """Return a row with the names of audio files below a folder beside the table, or without their suffix, also by the
    expressions that lead to them: ``clips/{path}``, ``wavs/{id}.wav``."""
    found = dict[str, Any]()
    for name, value in islice(row.items(), _COLUMNS):
        where = place_of(table, value) if isinstance(value, str) and value else "{}"
        found[name] = value if where == "{}" or not names_file(value) else None  # no file by that name alone
        if where != "{}":
            found[where.replace("{}", f"{{{name}}}")] = where.replace("{}", value)
    return found


def place_of(table: str, name: str) -> str:
    """Return where a file is, from the table: ``clips/{}``; ``{}`` if that is its name, or not known."""
    folder = os.path.dirname(table) or "."
    if not os.path.isfile(table) or os.path.exists(name) or os.path.exists(os.path.join(folder, name)):
        return "{}"
    suffixes = [""] if names_file(name) else [f".{suffix}" for suffix in sorted(AUDIO_SUFFIXES)]
    places = ["", *(f"{entry.name}/" for entry in os.scandir(folder) if entry.is_dir())]
    names = [f"{place}{{}}{suffix}" for place in places for suffix in suffixes]
    found = [one for one in names if os.path.isfile(os.path.join(folder, one.replace("{}", name)))]
    return found[0] if len(found) == 1 else "{}"


def list_with(row: Row, name: str) -> str:
    """Return what leads to a list of objects that have a name, or any if it is ""; "" if there is none such."""
    for own, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            if not name or name in value[0]:
                return own
            if deeper := list_with(value[0], name):
                return f"{own}.{deeper}"
    return ""


def _key(wav: str, start: Any) -> str:
    """Return the file's name without its suffix, and of a segment its start in ms."""
    stem = stem_of(wav)
    return stem if start is None else f"{stem}-{round(start * 1000):08d}"


def _times(fields: dict[str, Any]) -> None:
    """Make numbers of ``start``, ``end``, ``duration``; planned lengths follow from them. Raises: DataError."""
    for name in ("start", "end", "duration", "channel", "sample_rate"):
        if name in fields and fields[name] == "":
            del fields[name]
    for name in ("channel", "sample_rate"):
        if (number := whole_number(fields.get(name))) is not None:
            fields[name] = number
    duration = fields.get("duration")
    if duration is not None and "start" not in fields and "end" not in fields:
        seconds = as_seconds(duration)
        if not is_number(seconds) or not 0 <= seconds < 10**7:
            raise DataError("bad_duration", f"duration must be a number of seconds, not {duration!r}")
        fields["duration"] = DeclaredSeconds(seconds)
        return
    if "start" not in fields and "end" not in fields:
        return
    start = fields.setdefault("start", 0.0)
    if "end" not in fields and duration is not None:
        fields["start"], length = as_seconds(start), as_seconds(duration)
        if is_number(fields["start"]) and is_number(length):
            fields["end"] = fields["start"] + length
    check_segment(fields, "", str(fields.get("key", "")))
    if "end" in fields:
        fields["duration"] = fields["end"] - fields["start"]
