"""``uio.Table``: how the rows of a table are written, as far as the names of its files do not tell."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from uio_pipes.base.checks import refuse, require, require_paths
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.urls import AnyPath, redact, suffix_of
from uio_pipes.formats.expressions import Expression, compiled
from uio_pipes.formats.tables.text import TextForm

TableFormat = Literal[
    "tsv", "csv", "jsonl", "json", "parquet", "stm", "textgrid", "nxt", "rttm", "uem", "ctm", "srt", "vtt", "kaldi",
    "lines", "whole",
]  # fmt: skip
FORMATS: tuple[str, ...] = get_args(TableFormat)
NIST_CHANNEL = "nist_channel"  # the column of channels that are numbered from 1, or named A and B
TEXTS = {  # the formats of a row a line
    "tsv": TextForm(),
    "csv": TextForm(",", quoted=True),
    "jsonl": TextForm(json=True),
    "kaldi": TextForm(None, ("key", "value")),
    "rttm": TextForm(
        None, ("rttm", "recording", NIST_CHANNEL, "start", "duration", "_", "__", "speaker", "rest"), comment=";;"
    ),
    "uem": TextForm(None, ("recording", NIST_CHANNEL, "start", "end"), comment=";;"),
    "ctm": TextForm(None, ("recording", NIST_CHANNEL, "start", "duration", "text", "confidence"), comment=";;"),
    "lines": TextForm("", ("line",)),
}
_SUFFIXES = {"ndjson": "jsonl", "scp": "kaldi", "txt": "tsv", "trn": "tsv", "xml": "nxt"}
_COMPRESSIONS = ("gz", "bz2", "xz", "zst", "lz4")
_NAME = "Table"


@keyword_hints
@dataclass(frozen=True)
class Table:
    """How the rows of a table are written: what the names of its files do not tell.

    Args:
        paths: its file(s): a path, URL, glob or ``{a,b}`` braces, or several in a list.
        format: "tsv", "csv", "jsonl" (a JSON object a line), "json" (one JSON), "parquet", "stm", "textgrid", "nxt",
            "rttm", "uem", "ctm", "srt", "vtt", "kaldi" (``KEY value …``), "lines" (a line is one value, ``line``) or
            "whole" (a file is one row, with its ``path`` and ``text``). Default: None, that of the suffix.
        separator: text between the values of a line; a blank stands for any number of blanks and tabs. Default: None,
            a tab in "tsv", a comma in "csv".
        header: whether the first line of each file names the columns; or their names, if it does not. Without names,
            False, they are "1", "2", …. The last one of given names takes the rest of the line if values are separated
            by blanks. Default: None, a header in "tsv" and "csv".
        quoted: whether values may be in double quotes, and then hold separators and line ends. Default: None, only in
            "csv".
        escape: character before one that is meant literally, such as a backslash. Default: "", none.
        comment: what lines begin with that are no rows. Default: "", nothing; in "rttm", "uem" and "ctm" ";;".
        encoding: of the text, by Python's name for it. Default: "utf-8".
        expand: the list within each row whose items become the rows, as in "audios.segments"; an item has the fields
            of what it is in, too. Default: None, rows are as they are.
        within: the archive that the table lies in; ``paths`` are then names of its members. Default: None.
        join: a second table, or several, that complete the rows: each says by ``on`` which of its rows. Default: (),
            none.
        on: for a table that is joined to another one: what is equal in a row of the other and in its own, an expression
            of fields each: "path = clip". One expression stands for both. Utterances then have ``path``, but not
            ``clip``. Default: None.
        constants: values that all its rows have, whatever their own are, as in ``{"lang": "pl"}``. Default: (), none.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    paths: AnyPath | Sequence[AnyPath]
    format: TableFormat | None = None
    separator: str | None = None
    header: bool | Sequence[str] | None = None
    quoted: bool | None = None
    escape: str = ""
    comment: str = ""
    encoding: str = "utf-8"
    expand: str | None = None
    within: AnyPath | None = None
    join: Table | Sequence[Table] = field(default=())
    on: str | None = None
    constants: Mapping[str, str] | Sequence[tuple[str, str]] = ()

    def __repr__(self) -> str:
        """Only what differs from the defaults."""
        paths, *others = fields(self)
        given = getattr(self, paths.name)
        options = (f"{f.name}={value!r}" for f in others if (value := getattr(self, f.name)) != f.default)
        return redact(f"{_NAME}({', '.join([repr(given[0] if len(given) == 1 else list(given)), *options])})")

    def __post_init__(self) -> None:
        self._set("paths", require_paths(_NAME, "paths must be a path, or several in a list", self.paths))
        known = self.format is None or self.format in FORMATS
        require(known, _NAME, f"format must be one of {', '.join(FORMATS)}", self.format, "omit it to have it guessed")
        texts = [self.escape, self.comment, self.encoding, self.expand or "", self.separator or "", self.on or ""]
        ok = all(isinstance(text, str) for text in texts)
        require(
            ok, _NAME, "separator, escape, comment, encoding, expand and on must be texts", texts, "name characters"
        )
        self._check_form()
        joined = (self.join,) if isinstance(self.join, Table) else tuple(self.join)
        ok = all(isinstance(one, Table) and one.on is not None for one in joined)
        require(ok, _NAME, "join must be tables that have on=", self.join, 'as in uio.Table(…, on="path = clip")')
        self._set("join", joined)
        pairs = tuple(self.constants.items() if isinstance(self.constants, Mapping) else self.constants)
        ok = all(isinstance(one, str) for pair in pairs for one in pair)
        require(ok, _NAME, "constants must be texts by the names of columns", self.constants, 'as in {"lang": "pl"}')
        self._set("constants", pairs)
        if self.on is not None:
            self.sides()

    def _check_form(self) -> None:
        if self.header is not None and not isinstance(self.header, bool):
            ok = not isinstance(self.header, str) and all(isinstance(name, str) and name for name in self.header)
            ok = ok and 0 < len(self.header) == len(set(self.header))
            require(
                ok, _NAME, "header must be True, False, or the names of the columns", self.header, 'as in ("id", "txt")'
            )
            self._set("header", tuple(self.header))
        ok = self.separator is None or (self.separator != "" and "\n" not in self.separator)
        require(ok, _NAME, "separator must be what stands between values", self.separator, r'as in "\t"')
        single = len(self.escape) <= 1 and (len(self.separator or ",") == 1 or not (self.escape or self.quoted))
        sentence = "with quotes or an escape, these and the separator are one character each"
        refuse(not single, _NAME, sentence, f"separator is {self.separator!r}, escape {self.escape!r}")
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            raise PipelineError(f"{_NAME}: Python has no encoding {self.encoding!r}; try 'utf-8' or 'cp949'") from error

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def format_of(self, name: str) -> str:
        """Return the format of the file ``name``: the given one, or that of its suffix. It is "tsv" if only a separator
        or a header is given. Raises: PipelineError."""
        if self.format is not None:
            return self.format
        suffix = suffix_of(name)
        if suffix in _COMPRESSIONS:
            suffix = suffix_of(name[: -len(suffix) - 1])
        if suffix in FORMATS:
            return suffix
        if self.separator is not None or self.header is not None:
            return "tsv"
        if suffix not in _SUFFIXES:
            raise PipelineError(
                f"{_NAME}: the format of {name} is not clear from its name: give format= "
                f"({', '.join(FORMATS)}), or for delimited text separator= and header=, as in "
                'uio.Table("a.dat", separator="|", header=("id", "txt"))'
            )
        return _SUFFIXES[suffix]

    def text_form(self, format: str) -> TextForm:
        """Return how the lines of a file are read; ``format``: one of ``TEXTS``."""
        form = TEXTS[format]
        comment = self.comment or form.comment
        changes: dict[str, Any] = {"escape": self.escape, "comment": comment, "encoding": self.encoding}
        if self.separator is not None:
            changes["separator"] = None if self.separator == " " else self.separator
        for name in ("header", "quoted"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        return form._replace(**changes)

    def sides(self) -> tuple[Expression, Expression]:
        """Return what is equal in the rows of the table that this one is joined to, and in its own.

        Raises: PipelineError.
        """
        sides = (self.on or "").split(" = ")
        require(len(sides) <= 2, _NAME, "on must be one expression, or two joined by =", self.on, 'as in "path = clip"')
        return compiled(sides[0].strip()), compiled(sides[-1].strip())
