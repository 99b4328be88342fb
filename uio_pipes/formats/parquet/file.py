"""One Parquet file: its footer, and its row groups, of which only the columns that are asked for are read.

Format: https://parquet.apache.org/docs/file-format (the footer is the last thing in a file: its length, then ``PAR1``).
"""

from __future__ import annotations

import contextlib
import io
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.redact import redact
from uio_pipes.io.access import Access
from uio_pipes.io.local import RandomFile
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.io.regular import os_failure

if TYPE_CHECKING:
    import pyarrow as pa

TAIL = 1 << 16  # bytes of the first read: most footers are shorter
_END = 8  # bytes: the footer's length and PAR1
_ONE_BY_ONE = 1  # rows of a batch where a page is damaged, so that all rows before it are saved


class ParquetFile:
    """A file of which the footer has been read. Raises: ListError if that is damaged or missing.

    Attributes:
        rows: of each row group, the number of its rows.
        schema: the columns with their Arrow types.
        digest: a hash of the footer, which holds the places and sizes of all columns, of the file's size, and of its
            ETag if it has one.
    """

    def __init__(self, url: str, access: Access) -> None:
        self.url, self.name, self.access = url, redact(url), access
        self.file: RandomFile = open_file(url, access)
        try:
            size = self.file.size
            self._identity = _identity(url)
            footer = self._footer(size)
        except DataError as error:
            raise ListError(f"{self.name}: {error.message}") from error
        self._metadata = self._parsed(footer)
        self.schema: Any = self._metadata.schema.to_arrow_schema()
        self.rows = [self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)]
        if min(self.rows, default=0) < 0 or sum(self.rows) != self._metadata.num_rows:
            raise self._damaged(f"it says {self._metadata.num_rows} rows, its row groups {sum(self.rows)}")
        etag = stamp.encode() if (stamp := self.file.stamp).startswith("etag:") else b""
        self.digest = blake2b(footer + size.to_bytes(8, "little") + etag, digest_size=16).digest()

    def _footer(self, size: int) -> bytes:
        tail = self.file.read(max(0, size - TAIL), min(size, TAIL))
        if tail[-4:] != b"PAR1":
            what = "it is empty" if not size else "it does not end in PAR1"
            raise ListError(f"{self.name} is no Parquet file, or not all of it is there ({what}): fetch it again")
        length = int.from_bytes(tail[-_END:-4], "little") + _END
        if length > size:
            raise self._damaged("it would be longer than the file")
        return tail[-length:] if length <= len(tail) else self.file.read(size - length, length)

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

        self._check_same()
        known = (OSError, ValueError, pa.ArrowException)
        try:
            table = self._open().read_row_group(group, columns, use_threads=False)
        except DataError:
            raise
        except known as error:
            return self._before(group, columns, known), " ".join(str(error).split())
        if table.num_rows != self.rows[group]:
            return table, f"it has {table.num_rows} rows, and {self.rows[group]} by the footer"
        return table, ""

    def _before(self, group: int, columns: list[str], known: tuple[type[Exception], ...]) -> pa.Table:
        """Return the rows before the damaged page."""
        import pyarrow as pa

        found: list[Any] = []
        with contextlib.suppress(*known):  # what came before the error stays
            found.extend(self._open().iter_batches(_ONE_BY_ONE, [group], columns, use_threads=False))
        return pa.Table.from_batches(found) if found else pa.table({})

    def _check_same(self) -> None:
        """Raises: DataError ``changed_file`` if the file is not the one whose footer was read."""
        if (now := _identity(self.url)) != self._identity:
            message = f"the file changed while in use (size, mtime_ns, inode {self._identity} -> {now}): start again"
            raise DataError("changed_file", message, url=self.name)

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        # pre_buffer: neighbouring columns come by one read
        options = {"metadata": self._metadata, "pre_buffer": True, "page_checksum_verification": True}
        return pq.ParquetFile(_Positioned(self.file), **options)


def _identity(url: str) -> tuple[int, int, int] | None:
    """Return size, mtime_ns and inode of a local file; None of a remote one, which is compared by its ETag."""
    if (path := is_local(url)) is None:
        return None
    try:
        status = os.stat(path)
    except OSError as error:
        raise os_failure(error, path) from error
    return status.st_size, status.st_mtime_ns, status.st_ino


class _Positioned(io.RawIOBase):
    """A file object that pyarrow reads from; each read is one of ``file``, at a position."""

    def __init__(self, file: RandomFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        data = self._file.read_upto(self._at, self._file.size - self._at if size < 0 else size)
        self._at += len(data)
        return data
