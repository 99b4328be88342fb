"""The audio that rows name by path."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from uio_pipes.base.errors import DataError, LeftOut
from uio_pipes.base.urls import folder_of, inside
from uio_pipes.formats.tables.rows import Rows
from uio_pipes.io.access import Access
from uio_pipes.io.lookahead import reference
from uio_pipes.io.nearby import Nearby
from uio_pipes.io.opening import is_local

Absent = Literal["no_audio", "not_kept"]


class AudioByPath:
    """Files, named relative to ``root``, or without one to the folder of the row's table or the working directory."""

    digest = ""
    leftover: ClassVar[Counter[str]] = Counter()
    damage: ClassVar[list[DataError]] = []

    def __init__(self, rows: Rows, root: str | None, absent: Absent, access: Access) -> None:
        self._rows, self._root, self._access = rows, root, access
        self._kind = _Unwanted if absent == "not_kept" else _Absent

    def find(self, name: str, number: int, fields: Mapping[str, Any]) -> Any:
        if "://" in name:
            return reference(name, self._access)
        if name.startswith(("/", "~")):
            return self._kind((), os.path.expanduser(name))
        folder = folder_of(self._rows.file(number)) if self._root is None else self._root
        local = is_local(folder)
        if local is None:
            return reference(inside(folder, name), self._access)
        return self._kind((local, "") if local and self._root is None else (local,), name)


class _Absent(Nearby):
    """A file whose absence is a failure."""

    __slots__ = ()

    def missing(self, path: str) -> DataError:
        places = " and ".join(self.places)
        message = f"no such file ({places}): fetch it, say by root= where paths start, or correct the row"
        return DataError("no_audio", message, url=path)


class _Unwanted(_Absent):
    """A file whose absence is none: the table is of more than is wanted here."""

    __slots__ = ()

    def missing(self, path: str) -> DataError:
        return LeftOut("not_kept", super().missing(path).message, url=path)
