"""The lines of a list file, by number. Of ten million lines only the place of every fourth is kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from typing import BinaryIO, ClassVar, overload

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import redact
from uio_pipes.io.access import Access
from uio_pipes.io.compression import Decompressed, detect
from uio_pipes.io.opening import is_local, open_binary, version

CHUNK = 1 << 22  # bytes read at a time


class Content:
    """The content of the file ``name``: ``data`` in memory, or a ``file`` that holds it. ``what``: the word for it."""

    def __init__(self, name: str, what: str, data: bytes | mmap, file: BinaryIO | None = None) -> None:
        self.name, self._what, self._file = name, what, file
        self.held = None if file is not None else data  # it can be had without a call of the system
        self._stat = self._status()

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at its end. Raises: ListError if the file changed since it was opened."""
        if self.held is not None:
            return self.held[offset : offset + size]
        assert self._file is not None
        if self._status() != self._stat:
            rule = f"{self._what} {redact(self.name)} changed while it was in use"
            raise ListError(f"{rule}: write changes to a new file, under another name")
        return os.pread(self._file.fileno(), size, offset)

    def _status(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


def opened(name: str, what: str, in_memory: int, access: Access | None = None) -> Content:
    """Return a file's content, decompressed, in memory if it has at most ``in_memory`` bytes. Raises: ListError."""
    try:
        file = open_binary(name, access)
        form = detect(file.peek(512)[:512], name)  # type: ignore[attr-defined]
        if form is None and is_local(name) is not None and os.fstat(file.fileno()).st_size > in_memory:
            return Content(name, what, b"", file)
        with file:
            pieces = Decompressed(file.read, form, name) if form else iter(lambda: file.read(CHUNK), b"")
            return Content(name, what, kept(pieces, in_memory))
    except (DataError, OSError) as error:
        message = error.message if isinstance(error, DataError) else error.strerror
        raise ListError(f"cannot read {what} {name}: {message}") from error


def kept(pieces: Iterator[bytes], in_memory: int) -> bytes | mmap:
    """Return all ``pieces`` in memory, or if they are more bytes than that, as a temporary file without a name: it is
    mapped, since nobody can shorten it."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) > in_memory:
            with tempfile.TemporaryFile() as copy:
                copy.write(held)
                copy.writelines(pieces)
                copy.flush()
                return mmap(copy.fileno(), 0, access=ACCESS_READ)
    return bytes(held)


def unclear_end(name: str) -> DataError:
    """Return the note on a text whose last line has no line end, while all others have one."""
    message = "the last line has no line end, as if the file had been cut off within it: compare it with the original"
    return DataError("unclear_end", message, url=name)


Version = tuple[str, int, str]  # the absolute path, and the version that io/opening.py knows


def version_of(name: str) -> Version | None:
    """Return by what a local file can be told from what it was before it changed; None for any other."""
    path = is_local(name)
    return None if path is None or not os.path.isfile(path) else (os.path.abspath(path), *version(path))


ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
STEP = 4  # items in a block: all of it is read to get one of them. Their places take 12 / STEP bytes an item
IN_MEMORY = 1 << 23  # bytes: longer lists stay on disk
LONGEST = 1 << 22  # bytes of a line

Block = list[tuple[int, str]]  # line number and item


class Lines(Sequence[str]):
    """The items of a list file: its lines without surrounding white space, blank lines and comments (``#``).

    A JSON line that is not UTF-8 is an item too, with its invalid bytes as surrogates: one bad line of a raw list costs
    one utterance.

    A list of more than 8 MiB stays on disk (a remote or compressed one is copied to a temporary file), and forked
    processes share its offsets.

    Raises: ListError if the list is missing, is not text, or changes while it is in use.
    """

    what: ClassVar[str] = "the list"
    of_folder: ClassVar[str] = "a list file, or shards by a glob ({}/*.tar)"
    empty: ClassVar[str] = "only blank lines and comments (#)"  # what the file may hold without having an item

    def __init__(self, name: str, access: Access | None = None) -> None:
        path = is_local(name) or ""
        if os.path.isdir(path):
            raise ListError(f"{self.what} {name} is a folder; name {self.of_folder.format(name)}")
        if os.path.exists(path) and not os.path.isfile(path):
            raise ListError(f"{self.what} {name} is a pipe or a device: write it to a file, it is read more than once")
        self.name = name
        self._content = opened(name, self.what, IN_MEMORY, access)
        self._scan()

    @classmethod
    def known(cls, name: str, access: Access | None = None) -> Lines:
        """Return ``Lines(name, access)``; a local list that has not changed is scanned once in a process."""
        found = version_of(name)
        return cls(name, access) if found is None else _known(cls, name, found)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._count))]
        if self._plain and 0 <= number < self._count:
            return self._piece(number).decode("utf-8", "surrogateescape")
        return self._at(number)[1]

    @property
    def notes(self) -> list[DataError]:
        """What may be wrong with the file, though nothing failed."""
        torn = self._count > 1 and not self._content.read(self._end - 1, 1)
        return [unclear_end(self.name)] if torn else []

    def line(self, number: int) -> int:
        """Return the line number of item ``number``, counted from 1."""
        return number + 1 if self._plain and 0 <= number < self._count else self._at(number)[0]

    def __iter__(self) -> Iterator[str]:
        if self._plain:
            for text in self.texts():
                yield from text.split("\n")
            return
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

    def _piece(self, number: int) -> bytes:
        """Return a line of a list that is ``_plain``, looked for from the first of its block on."""
        block, within = divmod(number, STEP)
        held = self._content.held
        text, at = (_bytes_of(self, block), 0) if held is None else (held, int(self._offsets[block]))
        for _ in range(within):
            at = text.find(b"\n", at) + 1
        end = text.find(b"\n", at)
        return text[at : end if end >= 0 else len(text)]

    def _at(self, number: int) -> tuple[int, str]:
        if not 0 <= number < self._count:
            raise IndexError(number)
        block, within = divmod(number, STEP)
        return _block(self, block)[within]

    def parsed(self, block: int) -> Block:
        """Return the items of a block with their line numbers."""
        return self._numbered(_decoded(self.raw(block)), int(self._lines[block]))

    def _numbered(self, text: str, first: int) -> Block:
        """Return the items in ``text``, which begins with line ``first``."""
        numbered = enumerate(map(str.strip, text.split("\n")), first)
        return [(number, item) for number, item in numbered if item and item[0] != "#"]

    def raw(self, block: int) -> bytes:
        """Return the bytes of the lines from the first item of a block to before the next block."""
        first = int(self._offsets[block])
        last = int(self._offsets[block + 1]) if block + 1 < len(self._offsets) else self._end
        return self._content.read(first, last - first)

    # One scan of the whole file

    def _scan(self) -> None:
        """Note the place of the first item of each block, and check that the whole file is text."""
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
        at = 3 if self._content.read(0, 3) == b"\xef\xbb\xbf" else 0  # a byte order mark
        size = CHUNK
        while chunk := self._content.read(at, size):
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

    def _check(self, chunk: bytes, line: int) -> None:
        if line == 1 and chunk[:64].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise ListError(f"the list {self.name} is a web page, perhaps a server's error: open it, correct the URL")
        if not chunk.isascii() and not _is_text(chunk):
            for at, text in enumerate(chunk.split(b"\n"), line):
                if not text.lstrip().startswith(b"{") and not _is_text(text):
                    raise self._no_text(at)
        self._refuse_nul(chunk, line)

    def _refuse_nul(self, chunk: bytes, line: int) -> None:
        if b"\0" in chunk:
            at = line + chunk[: chunk.index(b"\0")].count(b"\n")
            raise self._no_list(f"a NUL in line {at}: it is not text")

    def _are_items(self, chunk: bytes, codes: _ByteArray, starts: _Places, ends: _Places) -> npt.NDArray[np.bool_]:
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
            f"{' '.join(ARCHIVES)}, and of audio files uio start makes a list"
        )

    def _no_list(self, why: str) -> ListError:
        return ListError(f"the list {self.name} is not a list ({why}); it is a path, URL or JSON object a line")


_Places = npt.NDArray[np.int64]
_ByteArray = npt.NDArray[np.uint8]


@lru_cache(maxsize=16)
def _known(cls: type[Lines], name: str, version: Version) -> Lines:
    return cls(name)


@lru_cache(maxsize=128)
def _bytes_of(lines: Lines, block: int) -> bytes:
    return lines.raw(block)


@lru_cache(maxsize=128)
def _block(lines: Lines, number: int) -> Block:
    return lines.parsed(number)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _nothing_around(codes: _ByteArray, starts: _Places, ends: _Places) -> bool:
    """Return whether all lines begin and end with visible ASCII letters, so that none has white space around it."""
    first, last = codes[starts], codes[ends - 1]
    return bool(((first > 32) & (first < 127) & (last > 32) & (last < 127)).all())
