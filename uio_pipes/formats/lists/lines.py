"""The lines of a list file, by number. Of ten million lines only the place of every sixteenth is kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import BinaryIO, overload

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, open_binary

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
STEP = 16  # items in a block: all of it is read and split to get one of them
IN_MEMORY = 1 << 23  # bytes: longer lists stay on disk
CHUNK = 1 << 22  # bytes scanned at a time
LONGEST = 1 << 22  # bytes of a line

_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # gzip, bzip2, xz, Zstandard

Block = list[tuple[int, str]]  # line number and item


class Lines(Sequence[str]):
    """The items of a list file: its lines without surrounding white space, blank lines and comments (``#``).

    A JSON line that is not UTF-8 is an item too, with its invalid bytes as surrogates: one bad line of a raw list costs
    one utterance.

    A list of more than 8 MiB stays on disk (a remote one is copied to a temporary file), and forked processes share its
    offsets.

    Raises: ListError if the list is missing, is not text, or changes while it is in use.
    """

    def __init__(self, name: str, access: Access | None = None) -> None:
        path = is_local(name) or ""
        if os.path.isdir(path):
            raise ListError(f"the list {name} is a folder; name a list file, or shards by a glob ({name}/*.tar)")
        if os.path.exists(path) and not os.path.isfile(path):
            raise ListError(f"the list {name} is a pipe or a device: write it to a file, it is read more than once")
        self.name = name
        self._data, self._file = _opened(name, access)
        self._stat = _stat(self._file)
        self._scan()

    @classmethod
    def known(cls, name: str, access: Access | None = None) -> Lines:
        """Return ``Lines(name, access)``; a local list that has not changed is scanned once in a process."""
        path = is_local(name)
        if path is None or not os.path.isfile(path):
            return cls(name, access)
        status = os.stat(path)
        return _known(name, os.path.abspath(path), status.st_size, status.st_mtime_ns, status.st_ino)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._count))]
        return self._at(number)[1]

    def line(self, number: int) -> int:
        """Return the line number of item ``number``, counted from 1."""
        return self._at(number)[0]

    def __iter__(self) -> Iterator[str]:
        for block in range(len(self._offsets)):
            for _, item in self.parsed(block):
                yield item

    def texts(self) -> Iterator[str]:
        """Yield all items, joined by line ends, in large pieces."""
        if self._plain:
            for _, chunk in self.chunks():
                yield _decoded(chunk).removesuffix("\n")
            return
        items = iter(self)
        while some := [item for item, _ in zip(items, range(1 << 16), strict=False)]:
            yield "\n".join(some)

    def _at(self, number: int) -> tuple[int, str]:
        if not 0 <= number < self._count:
            raise IndexError(number)
        block, within = divmod(number, STEP)
        return _block(self, block)[within]

    def parsed(self, block: int) -> Block:
        """Return sixteen items with their line numbers."""
        first = int(self._offsets[block])
        last = int(self._offsets[block + 1]) if block + 1 < len(self._offsets) else self._end
        lines = _decoded(self._read(first, last - first)).split("\n")
        numbered = enumerate(map(str.strip, lines), int(self._lines[block]))
        return [(number, item) for number, item in numbered if item and item[0] != "#"]

    def _read(self, offset: int, size: int) -> bytes:
        self._check_same()
        return self._some(offset, size)

    def _check_same(self) -> None:
        if _stat(self._file) != self._stat:
            raise ListError(f"the list {self.name} was written to while in use: put a changed list beside the old one")

    # One scan of the whole file

    def _scan(self) -> None:
        """Note the place of every sixteenth item, and check that the whole file is text."""
        offsets, lines, self._count, self._end, self._plain = list[_Places](), list[_Places](), 0, 0, True
        line = 1
        for offset, chunk in self.chunks():
            self._check(chunk, line)
            codes = np.frombuffer(chunk, np.uint8)
            ends = np.flatnonzero(codes == 10)
            starts = np.concatenate(([0], ends[:-1] + 1))
            if (longest := int((ends - starts).max())) > LONGEST:
                raise self._no_list(f"line {line + int((ends - starts).argmax())} has {longest} bytes")
            items = np.flatnonzero(self._are_items(chunk, codes, starts, ends))
            self._plain = self._plain and len(items) == len(starts) and _nothing_around(codes, starts, ends)
            first = items[-self._count % STEP :: STEP]
            offsets.append(offset + starts[first])
            lines.append(line + first)
            self._count += len(items)
            self._end = offset + len(chunk)  # of a last line without an end one byte too far: not read
            line += len(ends)
        self._offsets = np.concatenate(offsets or [np.zeros(0, np.int64)])
        self._lines = np.concatenate(lines or [np.zeros(0, np.int64)]).astype(np.uint32)

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the file in pieces of whole lines, each with its offset; a last line without an end gets one."""
        self._check_same()
        at = 3 if self._some(0, 3) == b"\xef\xbb\xbf" else 0  # a byte order mark
        size = CHUNK
        while chunk := self._some(at, size):
            cut = chunk.rfind(b"\n") + 1
            if len(chunk) < size and cut < len(chunk):
                yield at, chunk + b"\n"
                return
            if cut == 0 and size > LONGEST:
                raise self._no_list(f"a line of more than {LONGEST} bytes begins at byte {at}")
            size = CHUNK if cut else 2 * LONGEST
            if cut:
                yield at, chunk[:cut]
            at += cut

    def _some(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return self._data[offset : offset + size]
        return os.pread(self._file.fileno(), size, offset)

    def _check(self, chunk: bytes, line: int) -> None:
        if line == 1 and chunk.startswith(_PACKED):
            raise ListError(f"the list {self.name} is compressed: unpack it")
        if line == 1 and chunk[:64].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise ListError(f"the list {self.name} is a web page, perhaps a server's error: open it, correct the URL")
        if not chunk.isascii() and not _is_text(chunk):
            for at, text in enumerate(chunk.split(b"\n"), line):
                if not text.lstrip().startswith(b"{") and not _is_text(text):
                    raise self._no_text(at)
        if b"\0" in chunk:
            at = line + chunk[: chunk.index(b"\0")].count(b"\n")
            raise ListError(
                f"the list {self.name} is not text (a NUL in line {at}); a list is a path, URL or JSON object a line"
            )

    def _are_items(self, chunk: bytes, codes: _Bytes, starts: _Places, ends: _Places) -> npt.NDArray[np.bool_]:
        """Return which lines are items: only those that do not begin with a visible ASCII letter must be decoded."""
        first = codes[starts]
        are: npt.NDArray[np.bool_] = (first > 32) & (first < 127) & (first != ord("#"))
        for number in np.flatnonzero(~are & (first != ord("\n")) & (first != ord("#"))):
            item = _decoded(chunk[starts[number] : ends[number]]).strip()
            are[number] = bool(item) and item[0] != "#"
        return are

    def _no_text(self, line: int) -> ListError:
        return ListError(
            f"the list {self.name} is not UTF-8 text (line {line}); if it is a shard, its name must end in one of "
            f"{' '.join(ARCHIVES)}"
        )

    def _no_list(self, why: str) -> ListError:
        return ListError(f"the list {self.name} is not a list ({why}); it is a path, URL or JSON object a line")


_Places = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


@lru_cache(maxsize=16)
def _known(name: str, *_: object) -> Lines:
    return Lines(name)


@lru_cache(maxsize=128)
def _block(lines: Lines, number: int) -> Block:
    return lines.parsed(number)


def _opened(name: str, access: Access | None) -> tuple[bytes, BinaryIO | None]:
    """Return the list in memory, or as a file that can be read by position."""
    try:
        file = open_binary(name, access)
        data = file.read(IN_MEMORY + 1)
        if len(data) <= IN_MEMORY:
            file.close()
            return data, None
        if is_local(name) is not None and file.seekable():
            return b"", file
        return b"", _copied(file, data)
    except (DataError, OSError) as error:
        message = error.message if isinstance(error, DataError) else error.strerror
        raise ListError(f"cannot read the list {name}: {message}") from error


def _copied(file: BinaryIO, data: bytes) -> BinaryIO:
    """Copy the rest of ``file``, after ``data``, to a temporary file without a name."""
    copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (as long as the list is in use)
    while data:
        copy.write(data)
        data = file.read(CHUNK)
    return copy


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _stat(file: BinaryIO | None) -> tuple[int, int] | None:
    if file is None:
        return None
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _nothing_around(codes: _Bytes, starts: _Places, ends: _Places) -> bool:
    """Return whether all lines begin and end with visible ASCII letters, so that none has white space around it."""
    first, last = codes[starts], codes[ends - 1]
    return bool(((first > 32) & (first < 127) & (last > 32) & (last < 127)).all())
