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
from uio_pipes.formats.tables.description import NIST_CHANNEL, Table
from uio_pipes.formats.tables.events import (
    Conditions,
    RowResult,
    Unusable,
    by_recording,
    events_of,
    recording_of,
    rows_in,
    rows_of,
    unfolded,
)
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.formats.tables.rows import Row, RowIndex, Rows
from uio_pipes.io.access import Access
from uio_pipes.io.command import Piped
from uio_pipes.io.opening import RemoteFileRef, is_far, is_local
from uio_pipes.io.references import AudioInfo, Ref
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
    stable-ts, MFA and Lhotse. What is not there is the failure ``missing_timeline``, what cannot be read
    ``bad_timeline``. An event that cannot be used is left out and counted: ``untimed_event``, ``negative_event``,
    ``reversed_event``, ``late_event``, ``absent_channel``, ``bad_event``; ``unsorted_event`` only counts.

    Stages that cut, join or change audio move the timeline along. Put this stage before ``decode_audio``.

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
        table, uem = (None if rows is None else RowsByRecording(rows, self.words) for rows in self._rows())
        return table, uem, Lru("timelines", _KEPT, "recordings")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _TimelineNode(source, lane, self, site)


class RowsByRecording:
    """The rows of a table by the name of their recording."""

    def __init__(self, rows: Rows, words: bool) -> None:
        self._rows, self._words = rows, words
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
        return recording_of(row) or ("" if NIST_CHANNEL in row else stem_of(self._rows.file(number)))

    def find(self, names: Iterable[str]) -> list[RowResult] | None:
        """Return what the rows of a recording say, by the first of its names that has some; None if none has."""
        for name in names:
            rows = [(number, self._row(number)) for number in self._index.find(name)]
            if mine := [row for number, row in rows if self._name(row, number) in ("", name)]:
                return [*events_of(one for row in mine for one in unfolded(row, self._words))]
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
        wav = fields.get("wav")
        stem, manifest = stem_of(path_of_audio(wav)), getattr(wav, "manifest", {})  # Lhotse's of the recording
        known = (recording_of(fields), fields.get("key"), manifest.get("id"), stem)
        names = tuple(dict.fromkeys(str(one) for one in known if one))
        base = float(fields.get("start") or 0.0)
        file = None if stage.pattern is None else stage.pattern.tried({**fields, "stem": stem})
        value = file if stage.field is None else lookup(fields, stage.field)
        fields[TIMELINE] = StoredTimeline(names, value, audio, base)
        sample.chain = sample.chain.then(self.link)
        return sample


