"""Utterances that are lines of JSON files, in any order: the base of the tables of manifests."""

from __future__ import annotations

from typing import Any, ClassVar

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import name_of
from uio_pipes.formats.lists.raw_line import parse_object
from uio_pipes.formats.lists.table import Table
from uio_pipes.formats.naming import FieldNames
from uio_pipes.io.access import Access


class JsonRecords:
    """One utterance a line of JSONL files, plain or compressed. Subclasses make fields of a line's object.

    ``entries``: paths, globs, braces or URLs; ``names``: our names of the fields, with those in the files.

    Raises: ListError if a file is missing, damaged or has no lines.
    """

    weights = None
    wanted: ClassVar[str] = "a JSON object a line is wanted"

    def __init__(self, entries: tuple[str, ...], access: Access, names: FieldNames = ()) -> None:
        self.lines, self.access, self._names = Table(entries, access), access, names

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def digest(self) -> str:
        """A hash of all lines."""
        return self.lines.digest

    def place(self, number: int) -> str:
        return self.lines.place(number)

    def key(self, number: int) -> str:
        try:
            return str(self.fields(number)["key"])
        except DataError as error:
            return error.member or self.place(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of an utterance, nothing opened. Raises: DataError."""
        return self.parse(self.line(number), self.place(number))

    def line(self, number: int) -> dict[str, Any]:
        """Return the object of a line under our names.

        Raises: DataError ``bad_line``; ListError if the first line of the file is no object, either.
        """
        text = self.lines[number]
        if not text.startswith("{"):
            message = f"not a JSON object: {text[:80]!r}; {self.wanted}"
            if not self.lines.find(number)[0][0].startswith("{"):
                raise ListError(f"{self.place(number)} is {message}")
            raise DataError("bad_line", message, url=self.place(number))
        try:
            return parse_object(text, "", self._names)
        except DataError as error:
            raise DataError(error.reason, error.message, url=self.place(number)) from error

    def parse(self, line: dict[str, Any], place: str) -> dict[str, Any]:
        """Return the fields of an utterance, made from a line's object. Raises: DataError naming ``place``."""
        raise NotImplementedError


def key_of(line: dict[str, Any], place: str) -> str:
    """Return ``key``, ``id``, or FILE:LINE."""
    key = line.get("key", line.get("id"))
    if key is None:
        file, _, number = place.rpartition(", line ")
        key = f"{name_of(file)}:{number}"
    return str(key)
