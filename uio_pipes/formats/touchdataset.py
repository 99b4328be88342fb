"""One pair of files of a TouchDataset, ``NAME.bin`` and ``NAME.idx``: items of different lengths, by number.

``.idx``, little-endian: ``MMIDIDX\0\0``, version (8 bytes, 1), code of the items' dtype (1 byte), N (8), M (8),
N lengths in items (4 each), N offsets in bytes (8 each), M bounds of documents (8 each). No torch in here: packing
writes them too. Checksums, which ``uio index`` writes beside a pair, belong to one ``NAME.idx``: its hash, kept with
them, shows whether they still fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import beside, folder_of, redact
from uio_pipes.formats.tar.checks import sidecar_path
from uio_pipes.formats.tar.index import framed, unframed
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_binary, open_file
from uio_pipes.io.references import RandomFile, Ref

MAGIC = b"MMIDIDX\0\0"
VERSION = 1
HEADER = Struct("<9sQBQQ")
DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(name) for code, name in enumerate(("u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"), 1)
}
_PIECE = 8 << 20  # bytes read at a time where all are read
_EVERY = 16  # of items that follow one another, the offset of each 16th is kept


class IndexedFile:
    """The items of a pair, by number, read on demand. Takes 4 bytes an item, or 12 if items do not follow
    one another in the file.

    Raises: ListError if the two files cannot be used; items must fill ``.bin`` without gaps or overlaps.
    """

    def __init__(self, prefix: str, access: Access | None = None) -> None:
        self._access = access
        self.data: RandomFile = open_file(beside(prefix, ".bin"), access)
        index = open_file(beside(prefix, ".idx"), access)
        try:
            count, columns, bounds = self._columns(index)
            size = self.data.size
        except DataError as error:
            raise ListError(f"{error.url}: {error.message} (a TouchDataset is made by: uio convert SRC DST)") from error
        digest = blake2b(columns, digest_size=16)
        digest.update(f"{self.dtype.str} {size}".encode())
        self.digest = digest.hexdigest()
        self.lengths: npt.NDArray[np.int32] = np.frombuffer(columns, "<i4", count).copy()
        self._set_offsets(np.frombuffer(columns, "<i8", count, 4 * count), index.path, size)
        _check_documents(np.frombuffer(bounds, "<i8"), count, index.path)

        self._crcs: memoryview[int] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def span(self, number: int) -> tuple[int, int]:
        """Return offset and size of an item, in bytes."""
        size = self._length[number] * self._width
        if not self._contiguous:
            return self._offset[number], size
        block = number // _EVERY
        return self._offset[block] + sum(self._length[block * _EVERY : number]) * self._width, size

    def read(self, number: int) -> bytes:
        """Return an item's bytes. Raises: DataError."""
        data = self.data.read(*self.span(number))
        self.check(number, data)
        return data

    def each(self) -> Iterator[memoryview]:
        """Yield all items, read in large pieces and not compared with checksums. Raises: DataError."""
        first = 0
        while first < len(self):
            begin, size = self.span(first)
            ends = [size]
            while self._contiguous and ends[-1] < _PIECE and first + len(ends) < len(self):
                ends.append(ends[-1] + self._length[first + len(ends)] * self._width)
            data = memoryview(self.data.read(begin, ends[-1]))
            yield from (data[start:end] for start, end in zip([0, *ends], ends, strict=False))
            first += len(ends)

    def compare(self, indexes: str | None = None) -> None:
        """From now on, compare items with the checksums that ``uio index`` made. ``indexes``: its ``--into``.

        Raises: ListError if there are none, or they are of another index.
        """
        known = read_checksums(self.data.path, self._access, indexes)
        if known.digest != self.digest or len(known.crcs) != len(self):
            url = self.data.path
            raise ListError(
                f"the checksums of {redact(url)} are stale, they belong to another .idx than the one beside it: fetch "
                f"that again, or if the data was created again, recreate them with {remedy_for(url, indexes)}"
            )
        self._crcs = known.crcs.data  # its items are Python's numbers

    def crc(self, number: int) -> int | None:
        """Return the CRC32 that an item must have; None if items are not compared."""
        return None if self._crcs is None else self._crcs[number]

    def check(self, number: int, data: bytes) -> None:
        """Compare the bytes of an item. Raises: DataError ``bad_crc``."""
        if self._crcs is not None and crc32(data) != self._crcs[number]:
            raise bad_crc(self.data.path, self.span(number)[0])

    def _columns(self, index: RandomFile) -> tuple[int, memoryview, memoryview]:
        """Return the number of items; lengths and offsets; bounds of documents, the latter two as bytes of the file."""
        head = index.read_upto(0, HEADER.size)
        again = "convert the data again (uio convert), or fetch the file again"
        if head[: len(MAGIC)] != MAGIC[: len(head)] or not head:
            raise ListError(
                f"{index.path} is not the index of a TouchDataset: it begins with {head[:9]!r}, not {MAGIC!r}; name "
                "others"
            )
        if len(head) < HEADER.size:
            raise ListError(f"{index.path} ends within its header, after {len(head)} bytes: {again}")
        _, version, code, count, documents = HEADER.unpack(head)
        if version != VERSION:
            raise ListError(f"{index.path} is of version {version}; version {VERSION} can be read: {again}")
        if code not in DTYPES:
            raise ListError(f"{index.path} has the dtype code {code}; 1 to {len(DTYPES)} are known: {again}")
        self.dtype = DTYPES[code]
        declared = HEADER.size + 12 * count + 8 * documents
        if declared != index.size:
            raise ListError(
                f"{index.path} declares {count} items and {documents} bounds of documents, {declared} bytes in all, "
                f"but has {index.size}: {again}"
            )
        body = memoryview(index.read(HEADER.size, 12 * count + 8 * documents))
        return count, body[: 12 * count], body[12 * count :]

    def _set_offsets(self, offsets: npt.NDArray[np.int64], name: str, size: int) -> None:
        bad = np.flatnonzero((self.lengths < 0) | (offsets < 0))
        if len(bad):
            n = int(bad[0])
            raise ListError(
                f"{name}: item {n} has length {self.lengths[n]} and offset {offsets[n]}; it is damaged: fetch it again"
            )
        sizes = self.lengths.astype(np.int64) * self.dtype.itemsize
        beyond = int(np.count_nonzero(offsets > size - sizes))
        if beyond:
            raise ListError(
                f"{self.data.path} ends after {size} bytes, and {beyond} of {len(offsets)} items in {name} lie beyond "
                "it; fetch it again"
            )
        sizes += offsets  # now their ends
        last = int(sizes.max(initial=0))
        if last < size:
            raise ListError(
                f"{self.data.path} has {size} bytes, but {name} covers only {last}: the two do not belong together; "
                "fetch both again"
            )
        self._contiguous = not offsets[:1].any() and np.array_equal(offsets[1:], sizes[:-1])
        if not self._contiguous:
            _check_cover(offsets, sizes, name)
        self._width = self.dtype.itemsize
        self._length: memoryview[int] = self.lengths.data  # its items are Python's numbers, which are fast to get
        self._offset: memoryview[int] = (offsets[::_EVERY] if self._contiguous else offsets).copy().data


