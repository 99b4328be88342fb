"""The lines of text files by number: every line counts, blank ones and those that begin with ``#`` too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.redact import redact
from uio_pipes.base.urls import name_of
from uio_pipes.formats.lists.lines import Block, Lines
from uio_pipes.formats.lists.table import Table
from uio_pipes.io.access import Access

_MAY_BE_BLANK = (*range(33), 0xC2, 0xE1, 0xE2, 0xE3)  # first bytes of white space in UTF-8

Numbers = npt.NDArray[np.int64]


class TextLines(Lines):
    """The lines of a text, without the line end (``\\n`` or ``\\r\\n``). ``blank``: the numbers of the blank ones.

    A line that is not UTF-8 has its invalid bytes as surrogates: it costs one utterance.
    """

    what: ClassVar[str] = "the text"
    of_folder: ClassVar[str] = "the files in it by a glob ({}/*.txt)"
    empty: ClassVar[str] = "no line"

    def __init__(self, name: str, access: Access | None = None) -> None:
        self._blank: list[Numbers] = []
        super().__init__(name, access)
        self.blank: Numbers = np.concatenate([np.zeros(0, np.int64), *self._blank])

    def texts(self) -> Iterator[str]:
        for _, chunk in self.chunks():
            yield chunk.decode("utf-8", "surrogateescape").removesuffix("\n")

    def _numbered(self, text: str, first: int) -> Block:
        return [(n, line.removesuffix("\r")) for n, line in enumerate(text.removesuffix("\n").split("\n"), first)]

    def _check(self, chunk: bytes, line: int) -> None:
        self._refuse_nul(chunk, line)

    def _no_list(self, why: str) -> ListError:
        return ListError(f"{self.what} {self.name} has no lines of text ({why}): name another file, or mend this one")

    def _are_items(
        self, chunk: bytes, codes: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers
    ) -> npt.NDArray[np.bool_]:
        maybe = np.flatnonzero(np.isin(codes[starts], _MAY_BE_BLANK))
        blank = [n for n in maybe if not chunk[starts[n] : ends[n]].decode("utf-8", "surrogateescape").strip()]
        self._blank.append(np.array(blank, np.int64) + self._count)
        return np.ones(len(starts), np.bool_)


class TextFiles(Table):
    """The lines of one or several texts, in their order."""

    direct: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[type[Lines]] = TextLines

    def key(self, number: int) -> str:
        """Return ``FILE:LINE``; FILE is the base name, or the whole path if another file has the same."""
        part, within = self.find(number)
        assert isinstance(part, Lines)
        return f"{self._names[part.name]}:{within + 1}"

    def text(self, number: int) -> str:
        """Return a line. Raises: DataError ``bad_text``."""
        text = self[number]
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
        return np.concatenate([file.blank + first for file, first in zip(files, self._firsts, strict=False)])

    @cached_property
    def _names(self) -> dict[str, str]:
        paths = {file.name: redact(file.name) for file in self.files}
        often = Counter(map(name_of, paths.values()))
        return {n: name_of(path) if often[name_of(path)] == 1 else path for n, path in paths.items()}
