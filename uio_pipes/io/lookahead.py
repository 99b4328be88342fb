"""Small reads in any order, made in the background before they are needed: neighbours in a file by one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from zlib import crc32

from uio_pipes.errors import DataError
from uio_pipes.io.background import Job, submit
from uio_pipes.io.local import RandomFile, Ref
from uio_pipes.io.remote import CachedFile, RemoteFile

__all__ = ["Upcoming", "Whole", "fetch_early"]

GAP = 64 << 10  # bytes between two neighbours that are read along
MOST = 4 << 20  # bytes of one request for several
HEAD = 256 << 10  # first request for a file of unknown size: most are whole then
COUNT = 32  # items looked ahead
BYTES = 64 << 20  # of those not yet given out

T = TypeVar("T")


class Whole(Ref):
    """All of a remote file, whose size is not known yet."""

    __slots__ = ()

    def __init__(self, file: RandomFile) -> None:
        self.file, self.offset = file, 0
        self.head, self.info, self.crc = b"", None, None

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.file.size

    def read(self) -> bytes:
        return _whole(self.file)


class _Coming(Ref):
    """A reference whose bytes are under way: ``size`` of them from ``first`` on in what the job fetches."""

    __slots__ = ("_first", "_job")

    def __init__(self, ref: Ref, job: Job[bytes], first: int) -> None:
        self.file, self.offset, self.info, self.crc, self.head = ref.file, ref.offset, ref.info, ref.crc, ref.head
        self._job, self._first = job, first
        if not isinstance(ref, Whole):
            self.size = ref.size

    @property
    def nbytes(self) -> int:
        return self.size if not isinstance(self, _ComingWhole) else len(self._job.result()) if self._job.over else 0

    def read(self) -> bytes:
        data = self._bytes()
        if self.crc is not None and crc32(data) != self.crc:
            return Ref.read(self)  # says so, or reads it right this time
        return data

    def read_at(self, start: int, size: int) -> bytes:
        if start + size <= len(self.head):
            return self.head[start : start + size]
        return self._bytes()[start : start + max(0, size)]

    def _bytes(self) -> bytes:
        return self._job.result()[self._first : self._first + self.size]


class _ComingWhole(_Coming):
    __slots__ = ()

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self._job.result())

    def _bytes(self) -> bytes:
        return self._job.result()


def _whole(file: RandomFile) -> bytes:
    """One request for a small file, two for a large one."""
    if isinstance(file, CachedFile) or (isinstance(file, RemoteFile) and file.known):
        return file.read(0, file.size)
    data = file.read_upto(0, HEAD)
    return data if len(data) < HEAD or len(data) == file.size else data + file.read(HEAD, file.size - HEAD)


def is_far(value: object) -> bool:
    """Whether it is a reference into a remote file that nobody fetches yet."""
    far = isinstance(value, Ref) and not isinstance(value, _Coming)
    return far and isinstance(value.file, (RemoteFile, CachedFile))  # type: ignore[attr-defined]


def fetch_early(samples: Iterable[dict[str, Any]]) -> int:
    """Have what the fields refer to in remote files fetched in the background; bytes that this will take, if known."""
    found = [(fields, name, ref) for fields in samples for name, ref in fields.items() if is_far(ref)]
    taken = 0
    for group in _merged([entry for entry in found if not isinstance(entry[2], Whole)]):
        begin = group[0][2].offset
        end = max(ref.offset + ref.size for _, _, ref in group)
        job = submit(_reading(group[0][2].file, begin, end - begin))
        taken += end - begin
        for fields, name, ref in group:
            fields[name] = _Coming(ref, job, ref.offset - begin)
    for fields, name, ref in found:
        if isinstance(ref, Whole):
            fields[name] = _ComingWhole(ref, submit(_reading_whole(ref.file)), 0)
    return taken


_Entry = tuple[dict[str, Any], str, Ref]


def _reading(file: RandomFile, offset: int, size: int) -> Callable[[object], bytes]:
    return lambda _: file.read(offset, size)


def _reading_whole(file: RandomFile) -> Callable[[object], bytes]:
    return lambda _: _whole(file)


def _merged(found: list[_Entry]) -> list[list[_Entry]]:
    """Neighbours in a file together."""
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


class _Item(NamedTuple):
    before: dict[str, Any]
    value: Any
    fields: dict[str, Any] | Exception


class Upcoming(Generic[T]):
    """Items of a node with their fields; where those are in remote files, some to come are fetched already.

    ``load``: item → fields; its DataErrors come out at their turn, as do all that the node raises. The state is that
    of the first item not given out. Nothing is looked at before its time while ``passing()``.
    """

    def __init__(self, source: Any, load: Callable[[T], dict[str, Any]], passing: Callable[[], bool]) -> None:
        self._source, self._load, self._passing = source, load, passing
        self._items: deque[_Item] = deque()
        self._far = self._ended = False

    def next(self) -> tuple[T, dict[str, Any] | DataError]:
        """Raises what the node raises, StopIteration at the end."""
        if not self._items:
            self._ended = False
            self._take(1)
        if self._far and len(self._items) <= COUNT // 2 and not self._ended and not self._passing():
            self._take(COUNT - len(self._items))
        item = self._items.popleft()
        if isinstance(item.fields, Exception) and not isinstance(item.fields, DataError):
            raise item.fields
        return item.value, item.fields

    def _take(self, count: int) -> None:
        taken: list[dict[str, Any]] = []
        for _ in range(count):
            before = self._source.get_state() if self._far else {}
            try:
                value = self._source.next()
            except Exception as error:
                self._items.append(_Item(before, None, error))
                self._ended = True
                break
            try:
                fields: dict[str, Any] | Exception = self._load(value)
            except Exception as error:
                fields = error
            self._items.append(_Item(before, value, fields))
            if isinstance(fields, Mapping):
                taken.append(fields)
        self._far = self._far or any(is_far(v) for fields in taken for v in fields.values())
        if self._far and not self._passing():
            fetch_early(taken)

    def clear(self) -> None:
        """The node was reset."""
        self._items.clear()
        self._ended = False

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._items[0].before if self._items else self._source.get_state()
        return state

    def __len__(self) -> int:
        return len(self._items)
