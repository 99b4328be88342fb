"""A timeline that waits to be read, and the link that reads it: the rows about a recording, those that cannot be used,
and the part that is the utterance's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.audio.length import audio_info, planned_by_duration
from uio_pipes.audio.recording import Channels
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.memory import Lru
from uio_pipes.base.urls import folder_of, inside, name_of, redact
from uio_pipes.core.chain import TIMELINE
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.sample import Sample
from uio_pipes.formats.archives.directory import MemberRef
from uio_pipes.formats.tables.events import (
    Conditions,
    RowResult,
    Unusable,
    event_of,
    known_spans,
    recording_of,
    rows_in,
    rows_of,
    summary,
)
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.rows import Row
from uio_pipes.io.command import Piped
from uio_pipes.io.local import AudioInfo, Ref
from uio_pipes.io.opening import RemoteFileRef, is_far, is_local
from uio_pipes.io.relative_paths import RelativeRef

if TYPE_CHECKING:
    from uio_pipes.stages.utterances.timeline import ReadTimeline, TimelineTables


def stem_of(path: str) -> str:
    """Return the name of a file without its suffix."""
    name = name_of(path)
    return name.rpartition(".")[0] or name


def path_of_audio(wav: Any) -> str:
    """Return the path or URL of the file in which audio is, as far as it is known without looking; "" if it is not."""
    while isinstance(wav, Channels):
        wav = wav.stored
    if isinstance(wav, (str, RelativeRef)):
        return wav if isinstance(wav, str) else wav.path
    if isinstance(wav, MemberRef):
        return wav.names[0]
    return wav.file.path if type(wav) in (Ref, RemoteFileRef) else ""


@dataclass(frozen=True)
class StoredTimeline:
    """A timeline that has not been read yet.

    Attributes:
        names: those by which tables may know the recording, the most likely one first.
        value: the path of a file, or what the utterance has in a field.
        audio: the fields that tell the length of the audio, and which part of the recording it is.
        base: seconds of the recording at which the clock of ``value`` begins.
    """

    names: tuple[str, ...]
    value: Any
    audio: Mapping[str, Any]
    base: float

    def between(self, start: float, end: float) -> StoredTimeline:
        """Return the part from ``start`` to ``end``, in seconds of the recording. Nothing is read."""
        audio = {name: value for name, value in self.audio.items() if name != "duration"}
        return replace(self, audio={**audio, "start": start, "end": end})


_KEPT = 16  # recordings whose events a lane keeps, since each may have many segments


class TimelineLink:
    """The link that reads the timeline of an utterance."""

    of, changes_length = "", False
    reads = writes = frozenset([TIMELINE])
    tables: TimelineTables

    def __init__(self, stage: ReadTimeline, name: str, ledger: Ledger) -> None:
        self.stage, self.name, self.ledger = stage, name, ledger
        self.lately = Lru("timelines", most=_KEPT)

    def plan(self, plan: Any, sample: Any) -> Any:
        return plan

    def apply(self, sample: Sample) -> None:
        stored = sample.fields.get(TIMELINE)
        if isinstance(stored, StoredTimeline):
            sample.fields[TIMELINE] = self._read(stored, sample)

    def _read(self, stored: StoredTimeline, sample: Sample) -> Timeline:
        found, base = self._found(stored, sample)
        known, annotated = None, list[RowResult]()
        if self.tables.annotated is not None:
            annotated = _made(next(filter(None, map(self.tables.annotated.find, stored.names)), []))
            known = known_spans(annotated)
        info, wanted = _info(stored.audio.get("wav"), sample.fields.get("wav")), self.stage.channels
        if wanted is not None and info is not None and info.channels != wanted:
            promised = f"the audio has {info.channels} channels, and {wanted} are wanted"
            raise DataError("wrong_channels", f"{promised}: correct it, or remove it from the list")
        start, end = float(stored.audio.get("start") or 0.0), stored.audio.get("end")
        last = inf if end is None else end
        seconds = inf if info is None and end is not None else _seconds(stored.audio, info) - base
        overhang = self.stage.field == "supervisions"  # which may reach over the edges of their cut
        if end is not None:  # the events of other parts need no check here
            found = [
                one
                for one in found
                if not isinstance(one, Event) or (one.start + base < last and max(0.0, one.end) + base >= start)
            ]
        checked = [_checked(one, seconds, inf if info is None else info.channels, overhang) for one in found]
        lost = [one for one in checked if isinstance(one, Unusable) and start <= max(0.0, one.start) + base < last]
        lost += [one for one in annotated if isinstance(one, Unusable) and start <= max(0.0, one.start) < last]
        for reason, count, shown in summary(lost):
            self._note(
                reason, f"{count} of {len(found) + len(annotated)} rows are left out: {shown}: correct them", sample
            )
            self.ledger.count(reason, count - 1)
        events = (one.moved(-base) if base else one for one in checked if isinstance(one, Event))
        timeline = Timeline.of(events, known)
        timeline = replace(timeline, conditions=next((o.value for o in checked if isinstance(o, Conditions)), None))
        if info is not None:  # the audio is cut so, too
            start = round(start * info.sample_rate) / info.sample_rate
            last = last if end is None else round(last * info.sample_rate) / info.sample_rate
        return timeline if not start and end is None else timeline.cut(start, last)

    def _found(self, stored: StoredTimeline, sample: Sample) -> tuple[list[RowResult], float]:
        """Return what there is of a recording, and the seconds of it at which its clock begins."""
        value, table, words = stored.value, self.tables.events, self.stage.words
        if table is not None:
            for name in stored.names:
                if events := self.lately.get(name, lambda name=name: _made(table.find(name)), len):  # type: ignore[misc]
                    return events, 0.0
            if self.tables.annotated is not None and any(map(self.tables.annotated.find, stored.names)):
                return [], 0.0
            known = f"no row of {redact(str(self.stage.source))} is about {in_words(map(repr, stored.names), 'or')}"
            self._note("not_annotated", f"{known}: it is taken to have no events", sample)
            return [], 0.0
        if value is None or value == "":
            what = self.stage.field or "name of its file"
            raise DataError("missing_timeline", f"the utterance has no {what} for its timeline: correct the list")
        if isinstance(value, RelativeRef) or (isinstance(value, str) and value.lstrip()[:1] not in ("{", "[")):
            path = value.local if isinstance(value, RelativeRef) else self._path(value, stored)
            return self.lately.get((path, stored.names), lambda: _made(self._of(self._file(path), stored)), len), 0.0
        if isinstance(value, (str, bytes, Ref)):
            data = value.read() if isinstance(value, Ref) else value
            name = path_of_audio(value) if isinstance(value, Ref) else ""
            rows = rows_in(name or self.stage.field or "", data.encode() if isinstance(data, str) else data, words)
            return _made(self._of(rows, stored)), stored.base if isinstance(value, str) else 0.0
        return _made(map(self.stage.renamed, rows_of(value, words))), stored.base

    def _path(self, value: str, stored: StoredTimeline) -> str:
        """Return the path or URL of a file that is named relative to the audio."""
        if self.stage.pattern is None or "://" in value or value.startswith("/"):
            return value
        wav = stored.audio.get("wav")
        return inside(folder_of(wav.local if isinstance(wav, RelativeRef) else path_of_audio(wav)), value)

    def _file(self, path: str) -> Iterable[Row | DataError]:
        try:
            data = b"".join(file.content.read() for file in files_of([path], self.stage.access))
        except (ListError, DataError) as error:
            cause = error.__cause__ if isinstance(error, ListError) else error
            if isinstance(cause, DataError) and cause.reason == "empty_file":
                data = b""
            elif isinstance(cause, DataError) and cause.reason == "missing_file":
                message = f"there is no {redact(path)}: add it, or remove the recording from the list"
                raise DataError("missing_timeline", message) from error
            else:
                raise DataError("bad_timeline", str(error)) from error
        return rows_in(path, data, self.stage.words)

    def _of(self, rows: Iterable[Row | DataError], stored: StoredTimeline) -> list[Row | DataError]:
        """Return the rows of a recording in a file that is beside it, or that names several."""
        listed = list(map(self.stage.renamed, rows))
        named = {None if isinstance(row, DataError) else recording_of(row) for row in listed} - {None}
        wanted = next((name for name in stored.names if name in named), None)
        if len(named) < 2 or wanted is None:
            return listed
        return [row for row in listed if isinstance(row, DataError) or recording_of(row) in (None, wanted)]

    def _note(self, reason: str, message: str, sample: Sample) -> None:
        self.ledger.handle(sample.failure(DataError(reason, message), self.name), self.name)


def _made(rows: Iterable[Row | DataError]) -> list[RowResult]:
    return [found for found in map(event_of, rows) if found is not None]


def _checked(one: RowResult, seconds: float, channels: float, overhang: bool) -> RowResult:
    """Return an event, or why it cannot be one of audio of so many seconds and channels; anything else as it is.
    ``overhang``: it may begin before the audio, or end after it."""
    if not isinstance(one, Event):
        return one
    first, last = (one.end, one.start) if overhang else (one.start, one.end)
    reason = "negative_event" if first < 0 else "late_event" if last > seconds + TOLERANCE else ""
    reason = reason or ("absent_channel" if (one.channel or 0) >= channels else "")
    return Unusable(reason, one.start, f"{one.start:g} to {one.end:g} s, {one.text!r:.40}") if reason else one


def _info(wav: Any, now: Any) -> AudioInfo | None:
    """Return what the header of a recording says, as far as that needs no request. ``now``: what the utterance has."""
    if hasattr(wav, "shape"):
        return None
    if is_far(wav) or (isinstance(wav, str) and is_local(wav) is None):
        wav = now if isinstance(now, (bytes, Ref)) and not is_far(now) else None
    return None if wav is None or isinstance(wav, Piped) else audio_info(wav, {})


def _seconds(audio: Mapping[str, Any], info: AudioInfo | None) -> float:
    """Return the length of the recording, or at least not less; infinity if it is not known."""
    if info is not None:
        return info.samples / info.sample_rate
    if hasattr(audio.get("wav"), "shape") and audio.get("sample_rate"):
        return float(audio["wav"].shape[-1] / audio["sample_rate"])
    plan = planned_by_duration(dict(audio))
    return inf if plan is None else plan.samples / plan.sample_rate
