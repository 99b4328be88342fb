"""``from_table``: the utterances of tables, joined to their audio; ``from_moshi``: those of moshi-finetune's lists."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from uio_pipes.base.checks import refuse, require, require_paths
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import AnyPath
from uio_pipes.core.capabilities import KnowsFields
from uio_pipes.core.items import File, Record
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Source, SourceNode
from uio_pipes.core.stage import NO_IDENTITY, Node, Trait
from uio_pipes.formats.archives.directory import Archives, is_template
from uio_pipes.formats.expressions import compiled
from uio_pipes.formats.naming import FieldNames
from uio_pipes.formats.tables.description import Table
from uio_pipes.formats.tables.opening import Described, open_rows
from uio_pipes.io.access import PLAIN, Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.sources.table.archives import ArchiveTable, AudioInArchives, NamesInRows, located, streams
from uio_pipes.sources.table.audio import Absent, AudioByPath
from uio_pipes.sources.table.records import RowAudio, TableRecords
from uio_pipes.sources.table.streamed import JoinRows

_NAME = "from_table"


@dataclass(frozen=True)
class ListTable(KnowsFields, Source):
    """The rows of tables. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_table"
    sentence: ClassVar[str] = "TSV, CSV, JSON, stm, TextGrid, NXT with paths, segments, channels"
    reasons = ("no_row", "not_kept", "dropped")

    tables: tuple[Described, ...] = field(metadata=NO_IDENTITY)
    fields: FieldNames | None = None
    root: str | None = field(default=None, metadata=NO_IDENTITY)
    absent: Absent = "no_audio"
    keep: FieldNames = ()
    drop: FieldNames = ()
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)
    archives: tuple[str, ...] = field(default=(), metadata=NO_IDENTITY)
    match: str = "path"
    stream: bool = False

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        silent = self.fields is not None and "txt" not in dict(self.fields)
        return Trait.TAKES_CHANNEL | (Trait.TEXTLESS if silent else Trait.NONE)

    @property
    def gives(self) -> str:  # type: ignore[override]
        return "file" if self.stream else "record"

    def table(self) -> TableRecords | ArchiveTable:
        """Look through the tables, and index them if archives are read in their order. Raises: ListError."""
        rows = open_rows(self.tables, self.access)
        if not self.archives:
            audio: RowAudio = AudioByPath(rows, self.root, self.absent, self.access)
            return TableRecords(rows, audio, self.fields, self.keep, self.drop)
        names = located(self.archives, self.root, rows.file(0))
        found = NamesInRows(rows, Archives(names, self.match, self.access, self.absent), self.fields)
        records = TableRecords(rows, AudioInArchives(found), self.fields, self.keep, self.drop)
        return ArchiveTable(records, found) if self.stream else records

    def lacking(self, name: str) -> str:
        there = self.fields is None or name in dict(self.fields)
        return "" if there else f"fields of {_NAME} does not name it: add {name}=…"

    def item(self, table: Any, number: int, origin: Origin) -> Record | File:
        if not self.stream:
            return Record(table, number, origin)
        return File(table.urls[number], table.place(number), origin, self.access)

    def content(self) -> list[tuple[int, str]]:
        table = self.table()
        if isinstance(table, TableRecords):
            _ = table.audio.leftover  # looked for once, before there are workers
        return [(len(table), table.digest)]

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return super().build(source, lane, site) if self.stream else _TableNode(self, lane, site)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.keep or self.drop else super().count(counts, path)


class _TableNode(SourceNode):
    """Gives the rows; before the first one, audio that no row names is counted, and damage to archives told."""

    def begin(self) -> None:
        super().begin()
        if not self.lane.ledger.quiet:
            for reason, number in self.table.audio.leftover.items():
                self.lane.ledger.count(reason, number)
            for error in self.table.audio.damage:
                self.lane.ledger.fail(error.at(error.url, error.member), ListTable.name)
                self.lane.ledger.succeeded(ListTable.name)  # they do not follow each other: no streak of failures


TablePaths = AnyPath | Table | Iterable[AnyPath | Table | Mapping[str, Any]]


