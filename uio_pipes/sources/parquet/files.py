"""Parquet files and their footers. Few are parsed: files of one writer say the same of their columns.

Format: https://parquet.apache.org/docs/file-format (the footer is the last thing in a file: its length, then ``PAR1``);
a footer is a struct in Thrift's compact protocol.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.memory import kept
from uio_pipes.base.urls import redact
from uio_pipes.io.access import Access
from uio_pipes.io.background import held
from uio_pipes.io.local import Positioned, opened_regular, os_failure
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.references import RandomFile

if TYPE_CHECKING:
    import pyarrow as pa

TAIL = 1 << 16  # bytes of the first read: most footers are shorter
_END = 8  # bytes: the footer's length and PAR1
_ONE_BY_ONE = 1  # rows of a batch where a page is damaged, so that all rows before it are saved
_AT_ONCE = 64  # footers that are fetched at the same time
_FIRST, _SLOW = 32, 3e-4  # of so many local files an average opening (s) shows whether their disk is worth threads


class FooterForm(NamedTuple):
    """What the footers of files by one writer have in common. This is their bytes before the number of rows and after
    the row groups, and their columns with Arrow types."""

    before: bytes
    after: bytes
    schema: Any

    @classmethod
    def of(cls, footer: bytes, schema: Any) -> FooterForm:
        """Return the form of a sound footer; of one that is written differently, one that no other footer has."""
        try:
            places = {number: (begin, end) for number, begin, end in _fields(footer, 0)}
            return cls(footer[: places[3][0]], footer[places[4][1] : -_END], schema)
        except (IndexError, KeyError, ValueError, RecursionError):
            return cls(footer, footer, schema)

    def fits(self, footer: bytes) -> bool:
        """Return whether another footer describes the same columns."""
        return footer.startswith(self.before) and footer.endswith(self.after, 0, -_END)

    def rows(self, footer: bytes) -> int | None:
        """Return the number of rows that a footer of this form tells of, if they are in one row group."""
        number, at = _varint(footer, len(self.before))
        one = footer[at : at + 2] == b"\x19\x1c"  # field 4: a list of one struct
        return number >> 1 if one and not number & 1 else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field of the struct at ``at``, and where its value begins and ends."""
    number = 0
    while head := data[at]:
        at += 1
        if not head >> 4:
            raise ValueError("the numbers of the fields are too far from each other for a footer")
        number += head >> 4
        end = _after(data, at, head & 15)
        yield number, at, end
        at = end


