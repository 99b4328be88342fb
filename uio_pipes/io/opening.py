"""Opening a path or URL, local, remote or cached, to be read from beginning to end or by position."""

from __future__ import annotations

import io
import os
from typing import BinaryIO, cast

from uio_pipes.base.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.io.local import RandomFile
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead
from uio_pipes.io.regular import open_regular
from uio_pipes.io.remote import CachedFile, is_local, open_file

__all__ = ["file_object", "is_local", "known_size", "open_ahead", "open_binary", "open_file", "stamp"]


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