@reaches_files
def from_table(
    table: TablePaths,
    *,
    fields: Mapping[str, str] | None = None,
    root: AnyPath | None = None,
    absent: Absent = "no_audio",
    archives: AnyPath | Sequence[AnyPath] | None = None,
    match: str = "path",
    stream: bool | None = None,
    keep: Mapping[str, str] | None = None,
    drop: Mapping[str, str] | None = None,
    shuffle: bool = False,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from a table that names audio: TSV, CSV, JSON lines, … ; its rows are read in any order.

    Utterances have the fields that ``fields`` asks for, and a ``key``. The usual ones are ``key``, ``wav``, ``txt``,
    ``speaker``, ``lang``, ``start`` and ``end`` in seconds for a part of the audio, ``duration`` in seconds,
    ``channel`` and ``sample_rate``. Where the row gives no key, it is the name of the audio file without its suffix, to
    which a segment's start in ms is added. With ``start`` and ``duration``, the end follows.

    Lengths are planned by the rows as far as they tell them. A declared duration of a whole file is planned rounded up
    by its last digit, and 50 ms longer. Audio that is longer still is the failure ``length_mismatch``.

    Args:
        table: the table: a path, URL, glob or ``{a,b}`` braces, :class:`Table` where the name does not tell how rows
            are written, several of these in a list, or the rows themselves as dicts.
        fields: what utterances have, each an expression over the names of the row's columns: ``{"wav": "clips/{path}",
            "txt": "sentence", "duration": "duration_ms | ms", "speaker": "path | [:7]", "lang": "'pl'"}``. The name
            ``table`` stands for the path of the row's table. Default: None, all columns under their own names.
        root: folder or URL at which paths of audio start. Default: None, the table's folder or, if there is no such
            file, the working directory.
        absent: what a row is whose audio is not there: the failure "no_audio", or left out as "not_kept", where the
            table is of more than the audio that is wanted. Default: "no_audio".
        archives: archives that the audio is in, as they were downloaded: tar, tar.gz (zst, bz2, xz), zip; paths, globs,
            URLs, or a name with expressions in braces that a row fills in, ``"audio/{shard}.tar.gz"``, relative like
            paths of audio. ``wav`` then names a member. Plain files are members by their paths. Default: None, audio
            is in files.
        match: how members are named in rows: an expression over the ``path`` of a member. ``"path | name"`` is its
            name without folders, ``"path | stem"`` also without its suffix. Members for which it gives nothing are
            not meant, nor a text ``a.txt`` where it gives the same as for ``a.wav``. Default: "path"; a leading ``./``
            and the case of the suffix do not count.
        stream: whether archives are read in their own order, each in a lane, and joined to the rows as they come; or
            the rows in theirs, in any order. Audio without a row is counted as ``no_row``, rows without audio as
            ``no_audio``; in several archives that are streamed only if rows fill in their names, or they have indexes:
            else a warning at the end of the epoch says it, and ``uio verify``, ``inspect`` and ``pack`` count them.
            Default: None, only if an archive can be read in no other
            way: it is compressed and has no index (``uio index --members``), or is remote.
        keep: rows that are wanted: expressions with regular expressions that their values, or items of these if they
            are lists, match as a whole, as in ``{"subsets": "L"}``. Others are left out and counted as ``not_kept``.
            Default: None, all.
        drop: rows that are not wanted, given like ``keep`` and counted as ``dropped``, as in ``{"text":
            "<(SIL|MUSIC|NOISE|OTHER)>"}``. Default: None, none.
        shuffle: whether to deal the rows in another order in each epoch: a random order of all, without a buffer.
            Default: False.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a table is missing, empty or written otherwise than is said, or no row has
            what an expression asks for.
    """
    known = root is None or (isinstance(root, (str, os.PathLike)) and bool(os.fspath(root)))
    require(known, _NAME, "root must be a folder", root, "omit it if paths are relative to the table")
    remedy = 'use "not_kept" if you have audio for only part of the table'
    require(absent in get_args(Absent), _NAME, f"absent must be one of {get_args(Absent)}", absent, remedy)
    tables = _described(table)
    names, streamed = _archives(archives, match, stream, root, tables)
    listing = ListTable(
        tables=tables,
        fields=None if fields is None else _expressions("fields", fields),
        root=None if root is None else os.fspath(root),
        absent=absent,
        keep=_wishes("keep", keep),
        drop=_wishes("drop", drop),
        shuffle=shuffle,
        access=Access.of(_NAME, **access),
        archives=names,
        match=match,
        stream=streamed,
    )
    dealt = Pipeline((listing,)).sharding_filter()
    return dealt.then(JoinRows(listing)) if streamed else dealt.load_records()


def _archives(
    given: Any, match: object, stream: object, root: AnyPath | None, tables: tuple[Described, ...]
) -> tuple[tuple[str, ...], bool]:
    """Return the names of archives, and whether these are read in their order. Raises: PipelineError."""
    require(stream is None or isinstance(stream, bool), _NAME, "stream must be True, False or None", stream, "leave it")
    require(isinstance(match, str) and bool(match), _NAME, "match must be an expression", match, "as in 'path | stem'")
    assert isinstance(match, str)
    known = set(compiled(match).names) <= {"path"}
    require(known, _NAME, "match may use only the path of a member", match, "as in 'path | stem'")
    if given is None:
        sentence = "match and stream say how archives are read, and none is given"
        refuse(match != "path" or stream, _NAME, sentence, "name them by archives=")
        return (), False
    names = require_paths(_NAME, "archives must be paths, or several in a list", given)
    for name in filter(is_template, names):
        compiled(name)
    if stream is None:
        first = tables[0]
        path = first.paths[0] if isinstance(first, Table) and isinstance(first.paths, tuple) else ""
        stream = streams(names, None if root is None else os.fspath(root), os.fspath(path))
    return names, bool(stream)


def _described(given: Any) -> tuple[Described, ...]:
    """Return tables, and as one of them rows that are given as dicts. Raises: PipelineError."""
    several = [given] if isinstance(given, (str, os.PathLike, Table, Mapping)) else given
    rule, remedy = "table must be a path, uio.Table(…), rows as dicts, or several in a list", "name a file"
    require(isinstance(several, Iterable), _NAME, rule, given, remedy)
    listed = list(several)
    if listed and all(isinstance(one, Mapping) for one in listed):
        return (_lines(listed),)
    if not any(isinstance(one, Table) for one in listed):
        return (Table(require_paths(_NAME, rule, listed, remedy)),)
    ok = all(isinstance(one, (str, os.PathLike, Table)) for one in listed)
    require(ok, _NAME, rule, given, remedy)
    return tuple(one if isinstance(one, Table) else Table(one) for one in listed)


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    try:
        return "".join(json.dumps(dict(row), ensure_ascii=False) + "\n" for row in rows)
    except (TypeError, ValueError) as error:
        remedy = "uio.from_iterable takes rows of any kind"
        raise PipelineError(f"{_NAME}: rows must have the values that JSON has: {error}; {remedy}") from error


def _expressions(name: str, given: object) -> FieldNames:
    """Return pairs of texts, the second an expression. Raises: PipelineError."""
    pairs = tuple(given.items()) if isinstance(given, Mapping) else ()
    ok = bool(pairs) and all(isinstance(text, str) and text for pair in pairs for text in pair)
    require(ok, _NAME, f"{name} must be a dict of names and expressions", given, 'as in {"wav": "path", "txt": "text"}')
    for _, text in pairs:
        compiled(text)
    return pairs


def _wishes(name: str, given: object) -> FieldNames:
    """Return pairs of an expression and a regular expression. Raises: PipelineError."""
    if given is None:
        return ()
    pairs = tuple(given.items()) if isinstance(given, Mapping) else ()
    ok = bool(pairs) and all(isinstance(one, str) for pair in pairs for one in pair) and all(text for text, _ in pairs)
    require(ok, _NAME, f"{name} must be expressions with regular expressions", given, 'as in {"subset": "L|XL"}')
    for text, pattern in pairs:
        compiled(text)
        try:
            re.compile(pattern)
        except re.error as error:
            raise PipelineError(f"{_NAME}: {name}: {pattern!r} is not a regular expression: {error}") from error
    return pairs


class MoshiList:
    """Lists of moshi-finetune."""

    sentence = "moshi-finetune's lists of stereo dialogues, with `a.json` beside `a.wav`"

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not seen.is_json or seen.fields or seen.objects[0].keys() != {"path", "duration"}:
            return None
        return Found("moshi-finetune list", from_moshi, (seen.path,))


@reaches_files
def from_moshi(paths: TablePaths, *, shuffle: bool = False, **access: Unpack[AccessOptions]) -> Pipeline:
    """Start a pipeline from moshi-finetune's lists: lines of ``{"path": "rel/a.wav", "duration": 24.52}``.

    Each line is a dialogue in two channels, the model left (0) and the user right (1). Beside ``a.wav`` is ``a.json``
    with its ``alignments``, which become the ``timeline``. Without it, the dialogue is the failure
    ``missing_timeline``. The words of ``SPEAKER_MAIN`` are in channel 0, those of others in channel 1.
    ``text_conditions`` are ``timeline.conditions``. The ``key`` is the path without its suffix. Decode both channels:
    ``.decode_audio(channel=[0, 1])``; mono audio is ``no_such_channel`` then, and has ``absent_channel`` words.

    Args:
        paths: the list: a path, URL or glob, or several in a list. Paths in it start at its folder.
        shuffle: whether to deal the dialogues in another order in each epoch. Default: False.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if the list is missing, empty or written otherwise.
    """
    table = paths if isinstance(paths, Table) else Table(paths, format="jsonl")  # type: ignore[arg-type]
    fields = {"key": r"path | m/(.+)\.[^.\/]+$/", "wav": "path", "duration": "duration"}
    begun = from_table(table, fields=fields, shuffle=shuffle, **access)
    return begun.timeline("{stem}.json", storage_options=access.get("storage_options"))
