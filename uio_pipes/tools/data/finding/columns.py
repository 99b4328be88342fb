"""Which field of records is which of ours, by names and values; and how the rows of one table are read in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.advice import fitting, leaves, looks_like_audio, names_file, shown, stems, usual_of
from uio_pipes.formats.expressions import compiled, lookup
from uio_pipes.formats.lists.table import expand as expand_names
from uio_pipes.formats.naming import LOOKED_AT
from uio_pipes.formats.tables.description import TEXTS, Table
from uio_pipes.formats.tables.files import files_of
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.formats.tables.rows import expanded, rows_of_json
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.seen import LIST_OF_OBJECTS, Seen
from uio_pipes.sources.table.records import list_with, with_files
from uio_pipes.tools.data.finding.forms import NAMED, SEPARATORS, forms_of_lines
from uio_pipes.tools.data.finding.names import segment_in, text_among

AnyRecord = Mapping[str, Any]
_ORDER = ("key", "txt", "wav", "sample_rate")
_WITH_FILES = 3  # rows whose files are looked for


def guessed(records: Sequence[AnyRecord], wanted: Collection[str] = ("key", "wav", "txt")) -> dict[str, str]:
    """Return our names of the fields ``wanted`` that the first records have by other names, with these, as in
    ``sentence or text`` if some have another; audio must look like it, and keys differ."""
    found = dict[str, str]()
    for ours in wanted:
        ways = list[str]()
        for one in records:
            if not any(compiled(way).tried(one) is not None for way in ways):
                ways += [ours] if ours in one else _likely(ours, one, records, found)[:1]
        if ways and ways != [ours]:
            found[ours] = " or ".join(dict.fromkeys(ways))
    if isinstance(lookup(records[0], found.get("wav", "")), list) and "sample_rate" not in records[0]:
        found |= {"sample_rate": rate} if (rate := usual_of("sample_rate", records[0])) else {}
    return found


def _likely(ours: str, record: AnyRecord, records: Sequence[AnyRecord], found: Mapping[str, str]) -> list[str]:
    fits, values = fitting(ours, record, taken=found.values()), leaves(record)
    if ours == "wav":
        return [name for name in fits if values[name] is None or looks_like_audio(values[name])]
    ways = fits if ours != "key" else [*fits, *stems(values, [n for n in values if looks_like_audio(values[n])])]
    tried = {way: [str(value) for one in records if (value := compiled(way).tried(one)) is not None] for way in ways}
    return [way for way in ways if ours != "key" or len(tried[way]) == len({*tried[way]})]


def table_of(given: Seen) -> tuple[Table, dict[str, str]] | None:
    """Return how the rows of a table, an annotation or one JSON are read in place, and our names of its columns with
    those that they have there; None for lines of text.

    Raises: ListError if no column seems to be the audio, or lines name files in a form that no source reads.
    """
    path, columns = given.path, ""
    endings = {form: tuple(f".{form}{packed}" for packed in (".gz", ".zst", "")) for form in ("tsv", "csv")}
    named = next((form for form, several in endings.items() if is_named(path, several)), "")
    for table, rows in [_nested(given)] if given.is_rows else _columned(given, named):
        found = _named_in(path, rows, given.fields or {})
        if "wav" in found:
            return table, found
        columns = columns or shown(rows[0])
    if columns and (given.is_rows or named):
        raise ListError(
            f"{path} is a table with the columns {columns}, of which none seems to be the audio: say which is which, "
            f"as in --fields wav=clips/{{path}},txt=sentence, or by uio.from_table in Python"
        )
    if all(len(words := line.split()) > 1 and any(map(names_file, words)) for line in given.lines[:LOOKED_AT]):
        raise ListError(
            f"{path} has lines that name files in a form that no source reads ({given.lines[0][:60]!r}): of KEY PATH a "
            'line, name it ….scp as in Kaldi; otherwise write {"key": …, "wav": …, "txt": …} a line'
        )
    return None


def _columned(given: Seen, named: str) -> Iterator[tuple[Table, Sequence[AnyRecord]]]:
    """Yield lines as tables, by each separator that they have; the first one is a header unless it names files."""
    for form, rows in forms_of_lines("\n".join(given.lines[:LOOKED_AT])):
        mark, headed = SEPARATORS.get(form.removeprefix("columns by ").removesuffix(NAMED)), form.endswith(NAMED)
        first = {name: name for name in rows[0]} if headed else rows[0]
        files = any(map(names_file, first.values())) or len(with_files(given.path, first)) > len(first)
        if mark is not None and len(first) > 1 and (headed != files or len(given.lines) == 1):
            how = {"separator": mark, "header": headed, "quoted": mark in ",;"}
            more: dict[str, Any] = {n: own for n, own in how.items() if own != getattr(TEXTS[named or "tsv"], n)}
            yield Table(given.path, None if named else "tsv", **more), rows


def _nested(given: Seen) -> tuple[Table, Sequence[AnyRecord]]:
    """Return the first row of an annotation, or of one JSON, of its innermost list or that which has what is asked for.

    Raises: ListError if it cannot be read.
    """
    path, head = given.path, given.lines[0] + " ".join(given.lines[1:])
    outer = LIST_OF_OBJECTS.search(head) if head[0] == "{" else None
    expand = [outer[1]] if outer else []
    try:
        if head[0] in "[{":  # of what may be large
            rows = iter(rows_of_json(next(iter(files_of([next(expand_names(path, PLAIN))], PLAIN))).content, expand))
        else:
            rows = (row for row in open_rows((Table(path),), PLAIN).scan() if not isinstance(row, DataError))
        row = dict(next(rows, {}))
    except ValueError as error:
        raise ListError(f"{path} is no JSON: {error}") from error
    asked = {name for theirs in (given.fields or {}).values() for name in compiled(theirs).names} or {""}
    while inner := max((list_with(row, name) for name in asked - row.keys()), key=len, default=""):
        expand, row = [*expand, *inner.split(".")], dict(next(expanded([row], inner.split(".")), {}))
    return Table(path, expand=".".join(expand) or None), [row]


def _named_in(path: str, rows: Sequence[AnyRecord], given: Mapping[str, str]) -> dict[str, str]:
    """Return our names of what rows have, and what these are called there: the audio by files that lie there, or by
    what looks like a path. Raises: ListError if files lie in several folders."""
    looked = [*(with_files(path, row) for row in rows[:_WITH_FILES]), *rows[_WITH_FILES:]]
    found = {ours: ours for ours in ("key", "txt", "wav") if ours in rows[0]} | guessed(looked)
    places = {one: one.split("{")[1] for row in looked[:_WITH_FILES] for one in row if "{" in one}
    if "{" in found.get("wav", "") and "wav" not in given and len(places) > len({*places.values()}):
        raise ListError(
            f"{path} names files that lie in several folders ({shown([*places])}): uio start {path} finds each, or say "
            "how its columns name the folder, as in --fields 'wav={speaker}/{file}'"
        )
    if " | " in found.get("key", ""):  # the name of the audio file, which the key is without one
        del found["key"]
    texts = [{name: value for name, value in row.items() if isinstance(value, str)} for row in rows]
    if "txt" not in found and (text := text_among(texts, rows[0], [*compiled(found.get("wav", "1")).names])[1]):
        found["txt"] = text
    return {ours: found[ours] for ours in _ORDER if ours in found} | segment_in(rows[0]) | dict(given)
