"""The content of a file, read at any position: in memory, on disk, or from a copy of a remote or compressed file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from typing import BinaryIO

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import redact
from uio_pipes.io.access import Access
from uio_pipes.io.compression import Decompressed, detect
from uio_pipes.io.opening import is_local, open_binary, version

WHAT = "the table"  # for messages
CHUNK = 1 << 22  # bytes read at a time
IN_MEMORY = 1 << 23  # bytes: longer files stay on disk


class Content:
    """The content of the file ``name``: ``data`` in memory, or a ``file`` that holds it. ``what``: the word for it."""

    def __init__(self, name: str, what: str, data: bytes | mmap, file: BinaryIO | None = None) -> None:
        self.name, self.what, self._data, self._file = name, what, data, file
        self._stat = self._status()

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at its end. Raises: ListError if the file changed since it was opened."""
        if self._file is None:
            return self._data[offset : offset + size]
        if self._status() != self._stat:
            rule = f"{self.what} {redact(self.name)} changed while it was in use"
            raise ListError(f"{rule}: write changes to a new file, under another name")
        return os.pread(self._file.fileno(), size, offset)

    def _status(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


def opened(name: str, what: str, access: Access | None = None) -> Content:
    """Return a file's content, decompressed, in memory if it has at most :data:`IN_MEMORY` bytes. Raises: ListError."""
    try:
        file = open_binary(name, access)
        form = detect(file.peek(512)[:512], name)  # type: ignore[attr-defined]
        if form is None and is_local(name) is not None and os.fstat(file.fileno()).st_size > IN_MEMORY:
            return Content(name, what, b"", file)
        with file:
            pieces = Decompressed(file.read, form, name) if form else iter(lambda: file.read(CHUNK), b"")
            return Content(name, what, kept(pieces))
    except (DataError, OSError) as error:
        message = error.message if isinstance(error, DataError) else error.strerror
        raise ListError(f"cannot read {what} {redact(name)}: {message}") from error


def kept(pieces: Iterator[bytes]) -> bytes | mmap:
    """Return all ``pieces`` in memory, or if they are more than :data:`IN_MEMORY` bytes, as a temporary file without a
    name: it is mapped, since nobody can shorten it."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) > IN_MEMORY:
            with tempfile.TemporaryFile() as copy:
                copy.write(held)
                copy.writelines(pieces)
                copy.flush()
                return mmap(copy.fileno(), 0, access=ACCESS_READ)
    return bytes(held)


def unclear_end(name: str) -> DataError:
    """Return the note on a text whose last line has no line end, while all others have one."""
    message = "the last line has no line end, as if the file had been cut off within it: compare it with the original"
    return DataError("unclear_end", message, url=name)


Version = tuple[str, int, str]  # the absolute path, and the version that io/opening.py knows


def version_of(name: str) -> Version | None:
    """Return what shows that a local file has changed; None for other files."""
    path = is_local(name)
    with suppress(DataError):  # opening it says why
        return None if path is None else (os.path.abspath(path), *version(path))
    return None
