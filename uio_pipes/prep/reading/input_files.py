"""Lists and tables as they are read for preparation: missing ones with a hint at the name that was probably meant."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.kaldi.lines import KaldiLines
from uio_pipes.io.opening import open_binary
from uio_pipes.prep.common.suggestions import meant, near


def read_lines(url: str) -> Iterator[bytes]:
    """Yield the lines of a local or remote file. Raises: ListError with a suggestion."""
    try:
        with open_binary(url) as file:
            yield from file
    except DataError as error:
        raise _unreadable(url, error) from error
    except OSError as error:
        raise ListError(f"cannot read {url}: {error}") from error


def read_table(url: str, least: int, most: int | None = None) -> KaldiLines:
    """Read one of Kaldi's tables; ``least``, ``most``: words after the key. Raises: ListError."""
    return read_tables([url], least, most)


def read_tables(urls: Sequence[str], least: int, most: int | None = None) -> KaldiLines:
    """As :func:`read_table`, for a table in several files."""
    return KaldiLines.joined([(url, b"".join(read_lines(url))) for url in urls], least, most)


def exists(url: str) -> bool:
    """Return whether there is such a file. Raises: ListError if that cannot be found out."""
    try:
        open_binary(url).close()
    except DataError as error:
        if error.reason == "missing_file":
            return False
        raise _unreadable(url, error) from error
    return True


def _unreadable(url: str, error: DataError) -> ListError:
    if error.reason == "missing_file":
        folder = os.path.isdir(str(PurePosixPath(url).parent)) and PurePosixPath(url).name in ("text", "wav.scp")
        hint = " (a Kaldi folder has wav.scp and text)" if folder else ""
        return ListError(f"there is no {url}{near(url)}{hint}")
    if os.path.isdir(url):
        return ListError(f"{url} is a folder, where a list is wanted: uio inspect {url} shows what is in it")
    return ListError(f"cannot read {url}: {error.message}{meant(url)}")
