"""The few forms of texts: columns by a separator, lines or blocks of a pattern, JSON, XML, or one utterance a file."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from xml.etree import ElementTree

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.advice import leaves
from uio_pipes.formats.tables.description import Table
from uio_pipes.formats.tables.opening import open_rows
from uio_pipes.formats.tables.rows import expanded
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.seen import ANNOTATIONS
from uio_pipes.tools.data.finding.files import FoundFile

Cells = Mapping[str, str]
WHOLE = "whole"  # the form of a file that is one text
NAMED = ", with names"  # at the end of a form whose first row has the names of columns
SEPARATORS = {"tabs": "\t", "|": "|", "commas": ",", "semicolons": ";"}
_COMMENTS = re.compile(r"(?m)^(?:#|;;|%%).*\n?")
_NO_WORDS = re.compile(r"[\t<>\[\]{}|=@*\x15]|^\.\./|^[#;\d]|^\w+: ")  # in lines of a text that is more than words
_PINYIN = re.compile(r"[a-zA-Z]+\d")
_PAIR = re.compile(r"([\w.]+): *(\"[^\"]*\"|'[^']*'|[^,{}]*)")
_TIMES = r"[\[(]?(?P<start>\d+\.\d+)[\s,;-]+(?P<end>\d+\.\d+)[\])]?"
_TIMED = rf"(?:(?P<key>\S+)\s+)?{_TIMES}:?\s+(?:.*\t)?(?:(?P<speaker>[A-Z]\w*): +)?(?P<text>.*)"
_PATTERNS = {  # of blocks, if they have line feeds, or of lines; groups are the columns, by their names or numbers
    "subtitles": r"(?m)^(?P<start>\S*\d:\d\d[.,]\d+) --> (?P<end>\S+).*\n(?P<text>(?:.+\n?)+)",
    "labels": r'(?m)^"(?:.*/)?(?P<key>[^"/]+)\.\w+"\n(?P<text>(?:(?!\.$|\d+ ).+\n)+)\.$',
    "text between times": r"(?m)^\[(?P<start>\d+\.\d+)\]\n(?!<[^ ]*>$)(?P<text>.+)\n(?=\[(?P<end>\d+\.\d+)\])",
    "segments": rf"(?P<key>\S+)\s+(?P<recording>\S+)\s+{_TIMES}",
    "recording and times": rf"(?P<recording>\S+)\s+{_TIMES}",
    "times": _TIMED,
    **{f"columns by {name}": mark for name, mark in SEPARATORS.items()},
    '( KEY "text" )': r"\(?\s*(\"[^\"]+\"|\S+)\s+\"(.*)\"\s*\)?",
    "text (KEY)": r"(?:<s>\s*)?(.*?)(?:\s*</s>)?\s*\(([^()\s]+)\)",
    "KEY:text": r"([^:=\s]+)\s*(?:::?|=)\s*(.+)",
    "KEY text": r"(\S+)\s+(.*)",
    "text KEY": r"(.*)\s+(\S+)",
    "lines": r"(.+)",
}


class Parsed(NamedTuple):
    """The rows of a text in one form, by the names or numbers of columns."""

    form: str
    rows: Sequence[Cells]


def forms_of(text: FoundFile, limit: int = -1, form: str = "") -> Iterator[Parsed]:
    """Yield a text in each form that it has. ``limit``: about how many bytes are read; ``form``: what is wanted."""
    if text.path.lower().endswith(ANNOTATIONS):
        table = Table(text.path, within=f"{text.root}/{text.archive}") if text.archive else Table(text.place)
        with suppress(ListError, DataError):
            rows = [row for row in open_rows((table,), PLAIN).scan() if not isinstance(row, DataError)]
            yield Parsed("annotation", [{name: str(own) for name, own in row.items() if own != ""} for row in rows])
        return
    content = text.text(limit).replace("\r", "")
    if content.startswith("<?xml"):
        with suppress(ElementTree.ParseError):
            yield from _objects("XML", _element(ElementTree.fromstring(text.text())))
    elif content.lstrip()[:1] in ("[", "{") and (made := list(_json(content, text, limit))):
        yield from made
    elif content.startswith("- {"):
        lines = content.strip().split("\n")
        yield Parsed("YAML", [{name: _plain(own) for name, own in _PAIR.findall(line)} for line in lines])
    else:
        yield from forms_of_lines(content, form)
        if words := words_of(content):
            yield Parsed(WHOLE, [{"text": words}])


def forms_of_lines(content: str, form: str = "") -> Iterator[Parsed]:
    """Yield lines in each form that most of them have. ``form``: that which is wanted, "" for all."""
    content = _COMMENTS.sub("", content)
    lines = [line for line in content.split("\n") if line.strip()]
    for name, how in _PATTERNS.items():
        if form.removesuffix(NAMED) not in ("", name):
            continue
        if len(how) == 1:
            yield from _columned(name, how, lines)
            continue
        pattern = re.compile(how)
        blocks = "\\n" in how
        found = (
            [*pattern.finditer(content)]
            if blocks
            else [hit for line in lines if (hit := pattern.fullmatch(line.strip()))]
        )
        if found and (blocks or len(found) * 2 > len(lines)):
            of = {number: group for group, number in pattern.groupindex.items()}
            names = [of.get(number, str(number)) for number in range(1, pattern.groups + 1)]
            yield Parsed(name, [dict(zip(names, map(_plain, hit.groups("")), strict=True)) for hit in found])


def words_of(content: str) -> str:
    """Return the words of a text that is one utterance, without lines on how they are pronounced, as in THCHS-30, or
    the numbers of samples, as in TIMIT; "" if its lines are more than words."""
    lines = re.sub(r"^(?:\d+ \d+ (?=\D)|Text: +(.*)(?s:.*))", r"\1", content.strip()).splitlines()
    if len(lines) > 1:
        lines = [one for one in lines if 2 * sum(map(bool, map(_PINYIN.fullmatch, one.split()))) < len(one.split())]
    elif lines and (lines[0][:3] == "../" or re.fullmatch(_TIMED, lines[0])):
        return ""
    more = len(lines) > 1 and any(_NO_WORDS.search(line.strip()) for line in lines)
    return "" if more else " ".join(map(str.strip, lines))


def _columned(form: str, mark: str, lines: Sequence[str]) -> Iterator[Parsed]:
    """Yield rows by the numbers of their columns, from 1, and by the names that the first row may have. More cells than
    columns are a text with separators."""
    if not any(mark in line for line in lines[:9]):
        return
    rows = [line.split(mark) for line in lines]
    if mark in ",;":
        with suppress(csv.Error):
            rows = [row for row in csv.reader([f"{line}\n" for line in lines], delimiter=mark) if row]
    widths = Counter(map(len, rows))
    width = min(widths, key=lambda one: (-widths[one], one))
    if mark == "," and len(rows) > 2:
        width = min(widths) if len(rows[0]) != width else width
    else:
        width = max(len(rows[0]), width)
    first, *others = cells = [[*map(_plain, row[: width - 1]), _plain(mark.join(row[width - 1 :]))] for row in rows]
    columns = [str(number) for number in range(1, width + 1)]
    yield Parsed(form, [dict(zip(columns, row, strict=False)) for row in cells])
    names = [name or column for name, column in zip(first, columns, strict=False)]
    if others and len({*names}) == len(names) and max(map(len, names)) < 40:
        headed = [dict(zip(names, row, strict=False)) for row in others]
        yield Parsed(f"{form}{NAMED}", headed)


def _plain(cell: str) -> str:
    """Return a cell without the blanks and quotes around it."""
    cell = re.sub(r"\s*\n\s*", " ", cell.strip())
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _json(content: str, text: FoundFile, limit: int) -> Iterator[Parsed]:
    """Yield the objects of JSON, one a line or one in all; those of a list, or of an object by ID, are each a row."""
    lines = [_loaded(line) for line in content.splitlines() if line.strip()]
    if (len(lines) > 1 or text.ending.endswith(".jsonl")) and isinstance(lines[0], dict):
        yield from _objects("JSON lines", lines)
    else:
        yield from _objects("JSON", _loaded(content if len(content) < limit or limit < 0 else text.text()))


def _loaded(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _objects(form: str, document: Any) -> Iterator[Parsed]:
    """Yield the innermost objects of lists as rows, with what the objects have that they are in; each list apart."""
    several = document if isinstance(document, list) else [document]
    own = [*document.values()] if isinstance(document, dict) else []
    if form == "JSON" and len(own) > 1 and all(isinstance(one, str) for one in own):
        yield Parsed("JSON by ID", [{"key": key, "text": one} for key, one in document.items()])
    if own and all(isinstance(one, dict) for one in own):
        if all(one and all(isinstance(inner, dict) for inner in one.values()) for one in own):
            several = [
                inner | {"key": key, "of": above} for above, one in document.items() for key, inner in one.items()
            ]
        elif all(len(one) > 1 and own[0].keys() & one.keys() for one in own):
            several = [one | {"key": key} for key, one in document.items()]
    rows = [row for row in several if isinstance(row, dict)]
    within = ((name, own) for row in rows for name, own in row.items() if isinstance(own, list) and own)
    lists = dict.fromkeys(name for name, own in within if isinstance(own[0], dict))
    for name in lists:
        apart = [{key: own for key, own in row.items() if key == name or key not in lists} for row in rows]
        yield from _objects(f"{form} {name}", list(expanded(apart, [name])))
    if rows and not lists:
        yield Parsed(form, [{name: str(own) for name, own in leaves(row).items() if own is not None} for row in rows])


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