def _check_cover(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], name: str) -> None:
    """Check that every byte belongs to exactly one item, in whatever order: writers leave no gaps, but a damaged offset
    or length does. Raises: ListError naming the item."""
    order = np.lexsort((ends, starts))
    begins, before = starts[order], np.concatenate([[0], ends[order][:-1]])
    bad = np.flatnonzero(begins != before)
    if not len(bad):
        return
    at = int(bad[0])
    item, begin, expected = int(order[at]), int(begins[at]), int(before[at])
    if begin > expected:
        what = f"what is before it from byte {expected} on belongs to no item"
    else:
        what = f"item {int(order[at - 1])} before it ends at {expected}"
    raise ListError(
        f"{name}: item {item} begins at byte {begin}, and {what}: items must follow each other without gaps or "
        "overlaps. The index is damaged: fetch it again, or convert the data again (uio convert)"
    )


def _check_documents(bounds: npt.NDArray[np.int64], count: int, name: str) -> None:
    """Check that documents begin at item 0, end at the last one and never go back. Raises: ListError."""
    if not len(bounds):
        return
    wrong = np.flatnonzero(bounds[1:] < bounds[:-1]) + 1
    at = 0 if bounds[0] != 0 else int(wrong[0]) if len(wrong) else len(bounds) - 1
    if bounds[0] != 0 or len(wrong) or bounds[-1] != count:
        raise ListError(
            f"{name}: bound {at} of {len(bounds)} of its documents is item {bounds[at]}, but bounds must rise from 0 "
            f"to the number of items, {count}. The index is damaged: fetch it again, or convert the data again "
            "(uio convert)"
        )


