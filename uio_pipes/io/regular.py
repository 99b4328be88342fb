"""Opening files, and nothing else: a FIFO would keep its reader waiting for ever, a device would never end."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from uio_pipes.base.errors import DataError

__all__ = ["open_regular", "os_failure", "regular"]

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: str | os.PathLike[str], url: str = "") -> BinaryIO:
    """As ``open(path, "rb")``, for a file; errors name it as ``url``, if that is given.

    Raises: DataError ``missing_file`` or ``unreadable_file``.
    """
    return open(regular(path, url), "rb")


def regular(path: str | os.PathLike[str], url: str = "") -> int:
    """The descriptor of a file, opened for reading without waiting. Raises: DataError as ``open_regular``.

    What it is is asked of the descriptor: something else may have been put in its place meanwhile.
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
    except BlockingIOError:  # another process has a lease on it, and gives it up for one who waits
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise
        return os.open(path, flags)


def _kind(path: str, url: str) -> DataError | None:
    """The error for what cannot even be opened because it is no file: a socket."""
    try:
        return _not_regular(os.stat(path).st_mode, url)
    except OSError:
        return None


def _not_regular(mode: int, url: str) -> DataError | None:
    if stat.S_ISREG(mode) or url == os.devnull:  # which ends at once: many write it for an empty file
        return None
    kind = next((name for fits, name in _KINDS if fits(mode)), "no file")
    return DataError("unreadable_file", f"it is {kind}, where a file is needed: correct the list, or copy it", url=url)


def os_failure(error: OSError, url: str) -> DataError:
    """The ``DataError`` for an error of the operating system (or of fsspec, which raises the same classes)."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        message = "no such file: correct the list (relative paths start at the working directory) or fetch the file"
        return DataError("missing_file", message, url=url)
    if isinstance(error, PermissionError):
        message = "permission denied: make the file and its folders readable for this user, or check the credentials"
        return DataError("unreadable_file", message, url=url)
    return DataError("unreadable_file", f"reading failed ({error}): check the disk or the connection", url=url)
