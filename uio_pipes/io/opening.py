"""Opening a path or URL, local, remote or cached, to be read from beginning to end or by position."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import BinaryIO, cast

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import folder_of, inside
from uio_pipes.io.access import Access
from uio_pipes.io.cache import Cache
from uio_pipes.io.local import LocalFile, RandomFile, open_regular
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead

SMALL = 64 << 20  # files up to here are cached whole when any part of them is read


def is_local(url: str) -> str | None:
    """Return the path if ``url`` is a plain path or a ``file://`` URL, otherwise None."""
    if url.startswith("file://"):
        return url.removeprefix("file://")
    return None if "://" in url else url


def beside(path: str, listed: str) -> str:
    """Return where the file is that the list ``listed`` names by ``path``.

    A relative path starts at the list's folder or, if there is no such file, at the working directory, or else where
    the path names the list's own folder from, as ``data/shards/0.tar`` does in ``/any/data/shards.list``. If it is
    nowhere, the path is returned as it is; of a list at a URL, the URL beside it.
    """
    if not path or path[0] in "/~{" or "://" in path or not listed:
        return path
    folder = folder_of(listed)
    if is_local(folder) is None:
        return path if os.path.exists(path) else inside(folder, path)
    if os.path.exists(found := os.path.join(folder, path)):
        return found
    if folder and os.path.exists(path):
        return path
    above = os.path.abspath(folder).split("/")
    named = [at for at, name in enumerate(above) if name == path.partition("/")[0]]
    places = (os.path.join("/", *above[:at], path) for at in reversed(named))
    return next(filter(os.path.exists, places), path)


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


__all__ = [
    "CachedFile",
    "RemoteFile",
    "beside",
    "file_object",
    "is_local",
    "known_size",
    "open_ahead",
    "open_binary",
    "open_file",
    "stamp",
]


def open_binary(url: str, access: Access | None = None) -> BinaryIO:
    """Open a file to be read from beginning to end; a remote file is read ahead.

    Raises ``DataError``: ``missing_file``, ``unreadable_file`` or ``unopenable`` (protocol unknown or not installed).
    """
    path = is_local(url)
    if path is not None:
        return open_regular(path, url)
    source = open_ahead(url, access)
    source.read_upto(0, 1)  # so that a file that cannot be read fails here
    return file_object(source)


def file_object(source: ReadAhead | RandomFile) -> BinaryIO:
    """Return a file object that reads from ``source``."""
    return cast(BinaryIO, io.BufferedReader(_Forward(source), 1 << 16))


def stamp(url: str, access: Access | None = None) -> str:
    """Return the text by which a saved state recognizes a file: ``etag:…``, else ``size:N``, or ``""`` if unknown.

    Raises ``DataError`` as ``open_binary``.
    """
    return open_file(url, access).stamp


def known_size(url: str, far: ReadAhead | CachedFile | None) -> int | None:
    """Return the size of a file in bytes, None if it is not known. ``far``: what reads it, if it is remote."""
    try:
        if far is not None:
            return (far.file if isinstance(far, ReadAhead) else far.remote).identity.size
        return os.stat(is_local(url) or url).st_size
    except (DataError, OSError):
        return None


def open_ahead(url: str, access: Access | None = None, offset: int = 0) -> ReadAhead | CachedFile:
    """Open a remote file to be read on from ``offset``: its cached copy, or read ahead, which begins at once."""
    remote = RemoteFile(url, access)
    if remote.access.cache is None:
        return ReadAhead(remote, offset)
    cached = CachedFile(remote)
    if cached.is_there():
        return cached
    return ReadAhead(remote, offset, cached.cache.begin(url, remote.identity) if offset == 0 else None)


class _Forward(io.RawIOBase):
    """The raw file object of ``file_object``."""

    def __init__(self, source: ReadAhead | RandomFile) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read_upto(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if isinstance(self._source, ReadAhead):
            self._source.close()
        super().close()
