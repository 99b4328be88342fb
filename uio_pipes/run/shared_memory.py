"""Memory that a worker and its main process share: a few slots, each for the tensors of one message, used in turn.

A new shared memory file for each tensor would cost a page fault for every 4 KiB, which is more than the copy it saves.
Nobody ever waits for a slot: a worker that finds none free sends its tensors in another way. The trainer's tensors lie
in the slot itself, without a copy. A slot is free when nobody refers to these tensors, or to what the worker made in
it; so a batch that the trainer keeps, or that a user's node holds back, never changes. If a trainer keeps more than
``LENT`` batches, the others are copied; before it forks, its batches move to memory of its own. The memory has no name:
it is freed with the last process that maps it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np
import torch

SLOT = 1 << 28  # bytes of address space; only what is written takes memory
PAGE = mmap.PAGESIZE
ALIGN = 64
LENT = 3  # slots of a ring on the trainer's side: for the batch it works on, the next one, and one received ahead
PLAIN = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)


class TensorPlace(NamedTuple):
    """The place of a tensor in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class Ring:
    """A number of slots, made in the main process and passed to one worker, by fork or by spawn."""

    def __init__(self, slots: int, fd: int | None = None) -> None:
        """Raises: OSError if the system has no such memory."""
        self.slots = slots
        self._fd = os.memfd_create("uio_pipes", os.MFD_CLOEXEC) if fd is None else fd
        try:
            if fd is None:
                os.ftruncate(self._fd, PAGE + slots * SLOT)
            self._memory = mmap.mmap(self._fd, PAGE + slots * SLOT)
        except (OSError, ValueError):
            os.close(self._fd)
            raise
        weakref.finalize(self, os.close, self._fd)
        self.in_use = np.frombuffer(
            self._memory, np.uint8, slots
        )  # for each slot, 1 from its sending until it is released
        self.address = self.in_use.ctypes.data
        self._lent: dict[int, int] = {}  # slots in which tensors of this process lie → their bytes
        self._parted: dict[
            int, Callable[[], int]
        ] = {}  # those of them that `part` moved → maps the ring's memory again
        _RINGS.add(self)

    @classmethod
    def made(cls, slots: int) -> Ring | None:
        """Return a ring, or None if the system has no such memory."""
        try:
            return cls(slots) if hasattr(os, "memfd_create") and slots <= PAGE else None
        except (OSError, ValueError):
            return None

    def __reduce__(self) -> Any:
        return _attached, (self.slots, reduction.DupFd(self._fd))

    def array(self, slot: int, place: TensorPlace) -> np.ndarray[Any, Any]:
        """Return the memory at ``place``, without a copy."""
        count = math.prod(place.shape)
        flat = np.frombuffer(
            self._memory, str(place.dtype).removeprefix("torch."), count, PAGE + slot * SLOT + place.offset
        )
        return flat.reshape(place.shape)

    def maps(self, slot: int, size: int) -> tuple[Callable[[], int], Callable[[], int]]:
        """Return two functions: one maps private memory over the first ``size`` bytes of the slot, one maps the ring's
        memory there again. Both return the address, or another number if that fails."""
        at = PAGE + slot * SLOT
        where = self.address + at, size, mmap.PROT_READ | mmap.PROT_WRITE
        alone = partial(_mmap, *where, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1, 0)
        return alone, partial(_mmap, *where, mmap.MAP_SHARED | _MAP_FIXED, self._fd, at)

    def received(self, slot: int, pin: bool) -> _Lease:
        """Return a lease of the slot of a message that has arrived, within ``leasing``. ``pin``: copy its tensors to
        pinned memory."""
        return _Lease(self, slot, pin, copies=pin or len(self._lent) >= LENT)

    def lend(self, slot: int, size: int) -> None:
        """Note that tensors lie in the first ``size`` bytes of the slot."""
        self._lent[slot] = max(self._lent.get(slot, 0), size)

    def part(self) -> None:
        """Move the tensors that lie here to memory of this process alone. Their addresses stay."""
        for slot, size in self._lent.items():
            if slot not in self._parted:
                memory = self.array(slot, TensorPlace(0, (size,), torch.uint8))
                kept = memory.copy()
                alone, back = self.maps(slot, size)
                if alone() == self._start(slot):
                    memory[:], self._parted[slot] = kept, back

    def release(self, slot: int) -> None:
        """Let the worker use the slot again: no tensor lies there any more."""
        self._lent.pop(slot, None)
        back = self._parted.pop(slot, None)
        if back is None or back() == self._start(slot):
            self.in_use[slot] = 0

    def _start(self, slot: int) -> int:
        return int(self.address) + PAGE + slot * SLOT


