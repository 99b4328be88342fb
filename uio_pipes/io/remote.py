"""Files that are not on this machine, read by position."""

from __future__ import annotations

import fsspec

from uio_pipes.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.io.local import LocalFile, RandomFile
from uio_pipes.io.opening import is_local, stamp

__all__ = ["RemoteFile", "open_file"]


class RemoteFile:
    """A file that fsspec reaches, read by ranges. Picklable; safe to use from threads and after a fork."""

    __slots__ = ("_access", "_size", "path")

    def __init__(self, url: str, access: Access) -> None:
        self.path = url
        self._access = access
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        if self._size is None:
            filesystem, inner = fsspec.core.url_to_fs(self.path, **self._access.storage_options)
            self._size = int(filesystem.size(inner))
        return self._size

    @property
    def stamp(self) -> str:
        """What a saved state remembers of the file: ``etag:…`` or ``size:N``."""
        return stamp(self.path, self._access.storage_options)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes at ``offset``; ``DataError("truncated")`` if the file ends before."""
        data = self.read_upto(offset, size)
        if len(data) < size:
            message = f"the file ends after {len(data)} of {size} bytes: copy it again"
            raise DataError("truncated", message, url=self.path, offset=offset)
        return data

    def read_upto(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``, fewer only where the file ends."""
        filesystem, inner = fsspec.core.url_to_fs(self.path, **self._access.storage_options)
        data: bytes = filesystem.cat_file(inner, start=offset, end=offset + size)
        return data


def open_file(url: str, access: Access | None = None) -> RandomFile:
    """The file at a path or URL, to be read by position. Nothing is opened yet."""
    path = is_local(url)
    return LocalFile(path) if path is not None else RemoteFile(url, access or Access())
