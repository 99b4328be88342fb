"""``from_text`` and ``from_jsonl``: utterances of text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from uio_pipes.formats.naming import FieldNames
from uio_pipes.formats.text.jsonl import JsonlTable
from uio_pipes.formats.text.table import Columns, TextTable
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.sources.listing import RecordListing


@dataclass(frozen=True)
class ListText(RecordListing):
    """Lines of text files. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_text"
    reasons: ClassVar[frozenset[str]] = frozenset(["blank_line"])

    columns: Columns
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> TextTable:
        """Look through the files. Raises: ListError."""
        return TextTable(self.columns, self.access)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.table().blank else super().count(counts, path)


@dataclass(frozen=True)
class ListJsonl(RecordListing):
    """Lines of JSONL files with a text. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_jsonl"

    paths: tuple[str, ...]
    names: FieldNames
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def describe(self, *, stable: bool = False) -> str:
        """As for every listing, with the names of the fields."""
        return f"{self.name}(names={self.names}, shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> JsonlTable:
        """Look through the files. Raises: ListError."""
        return JsonlTable(self.paths, self.access, self.names)
