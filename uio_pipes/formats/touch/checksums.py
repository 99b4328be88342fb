"""The CRC32 of every record of ``NAME.bin`` of a TouchDataset, in a small file beside it or under a folder.

They depend on the content alone: a copy of the folder can be compared with them. They belong to one ``NAME.idx``; its
hash, kept with them, shows whether they still fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.redact import redact
from uio_pipes.base.urls import folder_of
from uio_pipes.formats.sidecar_frame import framed, unframed
from uio_pipes.formats.tar.index_files import sidecar_path
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_binary

MAGIC, VERSION = b"UIOCRC32", 1


@dataclass(frozen=True)
class Checksums:
    """The CRC32s of the records, by number. ``digest``: of their index; ``stamp``: of ``.bin`` when they were made."""

    digest: str
    stamp: str
    crcs: npt.NDArray[np.uint32]


def dumps(digest: str, stamp: str, records: Iterable[memoryview]) -> bytes:
    """Return the bytes of the file, from all records in their order."""
    crcs = np.fromiter(map(crc32, records), "<u4")
    return framed(MAGIC, VERSION, {"digest": digest, "stamp": stamp, "records": len(crcs)}, crcs.tobytes())


def read_checksums(url: str, access: Access | None = None, folder: str | None = None) -> Checksums:
    """Read the checksums of ``NAME.bin`` at ``url``. Raises: ListError if there are none, or they are damaged."""
    name, remedy = redact(sidecar_path(url, folder)), remedy_for(url, folder)
    try:
        with open_binary(sidecar_path(url, folder), access) as file:
            data = file.read()
    except DataError as error:
        if error.reason == "missing_file":
            raise ListError(f"{redact(url)} has no checksums ({name}): make them with {remedy}") from error
        raise ListError(f"cannot read the checksums {name}: {error.message}") from error
    try:
        header, at = unframed(data, MAGIC, VERSION)
        digest, stamp, count = header["digest"], header["stamp"], header["records"]
        if not isinstance(digest, str) or not isinstance(stamp, str) or len(data) != at + 4 * count:
            raise ValueError("its content is not what its header says")
        return Checksums(digest, stamp, np.frombuffer(data, "<u4", count, at).copy())
    except (ValueError, KeyError, TypeError) as error:
        raise ListError(
            f"the checksums {name} are damaged or no checksums ({error}): make them anew, {remedy}"
        ) from error


def remedy_for(url: str, folder: str | None) -> str:
    """Return the command that makes the checksums of ``NAME.bin`` at ``url``."""
    return f"uio index {redact(folder_of(url) or '.')}" + (f" --into {folder}" if folder else "")


def bad_crc(url: str, offset: int, member: str = "") -> DataError:
    """Return the error for bytes that differ from those that were indexed."""
    message = (
        "the bytes are not those that were indexed (their CRC32 differs): fetch the file again, or if it was made "
        "anew, make its checksums anew (uio index)"
    )
    return DataError("bad_crc", message, url=url, member=member, offset=offset)
