"""``from_text`` and ``from_jsonl``: utterances of text, one per line, of one file or of several parallel files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.base.checks import in_words, require, require_paths
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import AnyPath, name_of, plural, redact
from uio_pipes.core.capabilities import KnowsFields
from uio_pipes.core.stage import NO_IDENTITY
from uio_pipes.formats.lists.json_lines import JsonRows
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.naming import FieldNames, names_of, transcript
from uio_pipes.formats.rows.cutting import Cutter, LineCutter, RowBounds
from uio_pipes.io.access import Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.format import Format, RowPlace, key_of
from uio_pipes.sources.seen import Found, Seen

_MAY_BE_BLANK = (*range(33), 0xC2, 0xE1, 0xE2, 0xE3)  # first bytes of white space in UTF-8

Numbers = npt.NDArray[np.int64]


class TextLines(Lines):
    """The lines of a text, without the line end (``\\n`` or ``\\r\\n``). ``blank``: the numbers of the blank ones.

    A line that is not UTF-8 has its invalid bytes as surrogates: it costs one utterance.
    """

    what: ClassVar[str] = "the text"
    of_folder: ClassVar[str] = "the files in it by a glob ({}/*.txt)"
    empty: ClassVar[str] = "no line"

    cutter: Cutter = LineCutter()

    def __init__(self, name: str, access: Access | None = None) -> None:
        self._blank: list[Numbers] = []
        super().__init__(name, access)
        self.blank: Numbers = np.concatenate([np.zeros(0, np.int64), *self._blank])

    def item(self, line: bytes) -> str:
        return line.decode("utf-8", "surrogateescape").removesuffix("\r")

    def look(self, piece: bytes, found: RowBounds, line: int) -> None:
        super().look(piece, found, line)
        maybe = np.flatnonzero(np.isin(np.frombuffer(piece, np.uint8)[found.starts], _MAY_BE_BLANK))
        blank = [n for n in maybe if not self.item(piece[found.starts[n] : found.ends[n]]).strip()]
        self._blank.append(np.array(blank, np.int64) + line - 1)

    def check(self, piece: bytes, line: int) -> None:
        if 2 * piece.count(b"\0") > piece.count(b"\n"):  # a few cost their lines
            self.refuse_nul(piece, line)

    def no_list(self, why: str) -> ListError:
        return ListError(f"{self.what} {self.name} has no lines of text ({why}): give another file, or repair this one")


class TextFiles(ItemTable):
    """The lines of one or several texts, in their order."""

    direct: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[type[Lines]] = TextLines

    def item_of(self, line: str, listed: str) -> str:
        return line  # even if a file has that name

    def key(self, number: int) -> str:
        """Return ``FILE:LINE``; FILE is the base name, or the whole path if another file has the same."""
        part, within = self.find(number)
        assert isinstance(part, Lines)
        return f"{self._names[part.name]}:{within + 1}"

    def text(self, number: int) -> str:
        """Return a line. Raises: DataError ``bad_text``."""
        text = self[number]
        if "\0" in text:
            message = "the line holds a NUL character: correct it, or fetch the file again"
            raise DataError("bad_text", message, url=self.place(number))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                message = f"the line is not UTF-8 (its character {error.start + 1}): save the text as UTF-8"
                raise DataError("bad_text", message, url=self.place(number)) from error
        return text

    @cached_property
    def blank(self) -> Numbers:
        """The numbers of all blank lines, rising."""
        files = (file for file in self.files if isinstance(file, TextLines))
        return np.concatenate([file.blank + first for file, first in zip(files, self.firsts, strict=False)])

    @cached_property
    def _names(self) -> dict[str, str]:
        paths = {file.name: redact(file.name) for file in self.files}
        often = Counter(map(name_of, paths.values()))
        return {n: name_of(path) if often[name_of(path)] == 1 else path for n, path in paths.items()}


Columns = tuple[tuple[str, tuple[str, ...]], ...]  # names of fields, and the files of each


class LinesSideBySide:
    """The lines of ``columns``. A line that is blank in one of its files is left out in all of them.

    Raises: ListError if a file is missing or empty, or if files that belong together have unequal numbers of lines.
    """

    def __init__(self, columns: Columns, access: Access) -> None:
        self._columns = {name: TextFiles(entries, access) for name, entries in columns}
        self._first = next(iter(self._columns.values()))
        for name, other in self._columns.items():
            self._check_pairs(next(iter(self._columns)), name, other)
        blank = reduce(np.union1d, (column.blank for column in self._columns.values()))
        self.blank = frozenset(blank.tolist())
        self.notes = [note for column in self._columns.values() for file in column.files for note in file.notes]
        parts = "".join(f"{name}={column.digest}/" for name, column in self._columns.items())
        self.digest = blake2b(parts.encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self._first)

    def place(self, number: int) -> str:
        return self._first.place(number)

    def file(self, number: int) -> str:
        return getattr(self._first.find(number)[0], "name", "")

    def key(self, number: int) -> str:
        return self._first.key(number)

    def row(self, number: int) -> dict[str, Any]:
        """Return the key and a text for each column. Raises: LeftOut ``blank_line``, DataError ``bad_text``."""
        if number in self.blank:
            raise LeftOut("blank_line", "the line is blank", url=self.place(number))
        return {"key": self.key(number), **{name: column.text(number) for name, column in self._columns.items()}}

    def _check_pairs(self, first: str, name: str, other: TextFiles) -> None:
        if len(self._first.files) != len(other.files):
            counts = f"{plural(len(self._first.files), 'file')} of {first} and {len(other.files)} of {name}"
            raise ListError(f"{counts} cannot be read in parallel: give as many files of each")
        for one, two in zip(self._first.files, other.files, strict=True):
            if len(one) != len(two):
                counts = f"{redact(one.name)} has {plural(len(one), 'line')}, {redact(two.name)} has {len(two)}"
                raise ListError(f"{counts}: files that are read in parallel must have the same number")


TEXT, PAIRS = "lines of text", "text files side by side"


class ListText(KnowsFields, Format):
    """Lines of text files: ``paths`` of each field."""

    name: ClassVar[str] = "list_text"
    sentence: ClassVar[str] = "lines of text, also in parallel files"
    reasons = ("blank_line",)

    @classmethod
    def recognize(cls, seen: Seen) -> Found:
        """Return how any text is read: it is asked last."""
        given = parse_json(seen.path) if seen.is_inline else seen.path
        return Found(PAIRS if seen.is_inline else TEXT, from_text, (given,), lacks="no audio")

    def rows(self) -> LinesSideBySide:
        return LinesSideBySide(self.paths, self.access)

    def key(self, row: dict[str, Any], at: RowPlace) -> str:
        return str(at.rows.key(at.number))

    def lacking(self, name: str) -> str:
        there = [column for column, _ in self.paths]
        return "" if name in there else f"from_text reads {in_words(there)}: name the files of {name}, too"

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.rows().blank else super().count(counts, path)


@dataclass(frozen=True)
class ListJsonl(Format):
    """Lines of JSONL files with a text. ``names``: ours of the fields, with those of the lines; ``text``: what the
    argument of that name says; None if ``fields`` names the text."""

    name: ClassVar[str] = "list_jsonl"
    sentence: ClassVar[str] = "JSON Lines with a text field"

    names: FieldNames = ()
    text: str | None = field(default=None, repr=False, metadata=NO_IDENTITY)

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not seen.has("text", *(["txt"] if "txt" in (seen.fields or ()) else [])):
            return None
        return Found("text in JSON lines", from_jsonl, (seen.path,), lacks="no audio", records=lambda: seen.objects)

    def rows(self) -> JsonRows:
        return JsonRows(self.paths, self.access, self.names, text=self.text)

    def utterance(self, row: dict[str, Any], at: RowPlace) -> dict[str, Any]:
        txt = row.get("txt")
        if not isinstance(txt, str):
            another = 'choose another with fields={"txt": …}' if self.text is None else "choose another with text=…"
            if txt is not None:
                raise DataError("bad_text", f"the text is {txt!r:.40}, not a string: {another}")
            theirs = dict(self.names)
            names = ", ".join(theirs.get(name, name) for name in row)
            what = f"{'null' if 'txt' in row else 'nothing'} as {theirs.get('txt', 'txt')!r}, its text"
            raise DataError("missing_text", f"the line has {what} (its names: {names}): {another}")
        return {**row, "key": self.key(row, at), "txt": txt}

    def key(self, row: dict[str, Any], at: RowPlace) -> str:
        return key_of(row, at)

    def audio(self, path: str, at: RowPlace) -> str:
        return path  # utterances of text: what is called so is kept as it is


Paths = AnyPath | Iterable[AnyPath]
_RULE = "paths must be a path, or several in a list"


@reaches_files
def from_text(
    paths: Paths | Mapping[str, Paths],
    *,
    shuffle: bool = False,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from text files, plain or compressed: each line is an utterance with ``txt``.

    The ``key`` is ``FILE:LINE``, such as ``train.zh:17``. A line keeps its blanks and may begin with ``#``; only the
    line end is taken off. Blank lines are left out and counted as ``blank_line``: of files that are read side by side,
    the same lines of all of them, so that pairs stay aligned. A line that is not UTF-8 is the failure ``bad_text``.

    Args:
        paths: text file(s): a path, URL, glob or ``{a,b}`` braces, or several in a list. For files that are read side
            by side, line by line, give a dict of them by the names of fields: ``{"txt": "train.zh", "target":
            "train.en"}``; several files of each are paired in their order.
        shuffle: whether to deal the lines in another order in each epoch: a random order of all, without a buffer.
            Default: False.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a file is missing or empty, or files that are read side by side have
            unequal numbers of lines.
    """
    given: Mapping[str, Any] = paths if isinstance(paths, Mapping) else {"txt": paths}
    ok = bool(given) and "key" not in given and all(isinstance(name, str) and name for name in given)
    require(ok, "from_text", "files must be given by names of fields", paths, 'as in {"txt": "train.zh", "target": …}')
    columns = tuple((name, require_paths("from_text", _RULE, entries)) for name, entries in given.items())
    return ListText(columns, shuffle, Access.of("from_text", **access)).pipeline


