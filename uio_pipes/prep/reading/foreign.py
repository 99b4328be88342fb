"""Data that say by names of their own what they are: the columns of tables, JSON objects, folders of save_to_disk."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.advice import USUAL, names_file, shown
from uio_pipes.formats.expressions import compiled
from uio_pipes.formats.lists.table import expand as expand_names
from uio_pipes.formats.tables.description import TEXTS, Table
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.rows import expanded, rows_of_json
from uio_pipes.io.access import PLAIN
from uio_pipes.prep.reading.data_list import LIST_OF_OBJECTS
from uio_pipes.sources.table.opening import open_rows
from uio_pipes.sources.table.records import list_with

_TABLES = (".tsv", ".csv", ".tsv.gz", ".csv.gz")
_UNKNOWN = '{"wav": …, "txt": …}'


def foreign_folder(path: str, names: set[str]) -> str:
    """Return what a folder of Hugging Face's ``save_to_disk`` is, and what reads it; "" for any other folder."""
    several = "dataset_dict.json" in names
    if not several and not {"state.json", "dataset_info.json"} <= names:
        return ""
    splits = sorted(name for name in names if os.path.isdir(os.path.join(path, name))) if several else []
    split = ["train"] if "train" in splits else splits[:1]
    data = f"datasets.load_from_disk({path!r})" + "".join(f"[{name!r}]" for name in split)
    features = _features(os.path.join(path, *split, "dataset_info.json"))
    audio = next((n for n, f in features.items() if isinstance(f, dict) and f.get("_type") == "Audio"), "")
    line = f"{data}.cast_column({audio!r}, datasets.Audio(decode=False))" if audio else data
    given = _guess(features, audio or next((name for name in ("wav", *USUAL["wav"]) if name in features), ""))
    if "wav" not in given:
        columns = f", with the columns {shown(features)}" if features else ""
        return f"a folder of datasets' save_to_disk{columns}: {_iterable(line, {})} reads it in Python"
    return f"a folder of datasets' save_to_disk: {_iterable(line, given)} reads it in Python"


def table_of(path: str, lines: Sequence[str], fields: Mapping[str, str] | None) -> tuple[Table, dict[str, str]] | None:
    """Return how the rows of lines with columns are written, and what seems to be which; None for lines of text.

    ``path``: the table; ``lines``: its first ones; ``fields``: what is said of its columns.

    Raises: ListError if no column seems to be the audio, or lines name files in a form that no source reads.
    """
    separator = _delimiter(path, lines)
    if not separator:
        if not _each_names_a_file(lines):
            return None
        raise ListError(
            f"{path} has lines that name files in a form that no source reads ({lines[0][:60]!r}): of KEY PATH a line, "
            'name it ….scp as in Kaldi; otherwise write {"key": …, "wav": …, "txt": …} a line, which uio.from_raw_list '
            "reads"
        )
    rows = list(csv.reader(lines[:2], delimiter=separator))
    headed = len(rows) > 1 and not any(map(names_file, rows[0]))
    names = rows[0] if headed else _columns(rows[0])
    row = dict(zip(names, rows[-1], strict=False))
    guessed = _guess(row, "")
    if "wav" in guessed:
        guessed["wav"] = _beside(path, guessed["wav"], row[guessed["wav"]])
    found = guessed | dict(fields or {})
    if "wav" not in found:
        raise ListError(
            f"{path} is a table with the columns {shown(names)}, of which none seems to be the audio: say which is "
            "which, as in --fields wav=clips/{path},txt=sentence, or by uio.from_table in Python"
        )
    named = next((form for form in ("tsv", "csv") if is_named(path, (f".{form}", f".{form}.gz"))), None)
    usual = TEXTS[named or "tsv"]._asdict()
    form: dict[str, Any] = {"separator": separator, "header": headed or names, "quoted": separator in ",;"}
    more = {name: value for name, value in form.items() if value != usual[name]}
    return Table(path, None if named else "tsv", **more), found


def _beside(table: str, column: str, name: str) -> str:
    """Return the expression for the audio that rows name in a column: below a folder beside the table, as ``clips``, if
    it is in one of these and nowhere else."""
    folder = os.path.dirname(table)
    if os.path.exists(name) or os.path.exists(os.path.join(folder, name)) or not os.path.isfile(table):
        return column
    found = [entry.name for entry in os.scandir(folder or ".") if os.path.isfile(os.path.join(entry.path, name))]
    return f"{found[0]}/{{{column}}}" if len(found) == 1 else column


