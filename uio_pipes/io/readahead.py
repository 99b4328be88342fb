"""Reading a remote file from some offset to its end in large blocks, several of which are requested in advance.

All streams of a process share ``BUDGET`` bytes. With many open, blocks get smaller, and the least recently read
streams are suspended, to be resumed where they were.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple
from weakref import ref

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import remembers
from uio_pipes.io.background import Job, submit
from uio_pipes.io.cache import Filling
from uio_pipes.io.ranged import RemoteFile, Sequential, Wait, give_back

BUDGET = 128 << 20  # bytes of a process
LARGEST = 8 << 20  # eight such requests at a time, each 50 ms late, bring a third more than of 4 MB
SMALLEST = 64 << 10
BEGIN = 256 << 10  # the first block: small, so that it comes soon
DEPTH = 16  # blocks of a stream, the one being read included: a buffer that refills needs many at once
MAX_ACTIVE = 256


class _Block(NamedTuple):
    offset: int
    end: int
    job: Job[memoryview]


_NOTHING = 0, memoryview(b"")


class ReadAhead:
    """The bytes of ``file``, read at offsets that never decrease. ``fill``: a cache entry to write them to.

    Raises DataError as ``RemoteFile``. For use from one thread at a time; a fork does no harm.
    """

    def __init__(self, file: RemoteFile, offset: int = 0, fill: Filling | None = None) -> None:
        self.file = file
        self._fill = fill
        self._blocks: deque[_Block] = deque()
        self._here = _NOTHING  # offset and bytes of the first block, once it is there: most reads stay in it
        self._begun_at = self._next = offset
        self._grown = BEGIN
        self._fetch: Callable[[int, int, Wait | None], memoryview] = file.fetch
        self._sequential: Sequential | None = None
        self._last: Job[memoryview] | None = None
        self._process = os.getpid()
        self._lock = threading.RLock()  # a stream of another thread suspends this one only between two reads
        self._ask()

    def read_upto(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only where the file ends."""
        first, data = self._here
        if first <= offset and offset + size <= first + len(data) and self._process == os.getpid():
            return bytes(data[offset - first : offset - first + size])
        if self._process != os.getpid():
            self._begin_in_child()
        with self._lock:
            return self._read(offset, size)

    def _read(self, offset: int, size: int) -> bytes:
        self._use(offset)
        block = self._block(offset)
        if block is None:
            return b""
        data = block.job.result()
        self._here = block.offset, data
        begin = offset - block.offset
        if begin + size <= len(data):
            return bytes(data[begin : begin + size])
        pieces = [bytes(data[begin:])]  # copied: the memory of a block is used again for the next one
        while (missing := size - sum(map(len, pieces))) > 0:
            block = self._block(offset + size - missing)
            if block is None:
                break
            self._here = block.offset, block.job.result()
            first = offset + size - missing - block.offset
            data = self._here[1][first : first + missing]
            if not data:
                break
            pieces.append(bytes(data))
        return b"".join(pieces)

    @property
    def stamp(self) -> str:
        return self.file.stamp

    def head(self) -> bytes:
        """Return the first 512 bytes of the file, wherever reading began."""
        return self.read_upto(0, 512) if self._begun_at == 0 else self.file.read_upto(0, 512)

    def near_end(self) -> bool:
        """Return whether the rest of the file has been requested."""
        return self.file.known and self.file.identity.size is not None and self._next >= self.file.size

    def prepare(self) -> None:
        """Request blocks before the first read, as soon as that needs no waiting."""
        blocks = self._blocks
        if blocks and len(blocks) < DEPTH and (self.file.known or blocks[0].job.over):
            with contextlib.suppress(DataError):  # raised again when it is read
                self._ask()

    def close(self) -> None:
        _streams.pop(id(self), None)
        self._suspend()
        if self._fill is not None:
            self._fill.discard()

    def __del__(self) -> None:
        self.close()

    def _block(self, offset: int) -> _Block | None:
        """Return the block that holds ``offset``, None at the end, and request those that follow."""
        blocks = self._blocks
        while blocks and blocks[0].end <= offset:
            done, self._here = blocks.popleft(), _NOTHING
            if done.job.over:
                done.job.then(give_back)
            else:
                done.job.cancel()
        if (not blocks and self._next < offset) or (blocks and offset < blocks[0].offset):
            self._drop()
            self._next = offset
        self._ask()
        return blocks[0] if blocks else None

    def _ask(self) -> None:
        """Keep requests in flight; only one until the file is known."""
        file, blocks = self.file, self._blocks
        if not file.known:
            if blocks:
                blocks[0].job.result()
            else:
                self._submit(self._next + self._grown)
                return
        total = file.identity.size
        if not file.identity.ranges and self._sequential is None:
            self._sequential = Sequential(file)
            self._fetch = self._sequential.fetch
        while len(blocks) < (2 if self._sequential else DEPTH) and (total is None or self._next < total):
            self._grown = min(self._grown * 2, max(SMALLEST, min(LARGEST, BUDGET // (DEPTH * max(1, len(_streams))))))
            end = self._next + self._grown
            if total is None and blocks and blocks[-1].job.over and not len(blocks[-1].job.result()):
                break
            self._submit(end if total is None else min(end, total))

    def _submit(self, end: int) -> None:
        offset, fetch, fill = self._next, self._fetch, self._fill
        before = self._last if self._sequential else None  # the one to wait for: they come in order

        def work(wait: Callable[[float], object]) -> memoryview:
            if before is not None:
                before.wait()
            data = fetch(offset, end - offset, wait)
            if fill is not None:
                fill.write(offset, data)
            return data

        job = submit(work)
        self._last = job if self._sequential else None
        self._blocks.append(_Block(offset, end, job))
        self._next = end

    def _begin_in_child(self) -> None:
        """Begin anew after a fork: the threads that fetch blocks, and the one that held the lock, are the parent's."""
        self._process, self._fill, self._lock = os.getpid(), None, threading.RLock()
        self._here = _NOTHING
        self._blocks.clear()
        self._last = None
        if self._sequential is not None:
            self._sequential = Sequential(self.file)
            self._fetch = self._sequential.fetch

    def _use(self, offset: int) -> None:
        """Become the most recently read stream, and suspend the oldest if there are too many."""
        if not self._blocks and self._next > offset:
            self._next = offset
        _streams.pop(id(self), None)
        _streams[id(self)] = ref(self)
        while len(_streams) > MAX_ACTIVE:
            oldest = _streams.popitem(last=False)[1]()
            if oldest is not None:
                oldest._suspend()

    def _drop(self) -> None:
        self._here = _NOTHING
        for block in self._blocks:
            block.job.cancel()
        if self._blocks:
            self._next = self._blocks[0].offset
        self._blocks.clear()

    def _suspend(self) -> None:
        """Drop what was requested, unless another thread is reading."""
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
                if self._sequential is not None:
                    self._sequential.close()
            finally:
                self._lock.release()


_streams: OrderedDict[int, ref[ReadAhead]] = OrderedDict()


def _asked() -> int:
    streams = [stream for each in list(_streams.values()) if (stream := each()) is not None]
    return sum(block.end - block.offset for stream in streams for block in tuple(stream._blocks))


remembers("blocks read ahead", _asked, BUDGET)