class _Lease:
    """A slot in the main process, released with the last of its tensors."""

    def __init__(self, ring: Ring, slot: int, pin: bool, copies: bool) -> None:
        self.ring, self.slot, self.pin, self.copies = ring, slot, pin, copies
        self._process, self._here = os.getpid(), os.getpid

    def tensor(self, place: TensorPlace) -> torch.Tensor:
        """Return the tensor at ``place``."""
        array = self.ring.array(self.slot, place)
        if self.copies:
            made = torch.empty(place.shape, dtype=place.dtype, pin_memory=self.pin)
            return made.copy_(torch.from_numpy(array))
        held = array.view(_Held)
        held.lease = self
        self.ring.lend(self.slot, place.offset + array.nbytes)
        return torch.from_numpy(held)

    def __del__(self) -> None:
        if self._process == self._here() and _ended is not None:  # not forked since, nor is the interpreter ending
            _ended.append((self.ring, self.slot))
            _release()


class _Held(np.ndarray[Any, Any]):
    """An array that is kept by a tensor, and keeps the lease."""

    lease: _Lease


# PyDLL keeps the interpreter's lock: no other thread may see a slot between two mappings.
_mmap: Any = ctypes.PyDLL(None).mmap if hasattr(os, "memfd_create") else None
_MAP_FIXED = 0x10
_RINGS: weakref.WeakSet[Ring] = weakref.WeakSet()
_ended: deque[tuple[Ring, int]] = deque()  # slots that are to be released
_lock = threading.RLock()  # held while tensors are handed out, slots are released, or the process forks
_forking = False


@contextlib.contextmanager
def leasing() -> Iterator[None]:
    """Unpack a message within: no fork comes between two of its tensors."""
    try:
        with _lock:
            yield
    finally:
        _release()


def _release() -> None:
    """Release the slots that have ended, or leave that to who holds the lock. Nobody waits: a lease ends anywhere."""
    while _ended and not _forking and _lock.acquire(blocking=False):
        try:
            ring, slot = _ended.popleft()
            ring.release(slot)
        except IndexError:  # another lease ended just here, and released both
            return
        finally:
            _lock.release()


def _before_fork() -> None:
    """Separate the batches of parent and child: neither may change with what the other one does."""
    global _forking
    _lock.acquire()
    _forking = True
    for ring in list(_RINGS):
        ring.part()


def _after_fork() -> None:
    global _forking
    _forking = False
    _lock.release()
    _release()


def _after_fork_in_child() -> None:
    _ended.clear()  # the parent releases them
    _after_fork()


if _mmap is not None:
    _mmap.restype = ctypes.c_void_p
    _mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _attached(slots: int, fd: Any) -> Ring:
    return Ring(slots, fd.detach())


class Writer:
    """The worker's side: makes tensors in the slot of the current message, or copies them there."""

    def __init__(self, ring: Ring | None) -> None:
        self._ring = ring
        self._views: list[list[weakref.ref[Any]]] = [[] for _ in range(ring.slots if ring else 0)]
        self._slot: int | None = None
        self._used = 0
        self._made: dict[int, TensorPlace] = {}  # address of a tensor made here → its place

    def begin(self) -> None:
        """Begin a new message: take a free slot, if there is one."""
        self._slot, self._used, self._made = next(filter(self._free, range(len(self._views))), None), 0, {}

    def _free(self, slot: int) -> bool:
        assert self._ring is not None
        return not self._ring.in_use[slot] and all(view() is None for view in self._views[slot])

    def sent(self) -> int | None:
        """Return the slot that the current message uses, or None. From now on it belongs to the main process."""
        if self._ring is None or self._slot is None or not self._used:
            return None
        self._ring.in_use[self._slot] = 1
        return self._slot

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor in the slot, or an ordinary one if there is no room."""
        place = self._room(shape, dtype)
        return torch.empty(shape, dtype=dtype) if place is None else self._view(place)

    def place(self, tensor: torch.Tensor) -> TensorPlace | None:
        """Return the place of a plain CPU tensor in the slot, copied there if need be; None if there is no room."""
        made = self._made.get(tensor.data_ptr())
        if made is not None and made.dtype is tensor.dtype and tensor.is_contiguous():
            return TensorPlace(made.offset, tuple(tensor.shape), tensor.dtype)  # all of it, or its first rows
        place = self._room(tuple(tensor.shape), tensor.dtype)
        if place is not None:
            self._view(place).copy_(tensor)
        return place

    def _room(self, shape: tuple[int, ...], dtype: torch.dtype) -> TensorPlace | None:
        size = math.prod(shape) * dtype.itemsize
        if self._slot is None or size == 0 or self._used + size > SLOT or dtype not in PLAIN:
            return None
        place = TensorPlace(self._used, shape, dtype)
        self._used += -(-size // ALIGN) * ALIGN
        return place

    def _view(self, place: TensorPlace) -> torch.Tensor:
        assert self._ring is not None
        assert self._slot is not None
        if not self._made:
            self._views[self._slot] = []
        array = self._ring.array(self._slot, place)
        self._views[self._slot].append(weakref.ref(array))
        tensor = torch.from_numpy(array)  # it keeps the array, as all its views do
        self._made[tensor.data_ptr()] = place
        return tensor
