"""Data that say by names of their own what they are: the columns of tables, JSON objects, folders of save_to_disk."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.advice import guessed, names_file, segment_in, shown
from uio_pipes.formats.expressions import compiled
from uio_pipes.formats.lists.table import expand as expand_names
from uio_pipes.formats.naming import LOOKED_AT
from uio_pipes.formats.tables.description import TEXTS, Table
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.rows import expanded, rows_of_json
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.table.opening import open_rows
from uio_pipes.sources.table.records import list_with, place_of, with_files
from uio_pipes.tools.data.reading.data_list import LIST_OF_OBJECTS

_TABLES = (".tsv", ".csv", ".tsv.gz", ".csv.gz")


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
    there = {name: {"bytes": None} if name == audio else None for name in features}
    given = named_in(there)
    told = "" if "wav" in given or not there else f", once fields= says which of {shown(there)} is wav"
    return f"a folder of datasets' save_to_disk: {_iterable(line, given)} reads it in Python{told}"


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
    quoted = separator in ",;"
    quoting: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    rows = list(csv.reader(lines[:LOOKED_AT], delimiter=separator, quoting=quoting))
    at = next((n for n, cell in enumerate(rows[0]) if names_file(cell) or place_of(path, cell) != "{}"), -1)
    headed = len(rows) > 1 and at < 0
    names = rows[0] if headed else _columns(rows[0], at)
    found = _named_in_table(path, [dict(zip(names, row, strict=False)) for row in rows[headed:]])
    found |= segment_in(names, fields or ()) | dict(fields or {})
    if "wav" not in found:
        raise ListError(
            f"{path} is a table with the columns {shown(names)}, of which none seems to be the audio: say which is "
            "which, as in --fields wav=clips/{path},txt=sentence, or by uio.from_table in Python"
        )
    named = next((form for form in ("tsv", "csv") if is_named(path, (f".{form}", f".{form}.gz"))), None)
    usual = TEXTS[named or "tsv"]._asdict()
    form: dict[str, Any] = {"separator": separator, "header": headed or names, "quoted": quoted}
    more = {name: value for name, value in form.items() if value != usual[name]}
    return Table(path, None if named else "tsv", **more), found


def _named_in_table(path: str, rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return what :func:`named_in` does of the first row of a table; no column whose values repeat is the key.

    Raises: ListError if files are in another folder than that of the first row.
    """
    found, key = named_in(with_files(path, rows[0])), {}
    column = next((name for name in rows[0] if f"{{{name}}}" in found.get("wav", "")), "")
    if len(places := {place_of(path, row[column]) for row in rows if row.get(column)} - {"{}"}) > 1:
        where = shown(sorted(place.replace("{}", "") for place in places))
        raise ListError(
            f"{path} names files that lie in several folders ({where}): uio start {path} finds each, or say how its "
            f"columns name the folder, as in --fields 'wav={{speaker}}/{{{column}}}'"
        )
    repeated = {name for name in rows[0] if len({row.get(name) for row in rows}) < len(rows)}
    if found.get("key") in repeated:
        del found["key"]
        others = named_in({name: value for name, value in rows[0].items() if name not in repeated})
        key = {ours: theirs for ours, theirs in others.items() if ours == "key"}
    return key | found


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
    found = named_in(row) | segment_in(row, fields or ()) | dict(fields or {})
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


def named_in(*rows: Mapping[str, Any]) -> dict[str, str]:
    """Return our names of key, text and audio, with those that rows seem to have for them. A key that would be the name
    of the audio file stays out: without one, it is that."""
    found = {ours: ours for ours in ("key", "txt", "wav") if ours in rows[0]} | guessed(rows)
    return {ours: found[ours] for ours in _ORDER if ours in found and not (ours == "key" and " | " in found[ours])}


_ORDER = ("key", "txt", "wav", "sample_rate")


def _iterable(items: str, fields: dict[str, str]) -> str:
    named = f", fields={fields}" if fields else ""
    return f"uio.from_iterable({items}{named}).sharding_filter()"


def _columns(row: Sequence[str], at: int) -> list[str]:
    """Return names for columns without a header: the audio, or its name without suffix, which is the ``at``-th, the
    key before it, the text after it, and after numbers, as of speakers."""
    said = next((n for n in range(at + 1, len(row)) if not row[n].strip().isdigit()), at + 1)
    ours = {at: "wav" if names_file(row[at]) else "key", said: "txt"} | ({0: "key"} if at > 0 else {})
    return [ours.get(number, f"column{number + 1}") for number in range(len(row))]


def _delimiter(path: str, lines: Sequence[str]) -> str:
    """Return what separates the columns; "" if they are no columns."""
    if is_named(path, _TABLES):
        counts = {mark: [line.count(mark) for line in lines[:-1] or lines] for mark in "\t|;,"}  # texts have commas
        mark = max(counts, key=lambda one: (len({*counts[one]}) == 1 and lines[0].count(one) > 0, lines[0].count(one)))
        return mark if mark in lines[0] else ""
    return next((mark for mark in "\t|," if _each_names_a_file(lines, mark)), "")


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