_COMPARED = 1 << 20  # bytes of a long record that are compared at a time


class StoredRecord(Ref):
    """The bytes of a record, for instance a video file. It is fetched when it is read, never early."""

    __slots__ = ()
    early: ClassVar[bool] = False

    def __init__(self, file: RandomFile, offset: int, size: int, crc: int | None = None) -> None:
        super().__init__(file, offset, size, crc=crc)

    def compare(self) -> None:
        """Compare the whole record with its CRC32, once, if that is known. Raises: DataError ``bad_crc``."""
        if self.crc is None:
            return
        crc = 0
        for at in range(0, self.size, _COMPARED):
            crc = crc32(self.file.read(self.offset + at, min(_COMPARED, self.size - at)), crc)
        self._found(crc)

    def read(self) -> bytes:
        return self._compared(self.read_at(0, self.size))

    def _compared(self, data: bytes) -> bytes:
        if self.crc is not None:
            self._found(crc32(data))
        return data

    def _found(self, crc: int) -> None:
        if crc != self.crc:
            raise bad_crc(self.file.path, self.offset)
        self.crc = None  # of a long recording, the next segment reads its own bytes only


CHECKSUM_MAGIC, CHECKSUM_VERSION = b"UIOCRC32", 2


@dataclass(frozen=True)
class Checksums:
    """The CRC32s of the records, by number. ``digest``: of their index; ``stamp``: of ``.bin`` when they were made."""

    digest: str
    stamp: str
    crcs: npt.NDArray[np.uint32]


def checksum_file(digest: str, stamp: str, records: Iterable[memoryview]) -> bytes:
    """Return the bytes of the file, from all records in their order."""
    crcs = np.fromiter(map(crc32, records), "<u4")
    return framed(CHECKSUM_MAGIC, CHECKSUM_VERSION, {"digest": digest, "stamp": stamp}, {"crcs": crcs})


def read_checksums(url: str, access: Access | None = None, folder: str | None = None) -> Checksums:
    """Read the checksums of ``NAME.bin`` at ``url``. Raises: ListError if there are none, or they are damaged."""
    name, remedy = redact(sidecar_path(url, folder)), remedy_for(url, folder)
    try:
        with open_binary(sidecar_path(url, folder), access) as file:
            header, columns, _ = unframed(file, CHECKSUM_MAGIC, CHECKSUM_VERSION)
        digest, stamp = header["digest"], header["stamp"]
        if not isinstance(digest, str) or not isinstance(stamp, str):
            raise ValueError("its content does not match its header")
        return Checksums(digest, stamp, columns["crcs"].astype(np.uint32))
    except DataError as error:
        if error.reason == "missing_file":
            raise ListError(f"{redact(url)} has no checksums ({name}): make them with {remedy}") from error
        raise ListError(f"cannot read the checksums {name}: {error.message}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ListError(
            f"the checksums {name} are damaged, or not checksums ({error}): recreate them, {remedy}"
        ) from error


def remedy_for(url: str, folder: str | None) -> str:
    """Return the command that makes the checksums of ``NAME.bin`` at ``url``."""
    return f"uio index {redact(folder_of(url) or '.')}" + (f" --into {folder}" if folder else "")


def bad_crc(url: str, offset: int) -> DataError:
    """Return the error for bytes that differ from those that were indexed."""
    message = (
        "the bytes differ from those that were indexed (their CRC32 differs): fetch the file again, or if it was "
        "created again, recreate its checksums (uio index)"
    )
    return DataError("bad_crc", message, url=url, offset=offset)
