"""Early background reads of what references point to in remote files; neighbours in a file share one request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from uio_pipes.base.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.io.background import Job, submit
from uio_pipes.io.local import RandomFile, Ref
from uio_pipes.io.opening import CachedFile, RemoteFile, is_local, open_file

GAP = 64 << 10  # bytes between two neighbours that are read along
MOST = 4 << 20  # bytes of one request for several references; of longer audio only a segment may be wanted
HEAD = 256 << 10  # first request for a file of unknown size: holds most files whole


class Early(Ref):
    """A reference that knows by itself what to fetch early. ``far``: whether it is to a remote file."""

    __slots__ = ()

    @property
    def far(self) -> bool:
        return True

    def fetch_early(self) -> int:
        """Begin to fetch, and return the number of bytes that this takes at most."""
        raise NotImplementedError


class Whole(Early):
    """A whole remote file of unknown size. Its first 256 KB, mostly all of it, are read once and kept."""

    __slots__ = ("_begun", "_job")

    def __init__(self, file: RandomFile) -> None:
        self.file, self.offset = file, 0
        self.head, self.info, self.crc = b"", None, None
        self._begun: bytes | None = None
        self._job: Job[bytes] | None = None

    def fetch_early(self) -> int:
        if self._job is None and self._begun is None:
            self._job = submit(lambda _: self.file.read_upto(0, HEAD))
        return HEAD

    @property
    def size(self) -> int:  # type: ignore[override]
        begun = self._first()
        return len(begun) if len(begun) < HEAD else self.file.size

    @property
    def nbytes(self) -> int:
        return len(self._begun or b"")

    def read(self) -> bytes:
        begun = self._first()
        return begun + self.file.read(len(begun), self.size - len(begun)) if self.size > len(begun) else begun

    def read_at(self, start: int, size: int) -> bytes:
        size = max(0, min(size, self.size - start))
        begun = self._first()
        return begun[start : start + size] if start + size <= len(begun) else self.file.read(start, size)

    def _first(self) -> bytes:
        if self._begun is None:
            self._begun = self._job.result() if self._job is not None else self.file.read_upto(0, HEAD)
            self._job = None
        return self._begun


def reference(url: str, access: Access | None = None) -> str | Whole:
    """Return a local path as it is, of ``file://`` too, and a reference to a remote file. Nothing is opened."""
    path = is_local(url)
    return Whole(open_file(url, access)) if path is None else path


class _Coming(Ref):
    """A reference whose bytes are being fetched: they begin at ``first`` in the result of ``job``."""

    __slots__ = ("_first", "_job")

    def __init__(self, ref: Ref, job: Job[bytes], first: int) -> None:
        super().__init__(ref.file, ref.offset, ref.size, ref.head, ref.info, ref.crc)
        self._job, self._first = job, first

    @property
    def nbytes(self) -> int:
        return self.size

    def read(self) -> bytes:
        data = self._bytes()
        right = self.crc is None or crc32(data) == self.crc
        return data if right else super().read()  # which raises the error, or gets the right bytes this time

    def read_at(self, start: int, size: int) -> bytes:
        if start + size <= len(self.head):
            return self.head[start : start + size]
        return self._bytes()[start : start + max(0, size)]

    def _bytes(self) -> bytes:
        return self._job.result()[self._first : self._first + self.size]


def is_far(value: object) -> bool:
    """Return whether it is a reference into a remote file."""
    if not isinstance(value, Ref):
        return False
    of = value if isinstance(value, Early) else value.file
    return isinstance(of, RemoteFile) or (isinstance(of, (Early, CachedFile)) and of.far)


def fetch_early(samples: Iterable[dict[str, Any]]) -> int:
    """Start fetching what the fields refer to in remote files. Return the number of bytes that this takes at most."""
    found: list[_Entry] = []
    taken = sum(_look(fields, fields.items(), found) for fields in samples)
    for group in _merged(found):
        begin = group[0][2].offset
        end = max(ref.offset + ref.size for _, _, ref in group)
        job = submit(_reading(group[0][2].file, begin, end - begin))
        taken += end - begin
        for place, name, ref in group:
            place[name] = ref.reading(_Coming(ref, job, ref.offset - begin))
    return taken


def _look(place: Any, values: Iterable[tuple[Any, Any]], found: list[_Entry]) -> int:
    """Start what knows by itself how, and return the bytes that it takes; add other far references to ``found``."""
    taken = 0
    for name, value in values:
        if isinstance(value, Early):
            taken += value.fetch_early()
        elif is_far(value) and value.early and not isinstance(value, _Coming) and _is_small(value):
            found.append((place, name, value))
        elif type(value) is list and value and isinstance(value[0], Ref):
            place[name] = several = list(value)  # which this sample has for its own
            taken += _look(several, enumerate(value), found)
    return taken


def _is_small(ref: Ref) -> bool:
    try:
        return ref.size <= MOST
    except DataError:  # its place is not known: it fails again when it is read
        return False


_Entry = tuple[Any, Any, Ref]  # what holds the reference, its name or number there, itself


def _reading(file: RandomFile, offset: int, size: int) -> Callable[[object], bytes]:
    return lambda _: file.read(offset, size)


def _merged(found: list[_Entry]) -> list[list[_Entry]]:
    """Group neighbours in a file."""
    groups: list[list[_Entry]] = []
    last: tuple[str, int, int] = ("", 0, 0)  # file, first and last byte of the group under way
    for entry in sorted(found, key=lambda entry: (entry[2].file.path, entry[2].offset)):
        ref = entry[2]
        url, begin, end = last
        near = ref.file.path == url and ref.offset - end <= GAP and ref.offset + ref.size - begin <= MOST
        if near:
            groups[-1].append(entry)
        else:
            groups.append([entry])
            begin = ref.offset
        last = (ref.file.path, begin, max(end if near else 0, ref.offset + ref.size))
    return groups
