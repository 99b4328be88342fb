"""Early background reads of what references point to in remote files; neighbours in a file share one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from zlib import crc32

from uio_pipes.base.errors import DataError
from uio_pipes.core.ledger import Ledger
from uio_pipes.io.background import Job, submit
from uio_pipes.io.local import RandomFile, Ref
from uio_pipes.io.remote import CachedFile, RemoteFile

__all__ = ["Upcoming", "Whole", "fetch_early"]

GAP = 64 << 10  # bytes between two neighbours that are read along
MOST = 4 << 20  # bytes of one request for several references; of longer audio only a segment may be wanted
HEAD = 256 << 10  # first request for a file of unknown size: holds most files whole
COUNT = 32  # items looked ahead
BYTES = 64 << 20  # roughly, of the items not yet given out

T = TypeVar("T")


class Whole(Ref):
    """A whole remote file of unknown size. Its first 256 KB, mostly all of it, are read once and kept."""

    __slots__ = ("_begun", "_job")

    def __init__(self, file: RandomFile) -> None:
        self.file, self.offset = file, 0
        self.head, self.info, self.crc = b"", None, None
        self._begun: bytes | None = None
        self._job: Job[bytes] | None = None

    def fetch_early(self) -> None:
        if self._job is None and self._begun is None:
            self._job = submit(lambda _: self.file.read_upto(0, HEAD))

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
    return isinstance(value, Ref) and isinstance(value.file, (RemoteFile, CachedFile))


def fetch_early(samples: Iterable[dict[str, Any]]) -> int:
    """Start fetching what the fields refer to in remote files. Return the number of bytes that this takes at most."""
    found = []
    taken = 0
    for fields in samples:
        for name, value in fields.items():
            if isinstance(value, Whole):
                value.fetch_early()
                taken += HEAD
            elif is_far(value) and not isinstance(value, _Coming) and value.size <= MOST:
                found.append((fields, name, value))
    for group in _merged(found):
        begin = group[0][2].offset
        end = max(ref.offset + ref.size for _, _, ref in group)
        job = submit(_reading(group[0][2].file, begin, end - begin))
        taken += end - begin
        for fields, name, ref in group:
            fields[name] = ref.reading(_Coming(ref, job, ref.offset - begin))
    return taken


_Entry = tuple[dict[str, Any], str, Ref]


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


class _Item(NamedTuple):
    before: dict[str, Any]
    value: Any
    fields: dict[str, Any] | Exception


class Upcoming(Generic[T]):
    """Items of a node with their fields; where those are in remote files, some to come are fetched already.

    ``load``: item → fields; its DataErrors come out at their turn, as does what the node raises. The state is that of
    the first item not given out. While what is made is not wanted (a restore), nothing is fetched before its time.
    """

    def __init__(self, source: Any, load: Callable[[T], dict[str, Any]], ledger: Ledger) -> None:
        self._source, self._load, self._ledger = source, load, ledger
        self._items: deque[_Item] = deque()
        self._far = self._ended = False
        self._count = COUNT

    def next(self) -> tuple[T, dict[str, Any] | DataError]:
        """Raises what the node raises, StopIteration at the end."""
        if not self._items:
            self._ended = False
            self._take(1)
        if self._far and len(self._items) <= self._count // 2 and not self._ended and not self._idle():
            self._take(self._count - len(self._items))
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
        if self._far and not self._idle():
            fetching = fetch_early(taken)
            if fetching > BYTES // 2:
                self._count = max(1, count * (BYTES // 2) // fetching)

    def _idle(self) -> bool:
        return self._ledger.passing or self._ledger.skimming

    def clear(self) -> None:
        """The node was reset."""
        self._items.clear()
        self._ended = False

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._items[0].before if self._items else self._source.get_state()
        return state

    def __len__(self) -> int:
        return len(self._items)
