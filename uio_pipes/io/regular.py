"""Opening regular files only: a FIFO would keep its reader waiting for ever, a device would never end."""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import suffix_of

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: str | os.PathLike[str], url: str = "") -> BinaryIO:
    """Open a regular file as ``open(path, "rb")`` does. Errors call it ``url``, if that is given.

    Raises: DataError ``missing_file`` or ``unreadable_file``.
    """
    return open(regular(path, url), "rb")


def open_data(data: bytes | str | os.PathLike[str]) -> BinaryIO:
    """Open the bytes of a file, or a local file as ``open_regular`` does."""
    return io.BytesIO(data) if isinstance(data, bytes) else open_regular(data)


def regular(path: str | os.PathLike[str], url: str = "") -> int:
    """Open a regular file without waiting, and return its descriptor. Raises: DataError as ``open_regular``.

    The kind is that of the descriptor, not of the path, which may lead elsewhere meanwhile.
    """
    path = os.fspath(path)
    url = url or path
    try:
        number = _opened(path)
    except OSError as error:
        raise _kind(path, url) or os_failure(error, url) from error
    except ValueError as error:
        message = "no such file: its name holds a NUL byte; correct the list"
        raise DataError("missing_file", message, url=url) from error
    if (found := _not_regular(os.fstat(number).st_mode, url)) is not None:
        os.close(number)
        raise found
    os.set_blocking(number, True)
    return number


def _opened(path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:  # another process holds a lease, which it gives up if we wait
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise
        return os.open(path, flags)


def _kind(path: str, url: str) -> DataError | None:
    """Return the error for what cannot even be opened since it is not a file (a socket), None for a file."""
    try:
        return _not_regular(os.stat(path).st_mode, url)
    except OSError:
        return None


def _not_regular(mode: int, url: str) -> DataError | None:
    if stat.S_ISREG(mode) or url == os.devnull:  # /dev/null ends at once: many use it as an empty file
        return None
    kind = next((name for fits, name in _KINDS if fits(mode)), "not a file")
    return DataError("unreadable_file", f"it is {kind}, where a file is needed: correct the list, or copy it", url=url)


def os_failure(error: OSError, url: str) -> DataError:
    """Return the ``DataError`` for an error of the operating system, or of fsspec, which raises the same classes."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if len(words := url.split()) > 1 and suffix_of(url) and len(set(map(suffix_of, words))) == 1:
            message = (
                f"no such file. The line names {len(words)} files, as ESPnet's wav.scp of several channels does, and "
                f"of each line one is read: join them first (sox -M {' '.join(words)} joined.wav), or name the channel "
                "that is wanted"
            )
            return DataError("missing_file", message, url=url)
        near = "" if "://" in url or os.path.isabs(url) else " (relative paths start at the working directory)"
        return DataError("missing_file", f"no such file: correct the list{near} or fetch the file", url=url)
    if isinstance(error, PermissionError):
        message = "permission denied: make the file and its folders readable for this user, or check the credentials"
        return DataError("unreadable_file", message, url=url)
    return DataError("unreadable_file", f"reading failed ({error}): check the disk or the connection", url=url)
