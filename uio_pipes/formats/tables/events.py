"""Events on the clock of a recording, made of the rows of tables and of what toolkits write into JSON.

Formats: NIST's RTTM, UEM, CTM and STM; the JSON of moshi-finetune's annotations (``alignments``), of Whisper, WhisperX
and stable-ts (``segments`` of ``words``), and of Lhotse's supervisions (``alignment``).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, BinaryIO, NamedTuple, cast

from uio_pipes.audio.timeline import Event
from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import redact, suffix_of
from uio_pipes.formats.lists.json_lines import LATEST, as_seconds
from uio_pipes.formats.rows.content import WHAT, Content
from uio_pipes.formats.tables.annotations import ANNOTATIONS, channel_named
from uio_pipes.formats.tables.description import NIST_CHANNEL, TEXTS
from uio_pipes.formats.tables.files import TableFile
from uio_pipes.formats.tables.rows import Row
from uio_pipes.formats.tables.text import TextRows

_LISTS = ("alignments", "segments", "supervisions", "asr", "words")  # of events, within a JSON object
_STARTS = {"start": 1.0, "start_time": 1.0, "begin_time": 1.0, "startInMs": 1e-3}
_ENDS = {"end": 1.0, "end_time": 1.0, "endInMs": 1e-3}
_TEXTS = ("text", "txt", "word", "words", "labels")
_RECORDINGS = ("recording", "session_id", "recording_id")
CONDITIONS = "text_conditions"
_DIGITS = 8  # of seconds, as Lhotse rounds ends: sums of floats have errors
_PASSED = frozenset([
    "LEXEME", "NON-LEX", "NON-SPEECH", "SEGMENT", "NOSCORE", "NO_RT_METADATA", "FILLER", "EDIT", "IP", "SU", "CB",
    "A/P", "SPKR-INFO",
])  # fmt: skip
_NOBODY = "inter_segment_gap"  # the speaker of STM's lines about what lies between turns
_UNSORTED = "unsorted_event"
_MAIN = "SPEAKER_MAIN"  # whom moshi-finetune's annotations name so is in the left channel


class Unusable(NamedTuple):
    """What is wrong with a row: the reason, where in the recording (s, 0 where that is not known), and what it is."""

    reason: str
    start: float
    shown: str


class Conditions(NamedTuple):
    """What a file says of the whole recording, as ``text_conditions`` of moshi-finetune."""

    value: Any


RowResult = Event | Unusable | Conditions


def recording_of(row: Row) -> str | None:
    """Return the name of the recording that a row is about; None if it names none."""
    for name in _RECORDINGS:
        if row.get(name) not in (None, ""):
            return str(row[name])
    return None


def event_of(row: Row | DataError) -> RowResult | None:
    """Return the event of a row; None of a line that is about something else."""
    if isinstance(row, DataError):
        return Unusable(_UNSORTED if row.reason == _UNSORTED else "bad_event", 0.0, row.message)
    if CONDITIONS in row and "start" not in row:
        return Conditions(row[CONDITIONS])
    if (kind := row.get("rttm", "SPEAKER")) != "SPEAKER":
        return None if kind in _PASSED else Unusable("bad_event", 0.0, f"a line of the unknown type {kind!r}")
    if row.get("speaker") == _NOBODY:
        return None
    start, end = _time(row, _STARTS), _time(row, _ENDS)
    if end is None and start is not None and (duration := _time(row, {"duration": 1.0})) is not None:
        end = round(start + duration, _DIGITS)
    if start is None or end is None:
        return Unusable("untimed_event", start or 0.0, f"{dict(row)!r:.80} has no start and end in seconds")
    if end < start:
        return Unusable("reversed_event", start, f"{start:g} to {end:g} s: the end is before the start")
    ids: Any = row.get("ids")
    ids = tuple(ids) if isinstance(ids, (list, tuple)) and all(type(one) is int for one in ids) else ()
    speaker = row.get("speaker")
    return Event(start, end, _text(row), "" if speaker is None else str(speaker), _channel(row), ids)


def by_recording(rows: Iterable[Row | DataError]) -> dict[str, list[RowResult]]:
    """Return the events of rows by the name of their recording, "" of those that name none; a damaged row is about the
    same one as that before it."""
    found, last = dict[str, list[RowResult]](), ""
    for row in rows:
        last = last if isinstance(row, DataError) else recording_of(row) or ""
        listed = found.setdefault(last, [])
        if (one := event_of(row)) is not None:
            listed.append(one)
    return found


def _time(row: Row, names: Mapping[str, float]) -> float | None:
    """Return the seconds of the first of these fields that there is; None if it is no time."""
    for name, unit in names.items():
        if (value := row.get(name)) is not None:
            if type(value) is float and unit == 1.0 and abs(value) < LATEST:  # which NaN is not
                return value
            value = as_seconds(value)
            ok = is_number(value) and abs(value) < LATEST
            return float(value) if ok and unit == 1.0 else round(value * unit, _DIGITS) if ok else None
    return None


def _text(row: Row) -> str:
    for name in _TEXTS:
        if said := row.get(name):
            said = said if isinstance(said, str) else said.get("txt") if isinstance(said, Mapping) else ""
            return said.strip() if isinstance(said, str) else ""
    return ""


def _channel(row: Row) -> int | None:
    value = row.get("channel")
    if value is None and row.get(NIST_CHANNEL):
        value = channel_named(row[NIST_CHANNEL])
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    value = int(value) if isinstance(value, str) and value.isdecimal() else value
    return value if type(value) is int else None


def rows_of(value: Any, words: bool) -> Iterator[Row | DataError]:
    """Yield the rows of a JSON value: a list of events, or an object that has such a list.

    ``words``: give the words in place of the segments that list them. Raises: DataError ``bad_timeline``.
    """
    if isinstance(value, Mapping):
        name = next((name for name in _LISTS if isinstance(value.get(name), list)), "")
        if not name:
            raise DataError("bad_timeline", f"it has none of the lists {', '.join(_LISTS)}, but {', '.join(value)}")
        if value.get(CONDITIONS) is not None:
            yield {CONDITIONS: value[CONDITIONS]}
        value = value[name]
    if not isinstance(value, list):
        raise DataError("bad_timeline", f"it is no list of events, but {value!r:.80}")
    last = -inf
    for number, one in enumerate(value):
        if isinstance(one, list) and one and isinstance(one[0], str):
            yield (row := _aligned(one))
            start = None if isinstance(row, DataError) else _time(row, _STARTS)
            if start is not None and start < last:
                yield DataError(_UNSORTED, f"{one!r:.80} begins before the word before it")
            last = last if start is None else start
        elif isinstance(one, list):  # the turns of a channel
            yield from ({"channel": number, **turn} if isinstance(turn, Mapping) else _odd(turn) for turn in one)
        elif isinstance(one, Mapping):
            yield from _in_words(one) if words else [one]
        else:
            yield _odd(one)


def _odd(one: Any) -> DataError:
    return DataError("bad_row", f"{one!r:.80} is no event: events have a start and an end")


def _aligned(one: list[Any]) -> Row | DataError:
    """Return the row of ``[word, [start, end], speaker]``, as moshi-finetune has it."""
    times = one[1] if len(one) > 1 else None
    if not isinstance(times, list) or len(times) != 2:
        return _odd(one)
    speaker = one[2] if len(one) > 2 else None
    channel = None if speaker is None else int(speaker != _MAIN)
    return {"text": one[0], "start": times[0], "end": times[1], "speaker": speaker, "channel": channel}


def _in_words(segment: Row) -> Iterator[Row | DataError]:
    listed, alignment = segment.get("words"), segment.get("alignment")
    whole = {name: segment[name] for name in ("speaker", "channel") if name in segment}
    if isinstance(listed, list):
        yield from ({**whole, **word} if isinstance(word, Mapping) else _odd(word) for word in listed)
    elif isinstance(alignment, Mapping) and isinstance(alignment.get("word"), list):
        for word in alignment["word"]:
            ok = isinstance(word, list) and len(word) >= 3
            yield {**whole, "text": word[0], "start": word[1], "duration": word[2]} if ok else _odd(word)
    else:
        yield segment


def rows_in(name: str, data: bytes, words: bool) -> Iterator[Row | DataError]:
    """Yield the rows of a file of one recording, whose form is its suffix, or the ``name``; any other one is JSON.

    Raises: DataError ``bad_timeline``.
    """
    form, file = suffix_of(name.removesuffix(".gz")) or name, TableFile(name, cast(BinaryIO, io.BytesIO(data)))
    try:
        if form in ANNOTATIONS:
            yield from ANNOTATIONS[form](file, "utf-8-sig")
        elif form in TEXTS:
            yield from TextRows([Content(name, WHAT, data)], TEXTS[form]).scan() if data.strip() else ()
        else:
            yield from rows_of(parse_json(data.removeprefix(b"\xef\xbb\xbf").strip()), words)
    except (ValueError, ListError, DataError) as error:
        message = error.message if isinstance(error, DataError) else str(error)
        raise DataError("bad_timeline", f"{redact(name)}: {message}: write it again") from error
