"""``timeline``: what happens when in a recording, from the files that toolkits write.

An utterance that passes only gets to know where its timeline is: nothing is read until the field is touched. So
``segments`` may cut it before, and the audio need not be decoded for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as member
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from uio_pipes.audio.containers import DECLARED
from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.audio.length import audio_info, planned_by_duration
from uio_pipes.audio.recording import Channels
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.checks import in_words, is_whole, require
from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.memory import Lru
from uio_pipes.base.urls import folder_of, inside, name_of, redact
from uio_pipes.core.chain import TIMELINE
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, Trait
from uio_pipes.formats.archives.directory import MemberRef
from uio_pipes.formats.expressions import Expression, compiled, lookup
from uio_pipes.formats.tables.description import Table
from uio_pipes.formats.tables.events import (
    Found,
    Unusable,
    event_of,
    known_spans,
    recording_of,
    rows_in,
    rows_of,
    summary,
)
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.formats.tables.rows import Row, RowIndex
from uio_pipes.io.access import Access
from uio_pipes.io.command import Piped
from uio_pipes.io.local import AudioInfo, Ref
from uio_pipes.io.opening import RemoteFileRef, is_far, is_local
from uio_pipes.io.relative_paths import RelativeRef

_OF_AUDIO = MEASURED | {DECLARED}
_REASONS = (
    "untimed_event", "reversed_event", "negative_event", "late_event", "absent_channel", "bad_event", "not_annotated",
)  # fmt: skip


@dataclass(frozen=True)
class ReadTimeline(Flow):
    """Give each utterance a ``timeline``: its events, with start, end, text, speaker and channel, on the audio's clock.

    The events come from one of three places:

    - ``timeline("all.rttm")``: tables of many recordings, such as RTTM, CTM and STM, or a :class:`uio.Table`. A row
      belongs to the recording that it names, or whose name its file has. An utterance finds its rows by the field
      ``recording``, its key, or the name of its audio file. One without rows has no events, since by NIST's rules
      nobody speaks there; if no ``uem`` has it either, it is noted as ``not_annotated``.
    - ``timeline("{stem}.json")``: a file for each recording, beside its audio. Braces have expressions of its fields,
      as in :func:`from_table`, and ``{stem}`` is the name of the audio file without its suffix. What is not there is
      the failure ``missing_timeline``.
    - ``timeline(field="supervisions")``: what the utterance has already: a list of segments or words, a JSON object
      that has such a list, the path of a file, or its content.

    Forms are known by the suffix: rttm, ctm, stm, TextGrid, srt, vtt, and JSON of moshi-finetune, Whisper, WhisperX,
    stable-ts and Lhotse. A file that cannot be read makes its utterances the failure ``bad_timeline``. An event that
    cannot be used is left out and counted: ``untimed_event``, ``negative_event``, ``reversed_event``, ``late_event``
    (after the end of the audio), ``absent_channel`` (which the audio does not have), ``bad_event``. Events may come in
    any order.

    An utterance that is a part of a recording has its part of the timeline. From then on, all stages that cut, join or
    change audio move it along. Put this stage before ``decode_audio``.

    Args:
        source: table(s) by path, URL or glob, a :class:`uio.Table`, or a pattern with expressions in braces. A
            relative pattern begins at the folder of the audio. Default: None, which needs ``field``.
        field: name of the field that has the events. Default: None.
        uem: table of the parts that are annotated, as NIST's UEM; of the others nothing is known. Default: None, all is
            annotated.
        fields: expressions by which rows give ``start``, ``end``, ``duration``, ``text``, ``speaker``, ``channel`` or
            ``recording``, if their names are others: ``{"start": "begin | ms"}``. Default: None.
        words: whether a segment that lists its words gives these, in place of itself. Default: True.
        channels: channels that the audio must have, as 2 for dialogues; others are the failure ``wrong_channels``.
            Default: None, any number.
        storage_options: how files are reached, as :class:`AccessOptions` says. Default: None.

    Raises:
        ListError: when a loader starts, if a table cannot be read.
    """

    name: ClassVar[str] = "timeline"
    reasons = _REASONS
    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "read when it is touched"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE

    # tables have a fingerprint of their own
    source: str | os.PathLike[str] | Table | Sequence[str | os.PathLike[str]] | None = member(
        default=None, metadata=NO_IDENTITY
    )
    field: str | None = None
    uem: str | os.PathLike[str] | None = member(default=None, metadata=NO_IDENTITY)
    fields: Mapping[str, str] | None = member(default=None, hash=False)
    words: bool = True
    channels: int | None = None
    storage_options: Mapping[str, Any] | None = member(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.source if self.source is not None else self.field
        one = (self.source is None) != (self.field is None) and bool(given)
        require(one, self.name, "give a table or a pattern, or else a field", given, 'as in .timeline("all.rttm")')
        unknown = sorted({*(self.fields or {})} - _OURS)
        require(
            not unknown, self.name, f"fields must name {in_words(sorted(_OURS), 'or')}", unknown, "correct the name"
        )
        ok = self.channels is None or (is_whole(self.channels) and self.channels > 0)
        require(ok, self.name, "channels must be a number of channels", self.channels, "try 2")
        self.renames  # noqa: B018  wrong expressions fail now
        self.pattern  # noqa: B018
        Access.of(self.name, storage_options=self.storage_options)

    @property
    def access(self) -> Access:
        return Access.of(self.name, storage_options=self.storage_options)

    @cached_property
    def renames(self) -> dict[str, Expression]:
        """The expressions of fields of rows, by our names."""
        return {ours: compiled(text) for ours, text in (self.fields or {}).items()}

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
        if self.pattern is not None:
            return [(0, name_of(self.pattern.text))]
        opened = self.tables()
        return [(len(one.rows), one.rows.digest) for one in (opened.events, opened.annotated) if one is not None]

    def tables(self) -> _Tables:
        """Open the tables. Raises: ListError."""
        keyed = self.pattern is None and self.source is not None
        table = self.source if isinstance(self.source, Table) else Table(self.source or "")  # type: ignore[arg-type]
        uem = None if self.uem is None else _ByRecording(Table(self.uem, format="uem"), self)
        return _Tables(_ByRecording(table, self) if keyed else None, uem)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _TimelineNode(source, lane, self, site)

    def renamed(self, row: Row | DataError) -> Row | DataError:
        """Return a row with the names that we know."""
        if isinstance(row, DataError) or not self.renames:
            return row
        try:
            return {**row, **{ours: expression(row) for ours, expression in self.renames.items()}}
        except DataError as error:
            return error


_OURS = frozenset(["start", "end", "duration", "text", "speaker", "channel", "recording"])


class _ByRecording:
    """The rows of a table by the name of their recording."""

    def __init__(self, table: Table, stage: ReadTimeline) -> None:
        self.rows, self._renamed = open_rows((table,), stage.access), stage.renamed
        self._words = stage.words
        named = (self._name(self._renamed(row), number) for number, row in enumerate(self.rows.scan()))
        self._index = RowIndex(named, len(self.rows))

    def _name(self, row: Row | DataError, number: int) -> str:
        found = None if isinstance(row, DataError) else recording_of(row)
        return found or stem_of(self.rows.file(number))

    def find(self, name: str) -> list[Row | DataError]:
        """Return the rows of a recording."""
        found = list[Row | DataError]()
        for number in self._index.find(name):
            try:
                row = self._renamed(self.rows.row(number))
            except DataError as error:
                row = error
            if self._name(row, number) == name:
                found.append(row)
        return found


class _Tables(NamedTuple):
    events: _ByRecording | None
    annotated: _ByRecording | None


def stem_of(path: str) -> str:
    """Return the name of a file without its suffix."""
    name = name_of(path)
    return name.rpartition(".")[0] or name


def _path_of(wav: Any) -> str:
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


class _TimelineNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: ReadTimeline, site: Site) -> None:
        super().__init__(source)
        self.lane, self.stage, self.link = lane, stage, _Reading(stage, site.name, lane.ledger)

    def start(self) -> None:
        if self.stage.pattern is None or self.stage.uem is not None:
            key = "timeline", self.stage, str(self.stage.fields)
            self.link.tables = self.lane.shared(key, self.stage.tables)

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        stage, fields = self.stage, sample.fields
        audio = {name: fields[name] for name in _OF_AUDIO if name in fields}
        stem = stem_of(_path_of(fields.get("wav")))
        names = tuple(dict.fromkeys(str(one) for one in (recording_of(fields), fields.get("key"), stem) if one))
        value = None if stage.field is None else lookup(fields, stage.field)
        base = float(fields.get("start") or 0.0)
        file = None if stage.pattern is None else stage.pattern.tried({**fields, "stem": stem})
        fields[TIMELINE] = StoredTimeline(names, file if stage.field is None else value, audio, base)
        sample.chain = sample.chain.then(self.link)
        return sample


_KEPT = 16  # recordings whose events a lane keeps, since each may have many segments


class _Reading:
    """The link that reads the timeline of an utterance."""

    of, changes_length = "", False
    reads = writes = frozenset([TIMELINE])
    tables = _Tables(None, None)

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
        known = None
        if self.tables.annotated is not None:
            known = known_spans(next(filter(None, map(self.tables.annotated.find, stored.names)), []))
        unusable, start, end = list[Unusable](), float(stored.audio.get("start") or 0.0), stored.audio.get("end")
        info = _info(stored.audio.get("wav"), sample.fields.get("wav"))
        if self.stage.channels is not None and info is not None and info.channels != self.stage.channels:
            promised = f"the audio has {info.channels} channels, and {self.stage.channels} are wanted"
            raise DataError("wrong_channels", f"{promised}: correct it, or remove it from the list")
        seconds = _seconds(stored.audio, info) if end is None else None
        channels, cut = None if info is None else info.channels, self.stage.field == "supervisions"
        events = []
        for one in found:
            reason = one.reason if isinstance(one, Unusable) else _wrong(one, seconds and seconds - base, channels, cut)
            if isinstance(one, Unusable) or reason:
                shown = one.shown if isinstance(one, Unusable) else f"{one.start:g} to {one.end:g} s, {one.text!r:.40}"
                unusable.append(Unusable(reason, max(0.0, one.start) + base, shown))
            else:
                events.append(one.moved(-base) if base else one)
        last = float("inf") if end is None else end
        self._count([one for one in unusable if start <= one.start < last], len(found), sample)
        if not start and end is None:
            return Timeline.of(events, known)
        if info is not None:  # the audio is cut so, too
            start, last = (at if at in (0, float("inf")) else round(at * info.sample_rate) / info.sample_rate
                           for at in (start, last))  # fmt: skip
        return Timeline.of(events, known).cut(start, last)

    def _found(self, stored: StoredTimeline, sample: Sample) -> tuple[list[Found], float]:
        """Return what there is of a recording, and the seconds of it at which its clock begins."""
        value, table = stored.value, self.tables.events
        if table is not None:
            for name in stored.names:
                if rows := self.lately.get(name, lambda name=name: _made(table.find(name)), len):  # type: ignore[misc]
                    return rows, 0.0
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
            return self.lately.get(path, lambda: _made(self._of(self._file(path), stored)), len), 0.0
        if isinstance(value, (str, bytes, Ref)):
            data = value.read() if isinstance(value, Ref) else value
            data = data.encode() if isinstance(data, str) else data
            return _made(self._of(rows_in(self.stage.field or "", data, self.stage.words), stored)), stored.base
        return _made(map(self.stage.renamed, rows_of(value, self.stage.words))), stored.base

    def _path(self, value: str, stored: StoredTimeline) -> str:
        """Return the path or URL of a file that is named relative to the audio."""
        if self.stage.pattern is None or "://" in value or value.startswith("/"):
            return value
        wav = stored.audio.get("wav")
        return inside(folder_of(wav.local if isinstance(wav, RelativeRef) else _path_of(wav)), value)

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

    def _count(self, unusable: list[Unusable], number: int, sample: Sample) -> None:
        for reason, count, shown in summary(unusable):
            self._note(reason, f"{count} of {number} events are left out: {shown}: correct them", sample)
            self.ledger.count(reason, count - 1)

    def _note(self, reason: str, message: str, sample: Sample) -> None:
        self.ledger.handle(sample.failure(DataError(reason, message), self.name), self.name)


def _made(rows: Iterable[Row | DataError]) -> list[Found]:
    return [found for found in map(event_of, rows) if found is not None]


def _wrong(event: Event, seconds: float | None, channels: int | None, cut: bool) -> str:
    """Return why an event cannot be one of audio of so many seconds and channels; "" if it can. ``cut``: it may reach
    over the edges, as that of a cut may."""
    if (event.end if cut else event.start) < 0:
        return "negative_event"
    if seconds is not None and (event.start if cut else event.end) > seconds + TOLERANCE:
        return "late_event"
    return "absent_channel" if None not in (channels, event.channel) and event.channel >= channels else ""


def _info(wav: Any, now: Any) -> AudioInfo | None:
    """Return what the header of a recording says, as far as that needs no request. ``now``: what the utterance has."""
    if hasattr(wav, "shape"):
        return None
    if is_far(wav) or (isinstance(wav, str) and is_local(wav) is None):
        wav = now if isinstance(now, (bytes, Ref)) and not is_far(now) else None
    return None if wav is None or isinstance(wav, Piped) else audio_info(wav, {})


def _seconds(audio: Mapping[str, Any], info: AudioInfo | None) -> float | None:
    """Return the length of the recording, or at least not less; None if it is not known."""
    if info is not None:
        return info.samples / info.sample_rate
    if hasattr(audio.get("wav"), "shape") and audio.get("sample_rate"):
        return float(audio["wav"].shape[-1] / audio["sample_rate"])
    plan = planned_by_duration(dict(audio))
    return None if plan is None else plan.samples / plan.sample_rate
