"""The footers of Parquet files: of very many files, what they tell is kept from one start to the next.

Of 1,000 files and more on this machine, the first process that opens them writes one file, while others wait for it. A
file whose size, time and inode are still the same is not opened again before one of its rows is asked for. The rest is
opened as ever, and kept then. It lies in the folder of ``cache=``, or else in ``uio_pipes`` of the user's cache.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError
from uio_pipes.formats.tar.index import framed, unframed
from uio_pipes.io.access import Access
from uio_pipes.io.files import kept_path, locked, read_bytes, write_bytes
from uio_pipes.io.opening import is_local
from uio_pipes.sources.parquet.files import FooterForm, ParquetFile, local_identity, opened

logger = logging.getLogger("uio_pipes")
MANY = 1_000  # files from which on something is kept
FORMS = 64  # most writers whose files are kept
MAGIC, VERSION = b"UIOFOOTS", 1
FACTS = np.dtype(  # of each file
    [
        ("size", "<i8"),
        ("mtime_ns", "<i8"),
        ("inode", "<u8"),
        ("footer", "<i8"),  # its length
        ("digest", "V16"),
        ("form", "<i8"),
        ("groups", "<i8"),  # row groups
    ]
)
_Facts = npt.NDArray[np.void]


def open_files(urls: Sequence[str], access: Access) -> list[ParquetFile]:
    """Open Parquet files, or take what is known of them. Raises: ListError naming the file."""
    if len(urls) < MANY or any(is_local(url) is None for url in urls):
        return opened(urls, access)
    path = kept_path(urls, access.cache, ".footers")
    files = _read(path, urls, access)
    if all(files):
        return files  # type: ignore[return-value]
    try:
        with locked(path.with_suffix(".lock")):
            return _made(path, urls, access)
    except OSError as error:
        logger.info("nothing is kept of the Parquet files (%s)", error)
        return opened(urls, access)


def _made(path: Path, urls: Sequence[str], access: Access) -> list[ParquetFile]:
    """Open the files of which nothing is known, and write down what is known of all. Raises: OSError."""
    files = _read(path, urls, access)  # another process may have written it meanwhile
    missing = [number for number, file in enumerate(files) if file is None]
    if missing:
        for number, file in zip(missing, opened([urls[number] for number in missing], access), strict=True):
            files[number] = file
        _write(path, files)  # type: ignore[arg-type]
    return files  # type: ignore[return-value]


def _write(path: Path, files: list[ParquetFile]) -> None:
    forms = {id(file.form.schema): file.form for file in files}
    if len(forms) > FORMS:
        return
    numbers, facts = {schema: number for number, schema in enumerate(forms)}, np.empty(len(files), FACTS)
    for at, file in enumerate(files):
        identity, length, digest, rows = file.facts
        assert identity is not None
        facts[at] = (*identity, length, digest, numbers[id(file.form.schema)], len(rows))
    parts = list[bytes]()
    for form in forms.values():
        parts += form.before, form.after, form.schema.serialize().to_pybytes()
    counts = np.array([count for file in files for count in file.rows], "<i8")
    header = {"files": len(files), "groups": len(counts), "forms": list(map(len, parts))}
    write_bytes(path, framed(MAGIC, VERSION, header, b"".join([facts.tobytes(), counts.tobytes(), *parts])))


def _read(path: Path, urls: Sequence[str], access: Access) -> list[ParquetFile | None]:
    """Return the files as they are known; None for those that are others by now, or of which nothing is known."""
    try:
        facts, rows, forms = _loads(read_bytes(path), len(urls))
    except (OSError, ValueError, KeyError, TypeError):
        return [None] * len(urls)
    files, begin = list[ParquetFile | None](), 0
    for url, (*identity, length, digest, form, groups) in zip(urls, facts.tolist(), strict=True):
        known = tuple(identity) == _now(url)
        own = tuple(identity), length, bytes(digest), rows[begin : begin + groups]
        files.append(ParquetFile.known(url, access, forms[form], own) if known else None)
        begin += groups
    return files


def _now(url: str) -> Any:
    try:
        return local_identity(url)
    except DataError:  # opening it says what is wrong
        return None


def _loads(data: bytes, count: int) -> tuple[_Facts, list[int], list[FooterForm]]:
    """Return what ``_write`` had. Raises: ValueError, KeyError, TypeError."""
    import pyarrow as pa

    header, at = unframed(data, MAGIC, VERSION)
    if header["files"] != count:
        raise ValueError("it is of other files")
    facts = np.frombuffer(data, FACTS, count, at)
    rows = np.frombuffer(data, "<i8", header["groups"], at + facts.nbytes)
    at += facts.nbytes + rows.nbytes
    parts = list[bytes]()
    for size in header["forms"]:
        parts.append(data[at : at + size])
        at += size
    schemas = [pa.ipc.read_schema(pa.py_buffer(part)) for part in parts[2::3]]
    return facts, rows.tolist(), list(map(FooterForm, parts[::3], parts[1::3], schemas))
