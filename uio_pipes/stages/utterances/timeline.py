"""``timeline``: what happens when in a recording, from the files that toolkits write.

An utterance that passes only gets to know where its timeline is: nothing is read until the field is touched. So
``segments`` may cut it before, and the audio need not be decoded for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as member
from functools import cached_property
from math import inf
from typing import Any, ClassVar

from uio_pipes.audio.containers import DECLARED
from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.audio.length import Plan, audio_info, planned_by_duration
from uio_pipes.audio.recording import Channels
from uio_pipes.audio.timeline import Event, Timeline, gaps
from uio_pipes.base.checks import in_words, require, require_paths
from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.memory import Lru
from uio_pipes.base.urls import folder_of, inside, name_of, redact, stem_of
from uio_pipes.core.chain import TIMELINE
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, Trait
from uio_pipes.formats.archives.directory import MemberRef
from uio_pipes.formats.expressions import Expression, compiled, lookup
from uio_pipes.formats.tables import events
from uio_pipes.formats.tables.description import NIST_CHANNEL, Table
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.formats.tables.rows import Row, RowIndex, Rows
from uio_pipes.io.access import Access
from uio_pipes.io.command import Piped
from uio_pipes.io.local import AudioInfo, Ref
from uio_pipes.io.opening import RemoteFileRef, is_far, is_local
from uio_pipes.io.relative_paths import RelativeRef

_OF_AUDIO = MEASURED | {DECLARED}
_KEPT = 64  # recordings, or files, read last that a process keeps, since each may have many segments


@dataclass(frozen=True)
class ReadTimeline(Flow):
    """Give each utterance a ``timeline``: its events, with start, end, text, speaker and channel, on the audio's clock.

    The events come from one of three places:

    - ``timeline("all.rttm")``: tables of many recordings, such as RTTM, CTM and STM. An utterance finds its rows by the
      field ``recording``, its key, or the name of its audio file. One without rows has no events, as nobody speaks
      there; if no ``uem`` has it either, it is noted as ``not_annotated``.
    - ``timeline("{stem}.json")``: a file for each recording, beside its audio. Braces have expressions of its fields,
      as in :func:`from_table`, and ``{stem}`` is the name of the audio file without its suffix.
    - ``timeline(field="supervisions")``: what the utterance has already: a list of segments or words, a JSON object
      that has such a list, the path of a file, or its content.

    Forms are known by the suffix: rttm, ctm, stm, TextGrid, srt, vtt, and JSON of moshi-finetune, Whisper, WhisperX,
    stable-ts and Lhotse. What is not there is the failure ``missing_timeline``, what cannot be read ``bad_timeline``.
    An event that cannot be used is left out and counted: ``untimed_event``, ``negative_event``, ``reversed_event``,
    ``late_event`` (after the audio), ``absent_channel``, ``bad_event``; one of moshi-finetune's that begins before the
    one before it is kept, and counted as ``unsorted_event``.

    An utterance that is a part of a recording has its part of the timeline. From then on, all stages that cut, join or
    change audio move it along. Put this stage before ``decode_audio``.

    Args:
        source: table(s) by path, URL or glob, a :class:`uio.Table`, or a pattern, relative to the folder of the audio.
            Default: None, which needs ``field``.
        field: name of the field that has the events. Default: None.
        uem: NIST's UEM, the table of the parts that are annotated. Default: None, all is annotated.
        words: whether a segment that lists its words gives these, in place of itself. Default: True.
        storage_options: how files are reached, as :class:`AccessOptions` says. Default: None.

    Raises:
        ListError: when a loader starts, if a table cannot be read.
    """

    name: ClassVar[str] = "timeline"
    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "read when it is touched"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE

    # tables have a fingerprint of their own
    source: str | os.PathLike[str] | Table | Sequence[str | os.PathLike[str]] | None = member(
        default=None, metadata=NO_IDENTITY
    )
    field: str | None = None
    uem: str | os.PathLike[str] | None = member(default=None, metadata=NO_IDENTITY)
    words: bool = True
    storage_options: Mapping[str, Any] | None = member(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.source if self.source is not None else self.field
        if not isinstance(self.source, (str, os.PathLike, Table, type(None))):
            object.__setattr__(self, "source", require_paths(self.name, "source must be tables", self.source))
        one = (self.source is None) != (self.field is None) and bool(given)
        require(one, self.name, "give a table or a pattern, or else a field", given, 'as in .timeline("all.rttm")')
        self.pattern  # noqa: B018  wrong expressions fail now
        Access.of(self.name, storage_options=self.storage_options)

    @property
    def access(self) -> Access:
        return Access.of(self.name, storage_options=self.storage_options)

    @cached_property
    def pattern(self) -> Expression | None:
        """What gives the file of a recording; None if the source is no pattern."""
        text = os.fspath(self.source) if isinstance(self.source, (str, os.PathLike)) else ""
        braces = re.findall(r"\{([^}]*)\}", text)
        return compiled(text) if braces and not any("," in each or ".." in each for each in braces) else None

    def check(self, before: Sequence[Stage]) -> None:
        for stage in before:
            if isinstance(stage, Op) and not stage.of and not {"wav", "feat", "*"}.isdisjoint(stage.writes):
                rule = f"timeline is on the clock of the recording, which {stage.name} may have changed"
                raise PipelineError(f"{rule}: put timeline before {stage.name}")

    def content(self) -> list[tuple[int, str]]:
        files = [] if self.pattern is None else [(0, name_of(self.pattern.text))]
        return [*files, *((len(rows), rows.digest) for rows in self._rows() if rows is not None)]

    def _rows(self) -> list[Rows | None]:
        """Return the tables of events and of annotated parts. Raises: ListError."""
        source: Any = None if self.pattern is not None else self.source
        table = source if source is None or isinstance(source, Table) else Table(source)
        uem = None if self.uem is None else Table(self.uem, format="uem")
        return [None if one is None else open_rows((one,), self.access) for one in (table, uem)]

    def shared(self) -> tuple[RowsByRecording | None, RowsByRecording | None, Lru]:
        """Return what all lanes of a process have together: tables of events and of annotated parts, and what was read
        last. Raises: ListError."""
        table, uem = (None if rows is None else RowsByRecording(rows) for rows in self._rows())
        return table, uem, Lru("timelines", _KEPT, "recordings")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _TimelineNode(source, lane, self, site)


class RowsByRecording:
    """The rows of a table by the name of their recording."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._index = RowIndex(self._names(), len(rows))

    def _names(self) -> Iterator[str]:
        """Yield the recording of each row; one that is damaged counts as being about the same as that before it."""
        last = ""
        for number, row in enumerate(self._rows.scan()):
            last = self._name(row, number) or last or stem_of(self._rows.file(number))
            yield last

    def _name(self, row: Row | DataError, number: int) -> str:
        if isinstance(row, DataError):
            return ""
        return events.recording_of(row) or ("" if NIST_CHANNEL in row else stem_of(self._rows.file(number)))

    def find(self, names: Iterable[str]) -> list[events.RowResult] | None:
        """Return what the rows of a recording say, by the first of its names that has some; None if none has."""
        for name in names:
            rows = [(number, self._row(number)) for number in self._index.find(name)]
            if mine := [row for number, row in rows if self._name(row, number) in ("", name)]:
                return [found for found in map(events.event_of, mine) if found is not None]
        return None

    def _row(self, number: int) -> Row | DataError:
        try:
            return self._rows.row(number)
        except DataError as error:
            return error


