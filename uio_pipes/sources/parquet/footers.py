"""The footers of Parquet files, which are cached between runs if there are very many files.

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
from uio_pipes.formats.tar.index import framed, read_framed
from uio_pipes.io.access import Access
from uio_pipes.io.files import kept_path, made_once, write_bytes
from uio_pipes.io.opening import is_local
from uio_pipes.sources.parquet.files import FooterForm, ParquetFile, local_identity, opened

logger = logging.getLogger("uio_pipes")
MANY = 1_000  # files from which on something is kept
FORMS = 64  # most writers whose files are kept
MAGIC, VERSION = b"UIOFOOTS", 2
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


def open_files(urls: Sequence[str], access: Access) -> list[ParquetFile]:
    """Open Parquet files, using cached footers where they exist. Raises: ListError naming the file."""
    if len(urls) < MANY or any(is_local(url) is None for url in urls):
        return opened(urls, access)
    path, known = kept_path(urls, access.cache, ".footers"), list[ParquetFile | None]()

    def read() -> list[ParquetFile] | None:
        known[:] = _read(path, urls, access)
        return known if all(known) else None  # type: ignore[return-value]

    def make() -> list[ParquetFile]:
        """Open the files of which nothing is known, and write down what is known of all."""
        anew = iter(opened([url for url, file in zip(urls, known, strict=True) if file is None], access))
        files = [file or next(anew) for file in known]
        _write(path, files)
        return files

    try:
        return made_once(path, read, make)
    except OSError as error:
        logger.info("the footers of Parquet files cannot be cached (%s)", error)
        return opened(urls, access)


def _write(path: Path, files: list[ParquetFile]) -> None:
    forms = {id(file.form.schema): file.form for file in files}
    if len(forms) > FORMS:
        return
    numbers, facts = {schema: number for number, schema in enumerate(forms)}, np.empty(len(files), FACTS)
    for at, file in enumerate(files):
        identity, length, digest, rows = file.facts
        assert identity is not None
        facts[at] = (*identity, length, digest, numbers[id(file.form.schema)], len(rows))
    columns: dict[str, Any] = {"facts": facts.tobytes()}
    columns["rows"] = np.array([count for file in files for count in file.rows], "<i8")
    for number, form in enumerate(forms.values()):
        schema = form.schema.serialize().to_pybytes()
        columns |= {f"before {number}": form.before, f"after {number}": form.after, f"schema {number}": schema}
    write_bytes(path, framed(MAGIC, VERSION, {"forms": len(forms)}, columns))


def _read(path: Path, urls: Sequence[str], access: Access) -> list[ParquetFile | None]:
    """Return the files as they are known; None for those that are others by now, or of which nothing is known."""
    try:
        facts, rows, forms = _loads(path, len(urls))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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


def _loads(path: Path, count: int) -> tuple[npt.NDArray[np.void], list[int], list[FooterForm]]:
    """Return what ``_write`` had. Raises: OSError, ValueError, KeyError, TypeError, AttributeError."""
    import pyarrow as pa

    header, columns = read_framed(path, MAGIC, VERSION)
    facts, forms = np.frombuffer(columns["facts"], FACTS), list[FooterForm]()
    if len(facts) != count:
        raise ValueError("it belongs to other files")
    for number in range(header["forms"]):
        before, after, schema = (columns[f"{part} {number}"].tobytes() for part in ("before", "after", "schema"))
        forms.append(FooterForm(before, after, pa.ipc.read_schema(pa.py_buffer(schema))))
    return facts, columns["rows"].tolist(), forms
