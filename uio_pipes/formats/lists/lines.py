"""The lines of a list file, by number."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import ClassVar, overload

import numpy as np

from uio_pipes.base.errors import ListError
from uio_pipes.formats.rows.cutting import Cutter, ItemCutter, RowBounds
from uio_pipes.formats.rows.numbered import LONGEST, NumberedRows, rows_in
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


class Lines(NumberedRows, Sequence[str]):
    """The items of a list file: its lines without surrounding white space, blank lines and comments (``#``).

    A JSON line that is not UTF-8 is an item too, with its invalid bytes as surrogates: one bad line of a raw list costs
    one utterance.

    Raises: ListError if the list is missing, is not text, or changes while it is in use.
    """

    what: ClassVar[str] = "the list"
    of_folder: ClassVar[str] = "a list file, or shards by a glob ({}/*.tar)"
    empty: ClassVar[str] = "only blank lines and comments (#)"  # what the file may hold without having an item
    cutter: Cutter = ItemCutter()

    def __init__(self, name: str, access: Access | None = None) -> None:
        self._bare = True  # whether no line has white space around it
        try:
            super().__init__(name, access)
        except ListError as error:
            path = is_local(name) or ""
            reason = getattr(error.__cause__, "reason", "")
            if not path or reason != "unreadable_file" or os.path.isfile(path):
                raise
            if os.path.isdir(path):
                raise ListError(f"{self.what} {name} is a folder; name {self.of_folder.format(name)}") from error
            message = "is a pipe or a device, but is read more than once: write it to a file"
            raise ListError(f"{self.what} {name} {message}") from error

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self.item(self.raw(number))

    def __iter__(self) -> Iterator[str]:
        for text in self.texts():
            yield from text.split("\n")

    def texts(self) -> Iterator[str]:
        """Yield all items, joined by line ends, in large pieces."""
        for _, piece, found in self.pieces():
            if found is None and self._bare:
                yield _decoded(piece[:-1])
            elif found is None or len(found.starts):
                yield "\n".join(map(self.item, rows_in(piece, found)))

    def item(self, line: bytes) -> str:
        """Return the item of a line."""
        return _decoded(line).strip()

    def look(self, piece: bytes, found: RowBounds, line: int) -> None:
        codes, starts, ends = np.frombuffer(piece, np.uint8), found.starts, found.ends
        first, last = codes[starts], codes[ends - 1]
        visible = (first > 32) & (first < 127) & (last > 32) & (last < 127)
        self._bare = self._bare and bool(visible.all())
        self.check(piece, line)

    def check(self, piece: bytes, line: int) -> None:
        """Raises: ListError if a piece of the file, which begins with ``line``, is not of a list."""
        if line == 1 and piece[:64].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise ListError(f"the list {self.name} is a web page, perhaps an error page: open it, correct the URL")
        if not piece.isascii() and not _is_text(piece):
            for at, text in enumerate(piece.split(b"\n"), line):
                if not text.lstrip().startswith(b"{") and not _is_text(text):
                    raise self.no_text(at)
        self.refuse_nul(piece, line)

    def refuse_nul(self, piece: bytes, line: int) -> None:
        """Raises: ListError if a NUL is in this piece."""
        if b"\0" in piece:
            at = line + piece[: piece.index(b"\0")].count(b"\n")
            raise self.no_list(f"a NUL in line {at}: it is not text")

    def no_text(self, line: int) -> ListError:
        return ListError(
            f"the list {self.name} is not UTF-8 text (line {line}); if it is a shard, its name must end in one of "
            f"{' '.join(ARCHIVES)}, and for audio files, uio start makes a list"
        )

    def no_list(self, why: str) -> ListError:
        return ListError(
            f"the list {self.name} is not a list ({why}); each line must be a path, a URL or a JSON object"
        )

    def too_long(self, offset: int) -> ListError:
        return self.no_list(f"a line of more than {LONGEST} bytes begins at byte {offset}")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
