"""A text file, plain or compressed, local or remote, opened to be read by position."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.io.access import Access
from uio_pipes.io.compression import Decompressed, detect
from uio_pipes.io.opening import is_local, open_binary

CHUNK = 1 << 22  # bytes read at a time


def opened(name: str, what: str, in_memory: int, access: Access | None = None) -> tuple[bytes, BinaryIO | None]:
    """Return the content, decompressed, if it has at most ``in_memory`` bytes, or else a file that holds it.

    ``what``: what it is, for messages. Raises: ListError.
    """
    try:
        file = open_binary(name, access)
        form = detect(file.peek(512)[:512], name)  # type: ignore[attr-defined]
        if form is None and is_local(name) is not None and os.fstat(file.fileno()).st_size > in_memory:
            return b"", file
        with file:
            pieces = Decompressed(file.read, form, name) if form else iter(lambda: file.read(CHUNK), b"")
            return _kept(pieces, in_memory)
    except (DataError, OSError) as error:
        message = error.message if isinstance(error, DataError) else error.strerror
        raise ListError(f"cannot read {what} {name}: {message}") from error


def _kept(pieces: Iterator[bytes], in_memory: int) -> tuple[bytes, BinaryIO | None]:
    """Return all ``pieces`` in memory, or if they are more, in a temporary file without a name."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) > in_memory:
            copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (as long as it is in use)
            copy.write(held)
            copy.writelines(pieces)
            return b"", copy
    return bytes(held), None