def _after(data: bytes, at: int, kind: int) -> int:
    """Return where a value of Thrift's type ``kind`` ends. Raises: ValueError, IndexError."""
    if kind in (1, 2):  # a truth value, which is in the type
        return at
    if kind == 3:
        return at + 1
    if kind in (4, 5, 6):
        return _varint(data, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        size, at = _varint(data, at)
        return at + size
    if kind == 9:
        size, of = data[at] >> 4, data[at] & 15
        size, at = _varint(data, at + 1) if size == 15 else (size, at + 1)
        for _ in range(size):
            at = at + 1 if of in (1, 2) else _after(data, at, of)
        return at
    if kind == 12:
        return max((end for _, _, end in _fields(data, at)), default=at) + 1
    raise ValueError(f"a footer has no values of type {kind}")


class ParquetFile:
    """A Parquet file whose footer has been read. Raises: ListError if that is damaged or missing.

    A footer of the form of ``like``, another file, is parsed only when the file is read.

    Attributes:
        rows: of each row group, the number of its rows.
        form: what it has in common with others; those with the same columns have the same ``form.schema``.
        digest: a hash of the footer, which holds the places and sizes of all columns, of the file's size, and of its
            ETag if it has one.
    """

    form: FooterForm
    _length: int
    __slots__ = ("_file", "_identity", "_kept", "_length", "access", "digest", "form", "rows", "url")

    def __init__(self, url: str, access: Access, like: ParquetFile | None = None) -> None:
        self.url, self.access = url, access
        self._file: RandomFile | None = None
        try:
            footer, size = self._read(TAIL if like is None else 2 * like._length)
            etag = self.file.stamp.encode() if self._identity is None else b""
        except DataError as error:
            raise ListError(f"{self.name}: {error.message}") from error
        self._length = len(footer)
        self._kept = footer if self._identity is None else b""  # what came from afar is not fetched again
        etag = etag if etag.startswith(b"etag:") else b""
        self.digest = blake2b(footer + size.to_bytes(8, "little") + etag, digest_size=16).digest()
        form = like.form if like is not None and like.form.fits(footer) else None
        rows = None if form is None else form.rows(footer)
        if form is not None and rows is not None:
            self.form, self.rows = form, [rows]
            return
        metadata = self._parsed(footer)
        self.rows = _rows_of(metadata)
        if min(self.rows, default=0) < 0 or sum(self.rows) != metadata.num_rows:
            raise self._damaged(f"it says {metadata.num_rows} rows, its row groups {sum(self.rows)}")
        if form is None:
            schema = metadata.schema.to_arrow_schema()
            if like is not None and schema.equals(like.form.schema):
                form = like.form
            else:
                form = FooterForm.of(footer, schema)
        self.form = form

    @classmethod
    def known(
        cls, url: str, access: Access, form: FooterForm, facts: tuple[_Identity, int, bytes, list[int]]
    ) -> ParquetFile:
        """Return a local file of which all is known: identity, length of the footer, digest and rows."""
        file = cls.__new__(cls)
        file.url, file.access, file.form, file._file, file._kept = url, access, form, None, b""
        file._identity, file._length, file.digest, file.rows = facts
        return file

    @property
    def facts(self) -> tuple[_Identity | None, int, bytes, list[int]]:
        """What :meth:`known` takes; the identity is None for a file that is not on this machine."""
        return self._identity, self._length, self.digest, self.rows

    @property
    def name(self) -> str:
        """The URL, for messages."""
        return redact(self.url)

    @property
    def file(self) -> RandomFile:
        """The file, to be read by position."""
        if self._file is None:
            self._file = open_file(self.url, self.access)
        return self._file

    def _read(self, tail: int) -> tuple[bytes, int]:
        """Return the footer, by reading ``tail`` bytes from the end if it is no longer, and the size of the file."""
        self._identity: _Identity | None = None
        if (path := is_local(self.url)) is not None:
            end, size, self._identity = _end_of(path, tail)
        elif isinstance(self.file, RemoteFile):
            end, size = self.file.tail(TAIL), self.file.size
        else:
            size = self.file.size
            end = self.file.read(max(0, size - TAIL), min(size, TAIL))
        if end[-4:] != b"PAR1":
            what = "it is empty" if not size else "it does not end in PAR1"
            raise ListError(f"{self.name} is not a Parquet file, or is incomplete ({what}): fetch it again")
        length = int.from_bytes(end[-_END:-4], "little") + _END
        if length > size:
            raise self._damaged("it would be longer than the file")
        return end[-length:] if length <= len(end) else self.file.read(size - length, length), size

    def _parsed(self, footer: bytes) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> ListError:
        return ListError(
            f"{self.name}: the footer is damaged ({' '.join(what.split())}): fetch the file again, or leave it out"
        )

    def read(self, group: int, columns: list[str]) -> tuple[pa.Table, str]:
        """Return columns (names, with dots for parts of structs) of a row group, and "" or what is wrong with them.

        Where something is wrong, the table has the rows before the damaged page only.
        """
        import pyarrow as pa

        if (now := local_identity(self.url)) != self._identity:
            message = f"the file changed while in use (size, mtime_ns, inode {self._identity} -> {now}): start again"
            raise DataError("changed_file", message, url=self.name)
        known = (OSError, ValueError, pa.ArrowException)
        try:
            table = self._open().read_row_group(group, columns, use_threads=False)
        except (DataError, ListError):
            raise
        except known as error:
            found: list[Any] = []
            with contextlib.suppress(*known):  # what came before the error stays
                found.extend(self._open().iter_batches(_ONE_BY_ONE, [group], columns, use_threads=False))
            return (pa.Table.from_batches(found) if found else pa.table({})), " ".join(str(error).split())
        if table.num_rows != self.rows[group]:
            return table, f"it has {table.num_rows} rows, and {self.rows[group]} by the footer"
        return table, ""

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        # pre_buffer: neighbouring columns come by one read
        options = {"metadata": _metadata(self), "pre_buffer": True, "page_checksum_verification": True}
        return pq.ParquetFile(held(Positioned(self.file.read_upto, self.file.size)), **options)

    def metadata(self) -> Any:
        """Return the footer, parsed. Raises: DataError ``bad_page`` if it tells of other rows than it seemed to."""
        footer = self._kept or self.file.read(self.file.size - self._length, self._length)
        try:
            found = self._parsed(footer)
            if _rows_of(found) != self.rows:
                raise self._damaged(f"it says {sum(self.rows)} rows, its row groups {sum(_rows_of(found))}")
        except ListError as error:
            raise DataError("bad_page", str(error), url=self.name) from error
        return found


_Identity = tuple[int, int, int]  # size, mtime_ns and inode


@kept("footers", 64, lambda footer: int(footer.serialized_size))
def _metadata(file: ParquetFile) -> Any:
    return file.metadata()


def _rows_of(metadata: Any) -> list[int]:
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def _end_of(path: str, tail: int) -> tuple[bytes, int, _Identity]:
    """Return the last ``tail`` bytes of a local file, its size and what tells it from another. Raises: DataError."""
    number, status = opened_regular(path)
    size = status.st_size
    try:
        return os.pread(number, tail, max(0, size - tail)), size, (size, status.st_mtime_ns, status.st_ino)
    except OSError as error:
        raise os_failure(error, path) from error
    finally:
        os.close(number)


def local_identity(url: str) -> _Identity | None:
    """Return that of a local file; None of a remote one, which is compared by its ETag."""
    if (path := is_local(url)) is None:
        return None
    try:
        status = os.stat(path)
    except OSError as error:
        raise os_failure(error, path) from error
    return status.st_size, status.st_mtime_ns, status.st_ino


def opened(urls: Sequence[str], access: Access) -> list[ParquetFile]:
    """Read the footers of files, many at a time from slow disks and servers. Raises: ListError naming the file."""
    first = ParquetFile(urls[0], access)

    def others(begin: int, end: int) -> list[ParquetFile]:
        return [ParquetFile(url, access, first) for url in urls[begin:end]]

    began, near = time.perf_counter(), all(is_local(url) is not None for url in urls[:_FIRST])
    files = [first, *others(1, _FIRST if near else 1)]
    if near and time.perf_counter() - began < _SLOW * _FIRST:
        return files + others(_FIRST, len(urls))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        some = range(len(files), len(urls), _FIRST if near else 1)
        for found in pool.map(others, some, (begin + some.step for begin in some)):
            files += found
    return files