@reaches_files
def from_jsonl(
    paths: Paths,
    *,
    text: str = "text",
    fields: Mapping[str, str] | None = None,
    shuffle: bool = False,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from JSON lines with a text, plain or compressed: each object is an utterance with ``txt``.

    All names of an object are kept as fields. The ``key`` is the object's ``key``, or its ``id``, or ``FILE:LINE``. An
    object without a text is the failure ``missing_text``. For lines that name audio, use :func:`from_raw_list`.

    Args:
        paths: JSONL file(s): a path, URL, glob or ``{a,b}`` braces, or several in a list.
        text: the name that holds the text. Default: "text".
        fields: names of other fields by ours: ``{"key": "doc_id", "lang": "language"}``. Default: None, all names are
            those of the file.
        shuffle: whether to deal the lines in another order in each epoch: a random order of all, without a buffer.
            Default: False.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a file is missing, empty, or not of JSON lines.
    """
    ok = isinstance(text, str) and bool(text)
    require(ok, "from_jsonl", "text must be the name of the text", text, 'as in text="content"')
    given = dict(names_of("from_jsonl", fields))
    by_fields = "txt" in given
    names = tuple({"txt": transcript("from_jsonl", text, given, "text"), **given}.items())
    paths_given = require_paths("from_jsonl", _RULE, paths)
    own, reach = None if by_fields else text, Access.of("from_jsonl", **access)
    return ListJsonl(paths_given, shuffle, reach, names=names, text=own).pipeline
