"""Events on the clock of a recording, made of the rows of tables and of what toolkits write into JSON.

Formats: NIST's RTTM, UEM, CTM and STM; the JSON of moshi-finetune's annotations (``alignments``), of Whisper, WhisperX
and stable-ts (``segments`` of ``words``), and of Lhotse's supervisions (``alignment``).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_LISTS = ("alignments", "segments", "supervisions", "asr", "words", "tiers")  # of events, within a JSON object
_LISTED = (list, dict)
_STARTS = ("start", "start_time", "begin_time", "startInMs")
_ENDS = ("end", "end_time", "endInMs")
_TEXTS = ("text", "txt", "word", "words", "labels")
_RECORDINGS = ("recording", "session_id", "recording_id")
CONDITIONS = "text_conditions"
_DIGITS = 8  # of seconds, as Lhotse rounds ends: sums of floats have errors
_PASSED = frozenset([
    "LEXEME", "NON-LEX", "NON-SPEECH", "SEGMENT", "NOSCORE", "NO_RT_METADATA", "FILLER", "EDIT", "IP", "SU", "CB",
    "A/P", "SPKR-INFO",
])  # fmt: skip
_NOBODY = "inter_segment_gap"  # the speaker of STM's lines about what lies between turns
_UNSCORED = "ignore_time_segment_in_scoring"  # STM's text of what somebody says, but nobody has written down
_UNSORTED = "unsorted_event"
_MAIN = "SPEAKER_MAIN"  # whom moshi-finetune's annotations name so is in the left channel
_TIER = re.compile("(?:(.*) - )?(words|phones)")  # of MFA, which names the speaker if there are several


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


def events_of(rows: Iterable[Row | DataError]) -> Iterator[RowResult]:
    """Yield the events of rows, but for lines that are about something else."""
    return (one for one in map(event_of, rows) if one is not None)


def event_of(row: Row | DataError) -> RowResult | None:
    """Return the event of a row; None of a line that is about something else."""
    if isinstance(row, DataError):
        return Unusable(_UNSORTED if row.reason == _UNSORTED else "bad_event", 0.0, row.message)
    if CONDITIONS in row and "start" not in row:
        return Conditions(row[CONDITIONS])
    if (kind := row.get("rttm", "SPEAKER")) != "SPEAKER":
        return None if kind in _PASSED else Unusable("bad_event", 0.0, f"a line of the unknown type {kind!r}")
    speaker, tier = row.get("speaker"), _TIER.fullmatch(str(row.get("tier")))
    if speaker == _NOBODY or (tier and tier[2] == "phones"):
        return None
    start, end = _time(row, *_STARTS), _time(row, *_ENDS)
    if end is None and start is not None and (duration := _time(row, "duration")) is not None:
        end = round(start + duration, _DIGITS)
    if start is None or end is None:
        return Unusable("untimed_event", start or 0.0, f"{dict(row)!r:.80} has no start and end in seconds")
    if end < start:
        return Unusable("reversed_event", start, f"{start:g} to {end:g} s: the end is before the start")
    ids: Any = row.get("ids")
    ids = tuple(ids) if isinstance(ids, (list, tuple)) and all(type(one) is int for one in ids) else ()
    said = next((value for name in _TEXTS if (value := row.get(name))), "")
    said = said.get("txt") if isinstance(said, Mapping) else said
    text = said.strip() if isinstance(said, str) and said != _UNSCORED else ""
    speaker = tier[1] if tier else speaker
    return Event(start, end, text, "" if speaker is None else str(speaker), _channel(row), ids)


def by_recording(rows: Iterable[Row | DataError]) -> dict[str, list[RowResult]]:
    """Return the events of rows by the name of their recording, "" of those that name none; a damaged row is about the
    same one as that before it."""
    found, last = dict[str, list[RowResult]](), ""
    for row in rows:
        last = last if isinstance(row, DataError) else recording_of(row) or ""
        found.setdefault(last, []).extend(events_of([row]))
    return found


def _time(row: Row, *names: str) -> float | None:
    """Return the seconds of the first of these fields that there is; None if it is no time."""
    name = next((name for name in names if row.get(name) is not None), "")
    value = as_seconds(row.get(name))
    if not is_number(value) or not abs(value) < LATEST:
        return None
    return round(value / 1000, _DIGITS) if name.endswith("InMs") else float(value)


def _channel(row: Row) -> int | None:
    value = row.get("channel")
    if value is None and row.get(NIST_CHANNEL):
        value = channel_named(row[NIST_CHANNEL])
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    value = int(value) if isinstance(value, str) and value.isdecimal() else value
    return value if type(value) is int else None


def unfolded(row: Row | DataError, words: bool) -> Iterator[Row | DataError]:
    """Yield what a row of a table lists, as :func:`rows_of` does, or else the row."""
    if isinstance(row, DataError):
        return iter([row])
    listed = any(isinstance(row.get(name), _LISTED) for name in _LISTS if name != "words")  # which a segment has, too
    return rows_of(row if listed else [row], words)


def rows_of(value: Any, words: bool) -> Iterator[Row | DataError]:
    """Yield the rows of a JSON value: a list of events, or an object that has such a list.

    ``words``: give the words in place of the segments that list them. Raises: DataError ``bad_timeline``.
    """
    if isinstance(value, Mapping):
        name = next((name for name in _LISTS if isinstance(value.get(name), _LISTED)), "")
        if not name:
            raise DataError("bad_timeline", f"it has none of the lists {', '.join(_LISTS)}, but {', '.join(value)}")
        if value.get(CONDITIONS) is not None:
            yield {CONDITIONS: value[CONDITIONS]}
        value = value[name]
    if isinstance(value, Mapping):  # MFA's tiers
        for name, tier in value.items():
            entries = tier.get("entries") if isinstance(tier, Mapping) else None
            for one in entries if isinstance(entries, list) else [entries]:
                yield _row(one, ("start", "end", "text"), tier=name)
        return
    if not isinstance(value, list):
        raise DataError("bad_timeline", f"it is no list of events, but {value!r:.80}")
    last = -inf
    for number, one in enumerate(value):
        if isinstance(one, list) and one and isinstance(one[0], str):  # moshi-finetune's [word, [start, end], speaker]
            _, times, speaker, *_ = [*one, None, None]
            channel = None if speaker is None else int(speaker != _MAIN)
            said = [one[0], *times] if isinstance(times, list) else one
            yield (row := _row(said, ("text", "start", "end"), speaker=speaker, channel=channel))
            start = None if isinstance(row, DataError) else _time(row, "start")
            if start is not None and start < last:
                yield DataError(_UNSORTED, f"{one!r:.80} begins before the word before it")
            last = last if start is None else start
        elif isinstance(one, list):  # the turns of a channel
            yield from (_row(turn, channel=number) for turn in one)
        else:
            yield from _in_words(one) if words and isinstance(one, Mapping) else [_row(one)]


def _row(one: Any, names: Sequence[str] = (), **whole: Any) -> Row | DataError:
    """Return the row of an object, or of a list of values with these ``names``; ``whole``: what it is in says so."""
    if isinstance(one, list) and len(one) >= len(names) > 0:
        one = dict(zip(names, one, strict=False))
    if isinstance(one, Mapping):
        return {**whole, **one}
    return DataError("bad_row", f"{one!r:.80} is no event: events have a start and an end")


def _in_words(segment: Row) -> Iterable[Row | DataError]:
    """Return the words that a segment of Whisper's or a supervision of Lhotse's lists, or else itself."""
    words, alignment = segment.get("words"), segment.get("alignment")
    whole = {name: segment[name] for name in ("speaker", "channel") if name in segment}
    if isinstance(words, list):
        return [_row(word, **whole) for word in words]
    aligned = alignment.get("word") if isinstance(alignment, Mapping) else None
    if isinstance(aligned, list):
        return [_row(word, ("text", "start", "duration"), **whole) for word in aligned]
    return [segment]


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
