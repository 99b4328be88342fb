"""Files at any path or URL, read by position: local, remote or cached."""

from __future__ import annotations

from collections.abc import Callable

from uio_pipes.base.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.io.cache import Cache
from uio_pipes.io.local import LocalFile, RandomFile
from uio_pipes.io.ranged import RemoteFile

__all__ = ["CachedFile", "RemoteFile", "is_local", "open_file"]

SMALL = 64 << 20  # files up to here are cached whole when any part of them is read


def is_local(url: str) -> str | None:
    """Return the path if ``url`` is a plain path or a ``file://`` URL, otherwise None."""
    if url.startswith("file://"):
        return url.removeprefix("file://")
    return None if "://" in url else url


def open_file(url: str, access: Access | None = None) -> RandomFile:
    """Return the file at a path or URL, to be read by position. Nothing is opened yet."""
    path = is_local(url)
    if path is not None:
        return LocalFile(path)
    remote = RemoteFile(url, access)
    return CachedFile(remote) if remote.access.cache else remote


class CachedFile:
    """A remote file, read from its copy in the cache as long as that exists."""

    def __init__(self, remote: RemoteFile) -> None:
        self.remote, self.path = remote, remote.path
        self._local: LocalFile | None = None
        self._tried = False

    @property
    def cache(self) -> Cache:
        return Cache(self.remote.access.cache or "", self.remote.access.cache_size)

    @property
    def size(self) -> int:
        return self.remote.size

    @property
    def stamp(self) -> str:
        """The stamp of the remote file, since a state must not depend on the cache."""
        return self.remote.stamp

    def is_there(self) -> bool:
        """Return whether there is a copy of the file as it is now on the server."""
        if self._local is None:
            found = self.cache.find(self.path, self.remote.identity)
            self._local = LocalFile(found) if found is not None else None
        return self._local is not None

    @property
    def far(self) -> bool:
        """Whether no copy has been found, so that it is worth while to read ahead."""
        return self._local is None

    def read(self, offset: int, size: int) -> bytes:
        return self._by(lambda file: file.read(offset, size))

    def read_upto(self, offset: int, size: int) -> bytes:
        return self._by(lambda file: file.read_upto(offset, size))

    def _by(self, read: Callable[[RandomFile], bytes]) -> bytes:
        if not self._tried:
            self._tried = True
            if not self.is_there() and self.size <= SMALL:
                self._fetch()
        if self._local is not None:
            try:
                return read(self._local)
            except DataError:
                self._local = None  # the copy was removed to make room
        return read(self.remote)

    def _fetch(self) -> None:
        if (filling := self.cache.begin(self.path, self.remote.identity)) is None:
            return
        try:
            filling.write(0, self.remote.fetch(0, self.size))
        finally:
            filling.discard()
        self.is_there()
