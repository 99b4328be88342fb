"""The utterances that are to be written in another form: of any data, read as training reads them.

Raw lists and Kaldi's tables need no torch, and are read twice: a first time to see in which shard each utterance goes.
All else is read in its order by its own pipeline.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.audio.containers import DECLARED, Declared
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.urls import inside, is_named
from uio_pipes.formats.advice import usual_of
from uio_pipes.formats.lists.json_lines import parse
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.io.access import PLAIN
from uio_pipes.io.command import Piped
from uio_pipes.io.references import Ref
from uio_pipes.sources.kaldi.table import JoinedColumn, KaldiTable
from uio_pipes.sources.kaldi.tables import KaldiFiles, KaldiLines, is_folder
from uio_pipes.sources.seen import GivenNames, Seen, exists, no_such


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance: all of ``wav``, or its seconds from ``start`` to ``end``. ``txt``: None if nobody knows it.

    ``wav``: a path, URL or reference to audio. ``recording``: Kaldi's name of a segment's recording; "" for the key.
    ``fields``: all that its source gives. ``place``: where it is listed, for messages.
    """

    key: str
    wav: Any
    txt: str | None
    start: float | None = None
    end: float | None = None
    recording: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    place: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any], place: str, key: str = "") -> Utterance:
        """Return the utterance of a source's fields."""
        wav, txt, start, end = (fields.get(name) for name in ("wav", "txt", "start", "end"))
        return cls(key or fields["key"], wav, txt, start, end, fields=fields, place=place)

    @property
    def seconds(self) -> float | None:
        """The length of the segment; None for a whole file, and if only the file shows its end."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def source(self) -> Hashable:
        """What is the same of utterances of one recording."""
        if isinstance(self.wav, Piped):
            return self.wav.command
        if type(self.wav) is Ref:
            return self.wav.file.path, self.wav.offset
        return self.wav if isinstance(self.wav, str) else id(self.wav)

    @property
    def file(self) -> str:
        """The path or URL of the audio, or of what holds it."""
        if isinstance(self.wav, Piped):
            return self.wav.command
        found = self.wav.file.path if isinstance(self.wav, Ref) else self.wav
        return found if isinstance(found, str) and found else self.place


@dataclass(frozen=True, slots=True)
class Bad:
    """An utterance that cannot be read: its key, or else its place; the ``reason`` under which it is counted."""

    key: str
    reason: str
    detail: str

    @classmethod
    def of(cls, error: DataError) -> Bad:
        return cls(error.key or error.member or error.url, error.reason, str(error))


class TableUtterances:
    """The utterances of a table, the same in each pass. ``digest``: a hash of what lists them. ``total``: how many
    there are, if that is known. ``left_out``: after a pass, sound ones that the source does not want."""

    def __init__(self, table: Any, tolerance: float | None = None) -> None:
        self.table, self.digest = table, table.digest
        self.declared = {} if tolerance is None else {DECLARED: Declared(tolerance)}
        self.total: int | None = len(table)
        self.left_out = Counter[str]()

    def __iter__(self) -> Iterator[Utterance | Bad]:
        self.left_out.clear()
        for number in range(len(self.table)):
            try:
                yield Utterance.of(self.table.fields(number) | self.declared, self.table.place(number))
            except LeftOut as error:
                self.left_out[error.reason] += 1
            except DataError as error:
                yield Bad.of(error)


class RawTable:
    """The lines of WeNet's raw list. ``names``: our names of fields, with those in the lines."""

    def __init__(self, url: str, names: GivenNames = None, needs_text: bool = True) -> None:
        self.lines, self.names, self.needs_text = ItemTable((url,), PLAIN), names, needs_text
        self.digest = self.lines.digest

    def __len__(self) -> int:
        return len(self.lines)

    def line(self, number: int) -> tuple[str, str]:
        """Return a line, and its place."""
        return self.lines[number], self.lines.place(number)

    def place(self, number: int) -> str:
        return self.line(number)[1]

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of a line. Raises: DataError."""
        text, place = self.line(number)
        try:
            return parse(text, place, self.names, self.needs_text)
        except ListError as error:
            raise DataError("bad_line", str(error), url=place) from error


class PipelineUtterances:
    """The utterances of a pipeline, in its order; otherwise as :class:`TableUtterances`."""

    def __init__(self, known: Any, needs_text: bool) -> None:
        self.pipeline, self._needs_text = known.pipeline, needs_text
        self.digest = json.dumps(self.pipeline._list_fingerprint())  # reads the source: it is there
        self.total: int | None = next(iter(self.pipeline._count(1) or ()), None)
        if known.kind == "shard list" and (entries := read_manifest(known.path)) is not None:
            self.total = sum(entry.utterances for entry in entries.values())
        self.left_out = Counter[str]()

    def __iter__(self) -> Iterator[Utterance | Bad]:
        from uio_pipes.core.lane import Lane
        from uio_pipes.run.lane_runner import items_of
        from uio_pipes.sources.table.streamed import rows_without_audio
        from uio_pipes.tools.data.common import Noting

        ledger = Noting()
        for sample in items_of(self.pipeline.build(Lane(ledger, needs_text=self._needs_text))):
            yield from map(Bad.of, ledger.take())
            yield Utterance.of(sample.fields, sample.url, sample.key)
        for error in rows_without_audio(self.pipeline, ledger.tallies):
            ledger.fail(error, "read")
        yield from map(Bad.of, ledger.take())
        self.left_out.clear()
        self.left_out.update(ledger.skipped)


UtteranceList = TableUtterances | PipelineUtterances


def open_utterances(
    sources: Sequence[str],
    *,
    texts: Sequence[str] | None = (),
    segments: str | None = None,
    allow_pipes: bool = False,
    fields: GivenNames = None,
    tolerance: float | None = None,
) -> UtteranceList:
    """Open data of any kind: several only of Kaldi's tables. ``texts``: tables of transcripts for those; None:
    utterances need none. ``tolerance``: seconds by which audio may differ from what its list declares.

    Raises: ListError.
    """
    sources = [source.rstrip("/") or "/" for source in sources]
    tables = [not fields and not Seen(source).is_named and _scp(source) is not None for source in sources]
    if all(tables):
        table = _KaldiTable(_Joined(sources, texts, segments), allow_pipes, texts is not None)
        return TableUtterances(table, tolerance)
    if len(sources) > 1:
        raise ListError(
            f"{sources[tables.index(False)]} is not Kaldi's, as several sources must be: one list is packed at a time "
            "(join raw lists with cat)"
        )
    if texts:
        raise ListError("transcripts of their own (--text) belong to feats.scp and wav.scp: other data have them")
    if segments is not None:
        raise ListError(f"segments cut the recordings of a Kaldi folder (wav.scp, text); {sources[0]} is none")
    if not fields and _is_raw(sources[0]):
        return TableUtterances(RawTable(sources[0], needs_text=texts is not None), tolerance)
    return open_pipeline(sources[0], fields, allow_pipes, texts is not None, tolerance)


def open_pipeline(
    source: str,
    fields: GivenNames = None,
    allow_pipes: bool = False,
    needs_text: bool = True,
    tolerance: float | None = None,
) -> PipelineUtterances:
    """Open data of any kind that has audio or features, by its pipeline. Raises: ListError."""
    from uio_pipes.tools.data.recognize import recognize  # it needs torch

    known = recognize(source, allow_pipes, fields)
    if known.lacks:
        raise ListError(f"{source} has {known.lacks}: it is {known.kind}")
    declaring = known.pipeline._begun("pack", tolerance=tolerance)
    return PipelineUtterances(replace(known, pipeline=declaring), needs_text)


def _is_raw(source: str) -> bool:
    """Return whether this is one of WeNet's raw lists, also with a damaged first line. Raises: ListError if it is
    empty."""
    if is_named(source, ARCHIVES):
        return False
    try:
        seen = Seen(source)
        empty = not seen.lines
    except ListError:
        return False  # it is no file, or cannot be read, which is said later
    if empty:
        raise ListError(f"the list {source} is empty: it holds only blank lines and comments (#)")
    return not seen.columns.isdisjoint(("wav", "feat"))


# Kaldi's tables: those of one or several scps, as if all were one


class _Joined(KaldiFiles):
    """The tables of several scps, or of the folders that have them; ``texts``: in place of the ``text`` beside each,
    None if there need be none."""

    def __init__(self, sources: Sequence[str], texts: Sequence[str] | None, segments: str | None) -> None:
        scps = [scp for source in sources if (scp := _scp(source)) is not None]
        self._folders = list(dict.fromkeys(scp.rpartition("/")[0] for scp in scps))
        self.scp = _read_tables(scps, 1)
        named = self._beside("text") if texts is None else texts or [_text_in(folder) for folder in self._folders]
        self.text = _read_tables(named, 0) if named else None
        cut = len(sources) == 1 and scps[0].endswith("wav.scp")
        named = [segments] if segments else self._beside("segments") if cut else []
        self.segments = _read_tables(named, 3, 3) if named else None
        beside = map(self._beside, ("utt2spk", "utt2dur", "utt2num_frames"))
        self.speakers, self._durations, self._frames = (
            _read_tables(paths, 1, 1) if paths else None for paths in beside
        )

    def _beside(self, name: str) -> Sequence[str]:
        return [path for path in (inside(folder, name) for folder in self._folders) if exists(path)]


class _KaldiTable(KaldiTable):
    """Utterances, of which some may have no speaker, nor a text unless it is needed."""

    def __init__(self, files: KaldiFiles, allow_pipes: bool, needs_text: bool) -> None:
        super().__init__(files, PLAIN, allow_pipes)
        self._needs_text = needs_text

    def value(self, column: JoinedColumn, number: int) -> Any:
        found = self.find(column, number)
        return super().value(column, number) if found is None and column == "text" and self._needs_text else found

    def fields(self, number: int) -> dict[str, Any]:
        return {name: value for name, value in super().fields(number).items() if value is not None}


def _read_tables(urls: Sequence[str], least: int, most: int | None = None) -> KaldiLines:
    """Read one of Kaldi's tables, in one or several files; ``least``, ``most``: words after the key.

    Raises: ListError, with a suggestion for a file that is missing.
    """
    if missing := next((url for url in urls if not exists(url)), None):
        raise no_such(missing)
    return KaldiLines(urls, least, most)


def _scp(source: str) -> str | None:
    """Return one of Kaldi's scps: the source itself, or what is in this folder; None if it is neither."""
    if not is_folder(source):
        return source if is_named(source, ".scp") else None
    return next((path for name in ("wav.scp", "feats.scp") if exists(path := f"{source}/{name}")), None)


def _text_in(folder: str) -> str:
    """Return the path of ``text`` or, if there is none, of what seems to be it."""
    path = inside(folder, "text")
    there = (
        os.listdir(folder or ".") if "://" not in folder and not exists(path) and os.path.isdir(folder or ".") else []
    )
    return inside(folder, usual_of("txt", there) or "text")
