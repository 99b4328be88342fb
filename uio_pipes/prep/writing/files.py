"""Files that are either complete or not there: written beside their place, then moved into it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of a disk that is full names ``path``: the system's own names nothing."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _FULL:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path to write to; becomes ``path`` when the block ends well, and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """A file that is complete or not there."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file, a line an item."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without their ends; blank ones left out."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def count_lines(path: Path) -> int:
    """How many lines a text file has."""
    with path.open("rb") as file:
        return sum(1 for _ in file)
