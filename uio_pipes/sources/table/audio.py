"""The audio that rows name by path."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import DataError, LeftOut
from uio_pipes.base.urls import folder_of, inside, redact
from uio_pipes.formats.tables.rows import Rows
from uio_pipes.io.access import Access
from uio_pipes.io.opening import RemoteFileRef, is_local, open_file
from uio_pipes.io.references import RandomFile
from uio_pipes.io.relative_paths import RelativeRef

Absent = Literal["no_audio", "not_kept"]
_ROOT = re.compile(r"(?:\$\w+|\$?\{\w+\})/+")  # what stands for root in lists of SpeechBrain's: $data_root, {data_root}


class AudioByPath:
    """Files, named relative to ``root``, or without one to the folder of the row's table or the working directory."""

    digest = ""
    leftover: ClassVar[Counter[str]] = Counter()
    damage: ClassVar[list[DataError]] = []

    def __init__(self, rows: Rows, root: str | None, absent: Absent, access: Access) -> None:
        self._rows, self._root, self._access = rows, root, access
        self._absent: Absent = absent

    def find(self, name: str, number: int, fields: Mapping[str, Any]) -> Any:
        kind = _Unwanted if self._absent == "not_kept" else _Absent
        if name[:1] in ("$", "{"):
            name = _ROOT.sub("", name)
        if "://" not in name:
            if name.startswith(("/", "~")):
                return kind((), os.path.expanduser(name))
            folder = folder_of(self._rows.file(number)) if self._root is None else self._root
            if (local := is_local(folder)) is not None:
                return kind((local, "") if local and self._root is None else (local,), name)
            name = inside(folder, name)
        path = is_local(name)
        return _Far(open_file(name, self._access), self._absent) if path is None else kind((), path)


def _missing(absent: Absent, places: Sequence[str], url: str, free: bool = False) -> DataError:
    """Return the error of a file that is not there: a failure, or none if the table is of more than is wanted here.

    ``free``: whether nothing says where paths start.
    """
    start = ", or root=… where paths start" if free else ""
    remedy = f"fetch it, say where it is by fields ('wav=FOLDER/{{…}}'){start}, or correct the row"
    remedy += '; if not all audio of the table is wanted, say absent="not_kept"' * free
    message = f"no such file ({in_words(places)}): {remedy}"
    return (DataError if absent == "no_audio" else LeftOut)(absent, message, url=url)


class _Absent(RelativeRef):
    """A local file whose absence is a failure."""

    __slots__ = ()
    absent: ClassVar[Absent] = "no_audio"

    def missing(self, path: str) -> DataError:
        return _missing(self.absent, self.places, path, "" in self.folders)


class _Unwanted(_Absent):
    """A local file whose absence is none."""

    __slots__ = ()
    absent: ClassVar[Absent] = "not_kept"


class _Far(RemoteFileRef):
    """A remote file. ``absent``: what its absence is."""

    __slots__ = ("absent",)

    def __init__(self, file: RandomFile, absent: Absent) -> None:
        super().__init__(file)
        self.absent: Absent = absent

    def _first(self) -> bytes:
        try:
            return super()._first()
        except DataError as error:
            if error.reason != "missing_file":
                raise
            raise _missing(self.absent, [redact(self.file.path)], self.file.path) from error
