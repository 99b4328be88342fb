"""The kind of the lines of an scp: audio or features, and pipes only if they are allowed."""

from __future__ import annotations

import os

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import suffix_of
from uio_pipes.formats.kaldi.ark import holds_features, parse_pointer
from uio_pipes.formats.kaldi.lines import KaldiLines
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES
from uio_pipes.io.access import Access
from uio_pipes.io.command import parse_command
from uio_pipes.io.opening import is_local, open_file

LOOKED_AT = 8  # lines, to distinguish features from audio


def check_pipes(scp: KaldiLines, allowed: bool) -> None:
    """Refuse pipes that are not allowed, or that need a shell. Raises: ListError."""
    piped = scp.ends_with(b"|")
    if not len(piped):
        return
    first = int(piped[0])
    if not allowed:
        raise ListError(
            f"{scp.place(first)} is a pipe, a command to be run ({scp.value(first)[:80]!r}; {len(piped)} "
            "lines in all): if you trust the file, allow it with from_kaldi(…, allow_pipes=True), or --allow-pipes of "
            "a command"
        )
    try:
        parse_command(scp.value(first))
    except DataError as error:
        raise ListError(f"{scp.place(first)}: {error.message}") from error


def points_at_features(scp: KaldiLines, access: Access) -> bool:
    """Return whether the scp points at features, by the first of its objects that can be read. Raises: ListError."""
    trouble: DataError | None = None
    for number in range(min(LOOKED_AT, len(scp))):
        try:
            value = scp.value(number)
            pointer = parse_pointer(value)
            if value.endswith("|") or (pointer.offset is None and suffix_of(pointer.path) in AUDIO_SUFFIXES):
                return False
            return holds_features(open_file(pointer.path, access), pointer.offset or 0)
        except DataError as error:
            trouble = trouble or error
    assert trouble is not None
    raise ListError(
        f"none of the first lines of {scp.name} can be read, from {scp.place(0)} on: {trouble}{_hint(trouble.url)}"
    )


def _hint(url: str) -> str:
    near = is_local(url) is not None and not os.path.isabs(url)
    return f" (relative paths start at the working directory, as in Kaldi: {os.getcwd()})" if near else ""
