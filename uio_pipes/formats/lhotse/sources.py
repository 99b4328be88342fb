"""The audio files that a recording's manifest names: by path, URL, command, or as bytes in the manifest itself."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.formats.lhotse.transforms import check_transforms
from uio_pipes.io.access import Access
from uio_pipes.io.command import Piped
from uio_pipes.io.local import Ref
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file

RecordingSource = str | Ref | bytes
_KINDS = frozenset(["file", "url", "memory", "command"])


def check_readable(manifest: Mapping[str, Any], allow_pipes: bool) -> None:
    """Raises: DataError ``unsupported_cut``, ``unsupported_transform``, ``pipe_not_allowed`` or ``bad_cut``."""
    for one in manifest["sources"]:
        kind, source = one["type"], one["source"]
        if kind == "shar":
            message = "the audio is in a Shar, and this is only its manifest: read the folder by from_lhotse_shar"
            raise DataError("unsupported_cut", message)
        if kind == "command" and not allow_pipes:
            message = f"the recording is the output of a command ({source:.80}): if you trust it, set allow_pipes=True"
            raise DataError("pipe_not_allowed", message)
        if kind not in _KINDS:
            raise DataError("unsupported_cut", f"recordings of the type {kind!r} are not known: write files by Lhotse")
        if not isinstance(source, str):
            raise DataError("bad_cut", f"the recording's source is {source!r:.80}, no path or URL: write it again")
    check_transforms(manifest)


def opened(kind: str, source: str, access: Access) -> RecordingSource:
    """Return what a source names: a path, a reference to a remote file, or bytes. Raises: DataError."""
    if kind == "memory":
        return from_base64(source)
    if kind == "command":
        return Piped(source, shared=True).read()
    path = is_local(source)
    return path if path is not None else Whole(open_file(source, access))


def from_base64(text: str) -> bytes:
    """Return the bytes that stand in a line of JSON. Raises: DataError ``bad_cut``."""
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        message = f"what is kept in memory must stand in the manifest as base64 ({error}): write files instead"
        raise DataError("bad_cut", message) from error