def rows_of(path: str, head: str, fields: Mapping[str, str] | None) -> tuple[Table, dict[str, str]]:
    """Return how the rows of a file are read that names their columns by itself, and what seems to be which: of an
    annotation, or of one JSON, where rows may be the items of a list in it.

    ``head``: its beginning; ``fields``: what is said of the columns. Raises: ListError if they do not tell where the
    audio is.
    """
    list_ = LIST_OF_OBJECTS.search(head) if head[0] == "{" else None
    row, expand = _first(path, head, list_[1] if list_ else ""), list_[1] if list_ else ""
    asked = {name for theirs in fields.values() for name in compiled(theirs).names} if fields else {""}
    while inner := max((list_with(row, name) for name in asked - row.keys()), key=len, default=""):
        expand, row = f"{expand}.{inner}".strip("."), next(expanded([row], inner.split(".")), {})
    found = _guess(row, "") | {ours: theirs for ours, theirs in _TIMES if theirs in row} | dict(fields or {})
    if "wav" not in found or (expand and not fields):
        found = {"wav": f"DIR/{{{next(iter(row), 'recording')}}}.wav"} | found
        said = ",".join(f"{ours}={theirs}" for ours, theirs in found.items())
        where = f", in its list {expand}," if expand else ""
        raise ListError(
            f"{path} has rows{where} with the columns {shown(row)}: say which is which, as in --fields '{said}', "
            "or by uio.from_table in Python" + (f' (uio.Table(…, expand="{expand}"))' if expand else "")
        )
    return Table(path, expand=expand or None), found


def _first(path: str, head: str, outer: str) -> Mapping[str, Any]:
    """Return the first row; of a JSON, which may be large, as an item of its list ``outer``. Raises: ListError."""
    if head[0] not in "[{":
        return next((row for row in open_rows((Table(path),), PLAIN).scan() if not isinstance(row, DataError)), {})
    try:
        for file in files_of([next(expand_names(path, PLAIN))], PLAIN):
            return next(iter(rows_of_json(file.content, [outer] if outer else [])), {})
    except ValueError as error:
        raise ListError(f"{path} is no JSON: {error}") from error
    return {}


_TIMES = [("speaker", "speaker"), ("end", "end_time"), ("end", "end"), ("start", "begin_time"), ("start", "start")]


def foreign_object(line: str, fields: Mapping[str, str] | None) -> str:
    """Return the names, ours first, that a JSON object with the name of an audio file seems to have; "" without one."""
    read = _object(line)
    audio = next((name for name, value in read.items() if _is_file(value)), "")
    given = _guess(read, audio) | dict(fields or {})
    return ",".join(f"{ours}={theirs}" for ours, theirs in ({"key": audio} | given).items()) if audio else ""


def names_of_object(line: str) -> dict[str, str]:
    """Return our names of fields with those that a JSON object seems to have instead, as far as ours are not there."""
    read = _object(line)
    audio = "wav" if "wav" in read else next((name for name, value in read.items() if _is_file(value)), "")
    given = ({"key": audio} if audio else {}) | _guess(read, audio)
    return {ours: given[ours] for ours in USUAL if ours in given and ours not in read}


def _object(line: str) -> dict[str, Any]:
    """Return a JSON object; an empty one for what is none."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and names_file(value)


def _iterable(items: str, fields: dict[str, str]) -> str:
    return f"uio.from_iterable({items}, fields={fields or _UNKNOWN}).sharding_filter()"


def _guess(row: Mapping[str, Any], audio: str) -> dict[str, str]:
    """Return our names of fields, with those in ``row`` that usually mean the same; ``audio``: that of the audio."""
    audio = audio or next((name for name, value in row.items() if _is_file(value)), "")
    found = {ours: next((name for name in (ours, *USUAL[ours]) if name in row), "") for ours in ("key", "txt")}
    return {ours: theirs for ours, theirs in {**found, "wav": audio}.items() if theirs}


def _columns(row: Sequence[str]) -> list[str]:
    """Return names for columns without a header: the audio, the key before it, the text after it."""
    at = next((number for number, cell in enumerate(row) if names_file(cell)), -1)
    ours = {at: "wav", at + 1: "txt"} | ({0: "key"} if at > 0 else {})
    return [ours.get(number, f"column{number + 1}") for number in range(len(row))]


def _delimiter(path: str, lines: Sequence[str]) -> str:
    """Return what separates the columns; "" if they are no columns."""
    if is_named(path, _TABLES):
        mark = max("\t,;|", key=lines[0].count)
        return mark if mark in lines[0] else ""
    return next((mark for mark in "\t," if _each_names_a_file(lines, mark)), "")


def _each_names_a_file(lines: Sequence[str], delimiter: str | None = None) -> bool:
    """Return whether each line, but for a header and one that the end of the head may have cut, names a file in one of
    several columns."""
    rows = [line.split(delimiter) for line in (lines[1:-1] or lines[-1:])]
    return all(len(row) > 1 and any(map(names_file, row)) for row in rows)


def _features(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file).get("features")
    except (OSError, ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}