class _TimelineNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: ReadTimeline, site: Site) -> None:
        super().__init__(source)
        self.lane, self.stage, self.link = lane, stage, TimelineLink(stage, site.name, lane.ledger)

    def start(self) -> None:
        self.link.shared = self.lane.shared((self.stage.name, self.stage), self.stage.shared)

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        stage, fields = self.stage, sample.fields
        audio = {name: fields[name] for name in _OF_AUDIO if name in fields}
        stem = stem_of(path_of_audio(fields.get("wav")))
        names = tuple(dict.fromkeys(str(one) for one in (events.recording_of(fields), fields.get("key"), stem) if one))
        base = float(fields.get("start") or 0.0)
        file = None if stage.pattern is None else stage.pattern.tried({**fields, "stem": stem})
        value = file if stage.field is None else lookup(fields, stage.field)
        fields[TIMELINE] = StoredTimeline(names, value, audio, base)
        sample.chain = sample.chain.then(self.link)
        return sample


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
    """A timeline that has not been read yet."""

    names: tuple[str, ...]  # by which tables may know the recording, the most likely one first
    value: Any  # the path of a file, or what the utterance has in a field
    audio: Mapping[str, Any]  # fields that tell the length of the audio, and which part of the recording it is
    base: float  # seconds of the recording at which the clock of the value begins

    def between(self, start: float, end: float) -> StoredTimeline:
        """Return the part from ``start`` to ``end``, in seconds of the recording. Nothing is read."""
        audio = {name: value for name, value in self.audio.items() if name != "duration"}
        return replace(self, audio={**audio, "start": start, "end": end})


