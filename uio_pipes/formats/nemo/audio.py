"""The audio that a row of a manifest names as a file: absolute, relative or remote."""

from __future__ import annotations

import os
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import folder_of, inside
from uio_pipes.io.access import Access
from uio_pipes.io.local import LocalFile, RandomFile, Ref
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file


def audio_file(path: str, manifest: str, access: Access) -> Any:
    """Return a path, or a reference for what is relative or remote. Nothing is opened or looked for."""
    if "://" in path:
        local = is_local(path)
        return local if local is not None else Whole(open_file(path, access))
    if path.startswith("~"):
        return os.path.expanduser(path)
    if path.startswith("/"):
        return path
    folder = is_local(manifest)
    if folder is None:
        return Whole(open_file(inside(folder_of(manifest), path), access))
    return Nearby(os.path.dirname(folder), path)


class _Named(LocalFile):
    """A file whose error says how rows name files."""

    __slots__ = ()

    def _opened(self) -> Any:
        try:
            return super()._opened()
        except DataError as error:
            if error.reason != "missing_file":
                raise
            message = (
                "no such file, neither from the manifest's folder nor from the working directory: correct the row, "
                "fetch the file or, if it is in a tar, give tarred_audio=…"
            )
            raise DataError("missing_file", message, url=self.path) from error


class Nearby(Ref):
    """A file that is named relative to ``folder``, or else to the working directory: looked for when it is read."""

    __slots__ = ("_file", "folder", "path")

    def __init__(self, folder: str, path: str) -> None:
        self.folder, self.path = folder, path
        self.offset, self.head, self.info, self.crc = 0, b"", None, None
        self._file: LocalFile | None = None

    @property
    def file(self) -> RandomFile:  # type: ignore[override]
        if self._file is None:
            beside = os.path.join(self.folder, self.path)
            there = os.path.exists(beside) or not os.path.exists(self.path)
            self._file = _Named(beside if there else self.path)
        return self._file

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.file.size

    def __repr__(self) -> str:
        return f"Nearby({self.folder!r}, {self.path!r})"
