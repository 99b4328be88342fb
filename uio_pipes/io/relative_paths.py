"""Audio files that a table names: beside the table, in a folder given for them, or in the working directory."""

from __future__ import annotations

import os
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import folder_of, inside
from uio_pipes.io.access import Access
from uio_pipes.io.local import LocalFile
from uio_pipes.io.opened_ahead import LocalPath, begun, settled
from uio_pipes.io.opening import is_local, reference
from uio_pipes.io.references import RandomFile, Ref


class RelativeRef(Ref):
    """A file that is named relative to the first of ``folders`` that has it: looked for when it is read.

    Subclasses say by :meth:`missing` what it means that none has it.
    """

    __slots__ = ("_file", "folders", "local_paths", "path")
    folders: tuple[str, ...]
    local_paths: list[LocalPath]  # the file, wherever it is

    def __init__(self, folders: tuple[str, ...], path: str) -> None:
        self.folders, self.path = folders, path
        self.offset, self.head, self.info, self.crc = 0, b"", None, None
        self._file: LocalFile | None = None
        first, *others = self.places
        self.local_paths = [LocalPath(first, others, first)]

    @property
    def places(self) -> list[str]:
        """All paths where the file may be."""
        return [os.path.join(folder, self.path) for folder in self.folders] or [self.path]

    @property
    def file(self) -> RandomFile:  # type: ignore[override]
        return self._found()

    @property
    def local(self) -> str:
        """The path where the file is. Raises: DataError if there is no such file."""
        if begun(self.local_paths[0])[1] < 0:
            self._found().size  # noqa: B018  a missing file has its own error
        path: str = settled(self.local_paths[0])
        return path

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.file.size

    def missing(self, path: str) -> DataError:
        """Return the error for a missing file."""
        raise NotImplementedError

    def _found(self) -> LocalFile:
        if self._file is None:
            self._file = _Named(str(settled(self.local_paths[0])), self)
        return self._file

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folders!r}, {self.path!r})"


class _Named(LocalFile):
    """A file whose error says how the table names files."""

    __slots__ = ("by",)

    def __init__(self, path: str, by: RelativeRef) -> None:
        super().__init__(path)
        self.by = by

    def __getstate__(self) -> Any:
        return super().__getstate__(), self.by

    def __setstate__(self, state: Any) -> None:
        key, self.by = state
        super().__setstate__(key)

    def _opened(self) -> Any:
        try:
            return super()._opened()
        except DataError as error:
            if error.reason != "missing_file":
                raise
            raise self.by.missing(self.path) from error


def relative_ref(path: str, table: str, access: Access, kind: type[RelativeRef]) -> str | Ref:
    """Return the file ``path`` that ``table`` names: relative to its folder or, if there is no such file, to the
    working directory. Nothing is opened or looked for. ``kind``: of what is local and relative."""
    if "://" in path:
        return reference(path, access)
    if path.startswith(("/", "~")):
        return LocalPath(os.path.expanduser(path))
    folder = is_local(table)
    if folder is None:
        return reference(inside(folder_of(table), path), access)
    return kind((os.path.dirname(folder), ""), path)
