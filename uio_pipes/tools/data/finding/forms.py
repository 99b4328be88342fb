"""The few forms that tables of texts have: columns by a separator, keys before or behind a text, JSON, XML,
annotations, or a text that is a file of its own."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from xml.etree import ElementTree

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.tables.description import Table
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.table.opening import open_rows
from uio_pipes.tools.data.finding.files import TextFile

Cells = Mapping[str, str]
ANNOTATIONS = (".stm", ".textgrid", ".segments.xml")
_BEHIND = re.compile(r"(?:<s>\s*)?(?P<text>.*?)(?:\s*</s>)?\s*\((?P<key>[^()\s]+)\)")
_QUOTED = re.compile(r"\(?\s*(?:\"(?P<name>[^\"]+)\"|(?P<key>\S+))\s+\"(?P<text>.*)\"\s*\)?")
_SEGMENT = re.compile(r"(\S+)\s+(\S+)\s+(\d+(?:\.\d+)?)\s+(\d+(?:\.\d+)?)")
_COMMENT = ("#", ";;", "%%")
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")
_NO_WORDS = re.compile(r"[\t<>\[\]{}|=@*\x15]|^[#;\d]")  # in lines of a text that is more than words
_SPOKEN = re.compile(r"(?m)^(\S*\d:\d\d[.,]\d+) --> (\S+).*\n((?:.+\n?)+)")


class Parsed(NamedTuple):
    """The rows of a text in one form, by the numbers or names of columns.

    ``header``: the first row, if the form has columns by number, which may be their names; ``form``: its name.
    """

    form: str
    rows: Sequence[Cells]
    columns: tuple[str, ...]
    headed: bool = False  # whether the first row may be the names of columns


def forms_of(text: TextFile, root: str, limit: int = -1, form: str = "") -> Iterator[Parsed]:
    """Yield a text in each form that its lines have. ``limit``: about how many bytes are read; ``form``: only this."""
    name = text.name.lower().removesuffix(".gz")
    if name.endswith(ANNOTATIONS):
        yield from _annotated(text, root)
        return
    content = text.text(limit)
    if not content.strip():
        return
    if name.endswith((".srt", ".vtt")):
        yield _of_objects("subtitles", [dict(zip(("start", "end", "text"), found.groups(), strict=True))
                                        for found in _SPOKEN.finditer(content.replace("\r", ""))])  # fmt: skip
        return
    first = content.lstrip()[0]
    if content.startswith("<?xml"):
        with suppress(ElementTree.ParseError):
            yield _of_objects("XML", [*_objects(_element(ElementTree.fromstring(text.read(-1))), {})])
    elif first in "[{" and (made := _json(text, content, limit)):
        yield from made
    else:
        lines = [line for line in content.splitlines() if line.strip() and not line.startswith(_COMMENT)]
        if all(map(_SEGMENT.fullmatch, lines)):
            names = ("key", "recording", "start", "end")
            yield _of_objects("segments", [dict(zip(names, line.split(), strict=True)) for line in lines])
            return
        for one, cells in _FORMS.items():
            if form in ("", one) and (rows := cells(lines)):
                yield _of_cells(one, rows)


def whole(text: TextFile, root: str) -> str:
    """Return the words of a text that is one utterance, without lines on how they are pronounced, as in THCHS-30; of a
    text that names another file, that one's; "" if its lines are more than words."""
    content = text.text().strip()
    lines = content.splitlines()
    if len(lines) == 1 and content.startswith("."):
        with suppress(OSError, ValueError), open(os.path.join(root, text.folder, content), encoding="utf-8") as file:
            lines = file.read().strip().splitlines()
    lines = [line.strip() for line in lines if line.strip() and not (len(lines) > 1 and _pronounced(line))]
    if len(lines) > 1 and any(map(_NO_WORDS.search, lines)):
        return ""
    return re.sub(r"^\d+ \d+ (?=\D)", "", " ".join(lines))  # TIMIT's, with first and last sample


def _pronounced(line: str) -> bool:
    words = line.split()
    return 2 * sum(re.fullmatch(r"[a-zA-Z]+\d", word) is not None for word in words) >= len(words)


def _separated(separator: str) -> Callable[[list[str]], list[list[str]]]:
    def cells(lines: list[str]) -> list[list[str]]:
        return [line.split(separator) for line in lines] if any(separator in line for line in lines[:9]) else []

    return cells


def _quoting(separator: str) -> Callable[[list[str]], list[list[str]]]:
    def cells(lines: list[str]) -> list[list[str]]:
        if not any(separator in line for line in lines[:9]):
            return []
        with suppress(csv.Error):
            return [row for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=separator) if row]
        return [line.split(separator) for line in lines]

    return cells


def _patterned(pattern: re.Pattern[str]) -> Callable[[list[str]], list[list[str]]]:
    def cells(lines: list[str]) -> list[list[str]]:
        found = [pattern.fullmatch(line.strip()) for line in lines]
        return (
            [[hit.groupdict().get("name") or hit["key"], hit["text"]] for hit in found if hit]
            if sum(map(bool, found[:9])) * 2 > len(found[:9])
            else []
        )

    return cells