def path_of_audio(wav: Any, look: bool = False) -> str:
    """Return the path or URL of the file in which audio is; "" if it is not known. ``look``: find out where a relative
    path starts."""
    while isinstance(wav, Channels):
        wav = wav.stored
    if isinstance(wav, RelativeRef):
        return wav.local if look else wav.path
    if isinstance(wav, (str, MemberRef)):
        return wav if isinstance(wav, str) else wav.names[0]
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
        start, end = float(stored.audio.get("start") or 0.0), stored.audio.get("end")
        end = inf if end is None else float(end)
        info = _info(stored.audio, sample.fields.get("wav"))
        plan = None if end < inf else planned_by_duration(dict(stored.audio))
        length = plan if info is None else Plan(info.samples, info.sample_rate)
        seconds = inf if length is None else length.samples / length.sample_rate
        some = hasattr(stored.audio.get("wav"), "channels")  # of the recording's, whose numbers events have
        channels = inf if info is None or some else info.channels
        overhang = self.stage.field == "supervisions"  # which may reach over the edges of their cut, and be outside
        events, said, lost = list[Event](), None, dict[str, list[str]]()
        bad = [one._replace(start=one.start - base) for one in annotated or () if isinstance(one, Unusable)]
        for one in found or ():
            if isinstance(one, Conditions):
                said = one.value
            elif isinstance(one, Unusable):
                bad.append(one)
            elif one.start + base < end and max(0.0, one.end) + base >= start:  # those of other parts need no check
                late = one.end + base > seconds + TOLERANCE
                reason = "" if overhang else "negative_event" if one.start < 0 else "late_event" if late else ""
                if reason := reason or ("absent_channel" if (one.channel or 0) >= channels else ""):
                    bad.append(Unusable(reason, one.start, f"{one.start:g} to {one.end:g} s, {one.text!r:.40}"))
                else:
                    events.append(one)
        for one in bad:
            if start <= max(0.0, one.start) + base < end:  # it is counted for the part in which it begins
                lost.setdefault(one.reason, []).append(one.shown)
        for reason, shown in lost.items():
            total = len(found or ()) + len(annotated or ())
            self._note(reason, f"{len(shown)} of {total} rows are damaged: {shown[0]}: correct them", sample)
            self.ledger.count(reason, len(shown) - 1)
        spans = ((one.start - base, one.end - base) for one in annotated or () if isinstance(one, Event))
        timeline = Timeline.of(events, None if uem is None else gaps(gaps(spans)))  # joined
        timeline = replace(timeline, offset=base, conditions=said)
        if info is not None:  # the audio is cut so, too
            start, end = (at if at == inf else round(at * info.sample_rate) / info.sample_rate for at in (start, end))
        whole = not start and end == inf and not overhang
        sample.fields[TIMELINE] = timeline if whole else timeline.between(start, min(end, seconds) if overhang else end)

    def _found(self, stored: StoredTimeline) -> tuple[list[RowResult] | None, str, float]:
        """Return what there is of a recording, None if there should be, where, and where its clock begins (s)."""
        stage, value, (table, _, lately) = self.stage, stored.value, self.shared
        if table is not None:
            return lately.get(stored.names, lambda: table.find(stored.names), lambda _: 1), str(stage.source), 0.0
        if value is None or value == "":
            what = stage.field or "name of its file"
            raise DataError("missing_timeline", f"the utterance has no {what} for its timeline: correct the list")
        content = isinstance(value, str) and (value.lstrip()[:1] in ("{", "[") or "\n" in value)
        if isinstance(value, (RelativeRef, str)) and not content:
            path = path_of_audio(value, look=True)
            if stage.pattern is not None and "://" not in path and not path.startswith("/"):
                path = inside(folder_of(path_of_audio(stored.audio.get("wav"), look=True)), path)
            rows = lately.get(path, lambda: by_recording(rows_in(path, self._read(path), stage.words)), lambda _: 1)
            return _of(rows, stored.names), path, 0.0
        if not isinstance(value, (str, bytes, Ref)):
            return [*events_of(rows_of(value, stage.words))], "", stored.base
        data = value.read() if isinstance(value, Ref) else value
        name = (path_of_audio(value) if isinstance(value, Ref) else "") or stage.field or ""
        found = by_recording(rows_in(name, data.encode() if isinstance(data, str) else data, stage.words))
        return _of(found, stored.names), name, stored.base if isinstance(value, str) else 0.0

    def _read(self, path: str) -> bytes:
        try:
            return b"".join(file.content.read() for file in files_of([path], self.stage.access))
        except (ListError, DataError) as error:
            cause = error.__cause__ if isinstance(error, ListError) else error
            reason = cause.reason if isinstance(cause, DataError) else ""
            if reason == "missing_file":
                message = f"there is no {redact(path)}: add it, or remove the recording from the list"
                raise DataError("missing_timeline", message) from error
            if reason != "empty_file":
                raise DataError("bad_timeline", str(error)) from error
            return b""

    def _note(self, reason: str, message: str, sample: Sample) -> None:
        self.ledger.handle(sample.failure(DataError(reason, message), self.name), self.name)


def _of(rows: Mapping[str, list[RowResult]], names: Iterable[str]) -> list[RowResult] | None:
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