class TimelineLink:
    """The link that reads the timeline of an utterance: the rows about a recording, those that cannot be used, and the
    part that is the utterance's."""

    of, changes_length = "", False
    reads = writes = frozenset([TIMELINE])
    shared: tuple[RowsByRecording | None, RowsByRecording | None, Lru]

    def __init__(self, stage: ReadTimeline, name: str, ledger: Ledger) -> None:
        self.stage, self.name, self.ledger = stage, name, ledger

    def plan(self, plan: Any, sample: Any) -> Any:
        return plan

    def apply(self, sample: Sample) -> None:
        stored = sample.fields.get(TIMELINE)
        if not isinstance(stored, StoredTimeline):
            return
        (found, what, base), (_, uem, _) = self._found(stored), self.shared
        annotated = None if uem is None else uem.find(stored.names)
        if found is None and not annotated:
            known = f"no row of {redact(what)} is about {in_words(map(repr, stored.names), 'or')}"
            self._note("not_annotated", f"{known}: it is taken to have no events", sample)
        rows, spans = found or [], annotated or []
        info = _info(stored.audio, sample.fields.get("wav"))
        start, end = float(stored.audio.get("start") or 0.0), stored.audio.get("end")
        last = inf if end is None else end
        plan = None if end is not None else planned_by_duration(dict(stored.audio))
        length = plan if info is None else Plan(info.samples, info.sample_rate)
        seconds = inf if length is None else length.samples / length.sample_rate - base
        channels = inf if info is None else info.channels
        checked = [
            self._checked(one, seconds, channels) if isinstance(one, Event) else one
            for one in rows  # the events of other parts need no check here
            if not isinstance(one, Event) or (one.start + base < last and max(0.0, one.end) + base >= start)
        ]
        bad = [
            (one, at) for some, at in ((checked, base), (spans, 0.0)) for one in some if type(one) is events.Unusable
        ]
        lost = [one for one, at in bad if start <= max(0.0, one.start) + at < last]
        for reason in dict.fromkeys(one.reason for one in lost):
            shown, total = [one.shown for one in lost if one.reason == reason], len(rows) + len(spans)
            self._note(reason, f"{len(shown)} of {total} rows are damaged: {shown[0]}: correct them", sample)
            self.ledger.count(reason, len(shown) - 1)
        annotations = None if uem is None else gaps(gaps(one[:2] for one in spans if isinstance(one, Event)))  # joined
        timeline = Timeline.of(
            (one.moved(-base) if base else one for one in checked if isinstance(one, Event)), annotations
        )
        said = next((one.value for one in checked if isinstance(one, events.Conditions)), None)
        timeline = replace(timeline, conditions=said)
        if info is not None:  # the audio is cut so, too
            start = round(start * info.sample_rate) / info.sample_rate
            last = last if end is None else round(last * info.sample_rate) / info.sample_rate
        sample.fields[TIMELINE] = timeline if not start and end is None else timeline.cut(start, last)

    def _checked(self, one: Event, seconds: float, channels: float) -> Event | events.Unusable:
        """Return an event, or why it cannot be one of audio of so many seconds and channels."""
        overhang = self.stage.field == "supervisions"  # which may reach over the edges of their cut
        first, last = (one.end, one.start) if overhang else (one.start, one.end)
        reason = "negative_event" if first < 0 else "late_event" if last > seconds + TOLERANCE else ""
        reason = reason or ("absent_channel" if (one.channel or 0) >= channels else "")
        shown = f"{one.start:g} to {one.end:g} s, {one.text!r:.40}" if reason else ""
        return events.Unusable(reason, one.start, shown) if reason else one

    def _found(self, stored: StoredTimeline) -> tuple[list[events.RowResult] | None, str, float]:
        """Return what there is of a recording, None if there should be, where, and where its clock begins (s)."""
        stage, value, (table, _, lately) = self.stage, stored.value, self.shared
        if table is not None:
            return lately.get(stored.names, lambda: table.find(stored.names), lambda _: 1), str(stage.source), 0.0
        if value is None or value == "":
            what = stage.field or "name of its file"
            raise DataError("missing_timeline", f"the utterance has no {what} for its timeline: correct the list")
        if isinstance(value, RelativeRef) or (isinstance(value, str) and value.lstrip()[:1] not in ("{", "[")):
            path, wav = value.local if isinstance(value, RelativeRef) else value, stored.audio.get("wav")
            if stage.pattern is not None and "://" not in path and not path.startswith("/"):
                path = inside(folder_of(wav.local if isinstance(wav, RelativeRef) else path_of_audio(wav)), path)
            rows = lately.get(path, lambda: events.by_recording(self._file(path)), lambda _: 1)
            return _of(rows, stored.names), path, 0.0
        if not isinstance(value, (str, bytes, Ref)):
            made = map(events.event_of, events.rows_of(value, stage.words))
            return [one for one in made if one is not None], "", stored.base
        data = value.read() if isinstance(value, Ref) else value
        name = (path_of_audio(value) if isinstance(value, Ref) else "") or stage.field or ""
        found = events.by_recording(events.rows_in(name, data.encode() if isinstance(data, str) else data, stage.words))
        return _of(found, stored.names), name, stored.base if isinstance(value, str) else 0.0

    def _file(self, path: str) -> Iterator[Row | DataError]:
        try:
            data = b"".join(file.content.read() for file in files_of([path], self.stage.access))
        except (ListError, DataError) as error:
            cause = error.__cause__ if isinstance(error, ListError) else error
            reason = cause.reason if isinstance(cause, DataError) else ""
            if reason == "missing_file":
                message = f"there is no {redact(path)}: add it, or remove the recording from the list"
                raise DataError("missing_timeline", message) from error
            if reason != "empty_file":
                raise DataError("bad_timeline", str(error)) from error
            data = b""
        return events.rows_in(path, data, self.stage.words)

    def _note(self, reason: str, message: str, sample: Sample) -> None:
        self.ledger.handle(sample.failure(DataError(reason, message), self.name), self.name)


def _of(rows: Mapping[str, list[events.RowResult]], names: Iterable[str]) -> list[events.RowResult] | None:
    """Return what a file says of a recording, by its name if the file names several; None if it does not know it."""
    named = [name for name in rows if name]
    if len(named) > 1 and not (named := [name for name in names if name in rows][:1]):
        return None
    return [one for name in ("", *named) for one in rows.get(name, ())]


def _info(audio: Mapping[str, Any], now: Any) -> AudioInfo | None:
    """Return what the header of a recording says, as far as that needs no request. ``now``: the utterance's ``wav``."""
    wav: Any = audio.get("wav")
    if hasattr(wav, "shape"):
        rate = audio.get("sample_rate")
        return rate and AudioInfo(int(wav.shape[-1]), rate, 1 if wav.ndim == 1 else int(wav.shape[0]))
    if is_far(wav) or (isinstance(wav, str) and is_local(wav) is None):
        wav = now if isinstance(now, (bytes, Ref)) and not is_far(now) else None
    return None if wav is None or isinstance(wav, Piped) else audio_info(wav, {})
