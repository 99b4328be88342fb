"""``timeline``: what happens when in a recording, from the files that toolkits write.

An utterance that passes only gets to know where its timeline is: nothing is read until the field is touched. So
``segments`` may cut it before, and the audio need not be decoded for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from uio_pipes.audio.containers import DECLARED
from uio_pipes.base.checks import in_words, is_whole, require, require_paths
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.urls import name_of
from uio_pipes.core.chain import TIMELINE
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, Trait
from uio_pipes.formats.expressions import Expression, compiled, lookup
from uio_pipes.formats.tables.description import NIST_CHANNEL, Table
from uio_pipes.formats.tables.events import recording_of
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.formats.tables.rows import Row, RowIndex, Rows
from uio_pipes.io.access import Access
from uio_pipes.stages.utterances.stored_timeline import StoredTimeline, TimelineLink, path_of_audio, stem_of

_OF_AUDIO = MEASURED | {DECLARED}


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
        if not isinstance(self.source, (str, os.PathLike, Table, type(None))):
            object.__setattr__(self, "source", require_paths(self.name, "source must be tables", self.source))
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
        rows = self._rows()
        files = [] if self.pattern is None else [(0, name_of(self.pattern.text))]
        return [*files, *((len(one), one.digest) for one in (rows.events, rows.annotated) if one is not None)]

    def _rows(self) -> TimelineTables:
        access, keyed = self.access, self.source if self.pattern is None else None
        table = keyed if isinstance(keyed, Table) or keyed is None else Table(keyed)
        return TimelineTables(
            None if table is None else open_rows((table,), access),
            None if self.uem is None else open_rows((Table(self.uem, format="uem"),), access),
        )

    def tables(self) -> TimelineTables:
        """Open the tables. Raises: ListError."""
        return TimelineTables(*(None if rows is None else RowsByRecording(rows, self.renamed) for rows in self._rows()))

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


class RowsByRecording:
    """The rows of a table by the name of their recording. ``renamed``: gives a row the names that we know."""

    def __init__(self, rows: Rows, renamed: Callable[[Row | DataError], Row | DataError]) -> None:
        self._rows, self._renamed = rows, renamed
        self._index = RowIndex(self._names(), len(rows))

    def _names(self) -> Iterator[str]:
        """Yield the recording of each row; one that is damaged counts as being about the same as that before it."""
        last = ""
        for number, row in enumerate(map(self._renamed, self._rows.scan())):
            last = self._name(row, number) or last or stem_of(self._rows.file(number))
            yield last

    def _name(self, row: Row | DataError, number: int) -> str:
        if isinstance(row, DataError):
            return ""
        return recording_of(row) or ("" if NIST_CHANNEL in row else stem_of(self._rows.file(number)))

    def find(self, name: str) -> list[Row | DataError]:
        """Return the rows of a recording."""
        found = list[Row | DataError]()
        for number in self._index.find(name):
            try:
                row = self._renamed(self._rows.row(number))
            except DataError as error:
                row = error
            if self._name(row, number) in ("", name):
                found.append(row)
        return found


class TimelineTables(NamedTuple):
    """The tables of events, and of the parts that are annotated: their rows, or these by recordings."""

    events: Any
    annotated: Any


class _TimelineNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: ReadTimeline, site: Site) -> None:
        super().__init__(source)
        self.lane, self.stage, self.link = lane, stage, TimelineLink(stage, site.name, lane.ledger)

    def start(self) -> None:
        key = self.stage.name, self.stage, str(self.stage.fields)
        self.link.tables = self.lane.shared(key, self.stage.tables)

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        stage, fields = self.stage, sample.fields
        audio = {name: fields[name] for name in _OF_AUDIO if name in fields}
        stem = stem_of(path_of_audio(fields.get("wav")))
        names = tuple(dict.fromkeys(str(one) for one in (recording_of(fields), fields.get("key"), stem) if one))
        value = None if stage.field is None else lookup(fields, stage.field)
        base = float(fields.get("start") or 0.0)
        file = None if stage.pattern is None else stage.pattern.tried({**fields, "stem": stem})
        fields[TIMELINE] = StoredTimeline(names, file if stage.field is None else value, audio, base)
        sample.chain = sample.chain.then(self.link)
        return sample