_FORMS: dict[str, Callable[[list[str]], list[list[str]]]] = {
    "columns by tabs": _separated("\t"),
    "columns by |": _separated("|"),
    "columns by commas": _quoting(","),
    "columns by ;": _quoting(";"),
    '( KEY "text" )': _patterned(_QUOTED),
    "text (KEY)": _patterned(_BEHIND),
    "KEY:text": _patterned(re.compile(r"(?P<key>[^:=\s]+)\s*[:=]\s*(?P<text>.+)")),
    "KEY text": lambda lines: [line.split(None, 1) for line in lines],
    "text KEY": lambda lines: [line.rsplit(None, 1)[::-1] for line in lines],
}


def _of_cells(form: str, rows: list[list[str]]) -> Parsed:
    """Return rows by the numbers of their columns, from 1; more cells than columns are a text with separators."""
    widths = Counter(map(len, rows))
    width = max(len(rows[0]) if widths[len(rows[0])] > 1 or len(rows) < 3 else 0, widths.most_common(1)[0][0])
    width = min(widths) if "commas" in form and len(rows[0]) != width else width
    mark = {"columns by commas": ",", "columns by |": "|", "columns by ;": ";"}.get(form, " ")
    columns = tuple(str(number) for number in range(1, width + 1))
    made = [[*row[: width - 1], mark.join(row[width - 1 :])] for row in rows]
    made = [[*map(_plain, row)] for row in made]
    for at in range(width - 1):  # times, where no header says so
        if width > 2 and all(_grows(row[at : at + 2]) for row in made[:100]):
            columns = (*columns[:at], "start", "end", *columns[at + 2 :])
            break
    return Parsed(form, [dict(zip(columns, row, strict=False)) for row in made], columns, not form.endswith("text"))


def _grows(cells: list[str]) -> bool:
    """Return whether these are two times, of which the second is later."""
    first, last = [seconds(cell) for cell in cells] if len(cells) == 2 else (None, None)
    return first is not None and last is not None and first < last


def _plain(cell: str) -> str:
    """Return a cell without the blanks and quotes around it."""
    cell = cell.strip()
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _of_objects(form: str, rows: list[dict[str, str]]) -> Parsed:
    return Parsed(form, rows, tuple(dict.fromkeys(name for row in rows[:100] for name in row)))


def _json(text: TextFile, content: str, limit: int) -> list[Parsed]:
    """Return the objects of JSON, one a line or one in all; those of a list, or of an object by ID, are each a row."""
    lines = [line for line in content.splitlines() if line.strip()]
    with suppress(ValueError):
        if len(lines) > 1 and isinstance(json.loads(lines[0]), dict):
            return [_of_objects("JSON lines", [row for line in lines for row in _objects(_loaded(line), {})])]
    document = _loaded(content if len(content) < limit or limit < 0 else text.text())
    made = [_of_objects("JSON", list(_objects(document, {})))]
    if isinstance(document, dict) and len(document) > 1 and all(isinstance(own, str) for own in document.values()):
        made.append(_of_objects("JSON by ID", [{"key": key, "text": own} for key, own in document.items()]))
    return [one for one in made if one.rows]


def _loaded(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _by_id(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(isinstance(own, dict) for own in value.values())


def _objects(value: Any, above: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield rows: the innermost objects of lists, with what the objects have that they are in."""
    if isinstance(value, list):
        for item in value:
            yield from _objects(item, above)
    elif isinstance(value, dict):
        if _by_id(value) and (len(value) > 1 or any(map(_is_row, value.values()))):
            for key, own in value.items():
                yield from _objects(own, above | {"key": key})
            return
        plain = above | dict(_leaves(value, ""))
        inner = [own for own in value.values() if _is_list(own)]
        for own in inner:
            yield from _objects(own, plain)
        if not inner:
            yield plain


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and sum(isinstance(own, str) for own in value.values()) > 1


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _leaves(value: Mapping[str, Any], parent: str) -> Iterator[tuple[str, str]]:
    for name, own in value.items():
        if isinstance(own, dict):
            yield from _leaves(own, f"{parent}{name}.")
        elif isinstance(own, list):
            if own and all(isinstance(item, str) for item in own):
                yield parent + name, " ".join(own)
        elif own is not None:
            yield parent + name, str(own)


def _element(element: ElementTree.Element) -> dict[str, Any]:
    """Return an element of XML as an object: its attributes, its text, and what is in it, with further attributes or
    elements as lists."""
    made: dict[str, Any] = dict(element.attrib)
    for one in element:
        name = one.tag.rpartition("}")[2]
        if len(one) or (one.attrib and "".join(one.itertext()).strip()):
            made.setdefault(name, []).append(_element(one))
        elif (one.text or "").strip():
            made[name] = " ".join(one.itertext()).strip()
    said = " ".join(" ".join([element.text or "", *(one.tail or "" for one in element)]).split())
    return made | ({"text": said} if said else {})


def _annotated(text: TextFile, root: str) -> Iterator[Parsed]:
    place = os.path.join(root, text.archive or text.path)
    table = Table(text.path, within=place) if text.archive else Table(place)
    with suppress(ListError, DataError):
        rows = [row for row in open_rows((table,), PLAIN).scan() if not isinstance(row, DataError)]
        yield _of_objects("annotation", [{name: str(own) for name, own in row.items() if own != ""} for row in rows])


def seconds(value: str) -> float | None:
    """Return a time in seconds, of 5.25 or 0:00:05.25; None of anything else."""
    with suppress(ValueError):
        return float(value)
    if clock := _CLOCK.fullmatch(value.strip()):
        hours, minutes, rest = clock.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    return None
