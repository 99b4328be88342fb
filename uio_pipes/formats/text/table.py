"""Utterances that are lines of text files: one file, or several side by side, joined by the number of the line."""

from __future__ import annotations

from functools import reduce
from hashlib import blake2b
from typing import Any

import numpy as np

from uio_pipes.base.errors import LeftOut, ListError
from uio_pipes.base.printable import counted
from uio_pipes.base.redact import redact
from uio_pipes.formats.text.lines import TextFiles
from uio_pipes.io.access import Access

Columns = tuple[tuple[str, tuple[str, ...]], ...]  # names of fields, and the files of each


class TextTable:
    """The lines of ``columns``. A line that is blank in one of its files is left out in all of them.

    Raises: ListError if a file is missing or empty, or if files that belong together have unequal numbers of lines.
    """

    weights = None

    def __init__(self, columns: Columns, access: Access) -> None:
        self._columns = {name: TextFiles(entries, access) for name, entries in columns}
        self._first = next(iter(self._columns.values()))
        for name, other in self._columns.items():
            self._check_pairs(next(iter(self._columns)), name, other)
        blank = reduce(np.union1d, (column.blank for column in self._columns.values()))
        self.blank = frozenset(blank.tolist())
        parts = "".join(f"{name}={column.digest}/" for name, column in self._columns.items())
        self.digest = blake2b(parts.encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self._first)

    def place(self, number: int) -> str:
        return self._first.place(number)

    def key(self, number: int) -> str:
        return self._first.key(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return the key and a text for each column. Raises: LeftOut ``blank_line``, DataError ``bad_text``."""
        if number in self.blank:
            raise LeftOut("blank_line", "the line is blank", url=self.place(number))
        return {"key": self.key(number), **{name: column.text(number) for name, column in self._columns.items()}}

    def _check_pairs(self, first: str, name: str, other: TextFiles) -> None:
        if len(self._first.files) != len(other.files):
            counts = f"{counted(len(self._first.files), 'file')} of {first} and {len(other.files)} of {name}"
            raise ListError(f"{counts} cannot be read side by side: name as many of each")
        for one, two in zip(self._first.files, other.files, strict=True):
            if len(one) != len(two):
                counts = f"{redact(one.name)} has {counted(len(one), 'line')}, {redact(two.name)} has {len(two)}"
                raise ListError(f"{counts}: files that are read side by side must have equally many")
