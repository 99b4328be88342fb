"""Runs lanes in this process or in worker processes, and brings their batches to the trainer.

Each worker process belongs to a torch ``DataLoader`` of its own. So the main process chooses the worker that gives the
next batch; torch's round robin would tie the order to the number of workers. Small tensors travel as arrays in the
message, large ones in a :class:`~uio_pipes.run.shared_memory.Ring`; without room there, each becomes a shared memory
file of its own, which is torch's way.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from uio_pipes.base import clock
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.processes import end_with_parent, uninterrupted
from uio_pipes.base.urls import redact
from uio_pipes.core import realize as batch_memory
from uio_pipes.core.schedule import show
from uio_pipes.run.lane_runner import LaneOptions, LaneStream, Message, Position
from uio_pipes.run.private import are_alive, close_our_writer, exit_code, is_late, shut_down, watch_alone, worker_pids
from uio_pipes.run.shared_memory import LENT, PLAIN, Ring, TensorPlace, Writer, leasing
from uio_pipes.run.stall import Stalled, Whereabouts, answer, looks_at_worker, watch_here
from uio_pipes.run.state import LaneState

logger = logging.getLogger("uio_pipes")
SHARED = "/dev/shm"
_AGAIN = "load the last state to go on"


def lost(pids: str, exit_code: int | None) -> RuntimeError:
    """Return the error for a worker that ended without a message; ``exit_code``: a signal's is negative."""
    if exit_code == -signal.SIGBUS:
        return RuntimeError(f"worker process {pids} ran out of shared memory: {_room()}; {_AGAIN}")
    if exit_code in (None, 0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGALRM):
        return RuntimeError(f"worker process {pids} was killed (out of memory?); {_AGAIN}")
    if exit_code is not None and exit_code > 0:
        what = f"ended itself with exit status {exit_code} (a function of the pipeline calls exit?)"
    else:
        name = signal.Signals(-(exit_code or 0)).name
        what = f"crashed ({name}) in compiled code: python -X faulthandler shows where"
    return RuntimeError(f"worker process {pids} {what}; {_AGAIN}")


def explained(error: Exception) -> Exception:
    """Return the error, or one with cause and remedy if there was no room in the memory that workers share."""
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None
    full |= isinstance(error, RuntimeError) and "shared memory" in str(error) and "No space left" in str(error)
    full |= isinstance(error, RuntimeError) and "torch_" in str(error) and "No space left" in str(error)
    return RuntimeError(f"{_room()}; {_AGAIN}") if full else error


def _room() -> str:
    try:
        total, _, free = shutil.disk_usage(SHARED)
        size = f"is too small ({total / 1e6:,.1f} MB, of which {free / 1e6:,.1f} are free)"
    except OSError:
        size = "is missing"
    return (
        f"{SHARED}, through which workers pass data to the trainer, {size}: give the container more (docker run "
        "--shm-size=8g, or --ipc=host; in Kubernetes a volume emptyDir with medium: Memory), or use fewer workers"
    )


SMALL = 1 << 13  # bytes: up to this size, an array in the message costs less than a place in the ring
MEDIUM = 1 << 16  # bytes: up to this size, it costs less than a file
GRACE = 30  # seconds, as in torchrun: a worker lives so long after SIGTERM, unless its trainer ends before


class MessageSource(Protocol):
    """Gives the messages of lanes. ``ahead``: it prepares them meanwhile, so that waiting takes no time of the CPU."""

    @property
    def ahead(self) -> bool: ...

    def take(self) -> Message: ...


class InProcess:
    """Lanes that run in this process."""

    ahead = False

    def __init__(self, options: LaneOptions, states: dict[int, LaneState], pin: bool) -> None:
        self._over = threading.Event() if options.patience is None else watch_here(options.patience)
        weakref.finalize(self, self._over.set)
        self._stream = LaneStream(options, states)
        self._pin = pin

    def take(self) -> Message:
        """Return the next message of these lanes, in their order."""
        message = next(self._stream)
        if self._pin:
            message.batch = pinned(message.batch)
        return message

    def close(self) -> None:
        """Watch these lanes no longer."""
        self._over.set()


class Worker:
    """Lanes that run in a process of their own. Its errors are raised here."""

    ahead = True

    def __init__(self, options: LaneOptions, states: dict[int, LaneState], pin: bool, prefetch: int) -> None:
        context = start_context()
        if context.get_start_method() != "fork":
            _check_sendable(options, context.get_start_method())
        self._context, self._options, self._pin, self._prefetch = context, options, pin, prefetch
        self._again = False  # whether the lanes have begun again since the last message
        self._begin(states)

    def _begin(self, states: dict[int, LaneState]) -> None:
        patience, prefetch, context = self._options.patience, self._prefetch, self._context
        self._positions = {lane: Position(replace(state)) for lane, state in states.items()}
        self._asking, asked = context.Pipe()
        # Slots: for batches in the queue, the one being made, one that a user's node may hold, the trainer's.
        self._ring = Ring.made(prefetch + 2 + LENT)
        loader: Any = DataLoader(
            _WorkerLanes(self._ring, self._options, states, asked),
            batch_size=None,
            num_workers=1,
            prefetch_factor=prefetch,
            timeout=0 if patience is None else patience.tick,
            collate_fn=_as_is,
            worker_init_fn=_begin,
            multiprocessing_context=context,
            generator=torch.Generator(),  # the worker's seed must not be drawn from the trainer's generator
        )
        self._pid = os.getpid()
        with uninterrupted():  # until it is known at exit: multiprocessing would wait for a process that nobody ends
            try:
                self._batches: Any = iter(loader)
            except OSError as error:
                raise explained(error) from error
            close_our_writer(self._batches)
            watch_alone(self._batches)
            _end_at_exit(self)
        (self._worker,) = worker_pids(self._batches)
        asked.close()  # the worker has its own

    def take(self) -> Message:
        """Return the next message of these lanes, in their order. Raises: Stalled if none comes."""
        message = checked(self._receive())
        if self._options.failures.hung == "skip":
            self._positions[message.lane].advance(message)
            self._again = False
        return message

    def _receive(self) -> Message:
        batches, watch, patience = self._batches, None, self._options.patience
        with contextlib.suppress(ConnectionError, EOFError, FileNotFoundError):  # its tensors went with it
            while self._batches is not None:
                try:
                    began = clock.now()
                    packed: PackedMessage = next(batches)
                    clock.note("waiting for a worker", began)
                    return packed.unpacked(self._ring, self._pin)
                except RuntimeError as error:  # torch's, which says less
                    if not are_alive(batches):
                        break
                    if patience is None or not is_late(error):
                        raise
                watch = watch or looks_at_worker(patience, self._worker, self._asking, self._give_up)
                next(watch)
        raise lost(str(self._worker), exit_code(batches))

    def _give_up(self, seen: Whereabouts, stalled: Stalled) -> NoReturn:
        """End the process, and raise the error, with what brings its lanes to a new one if that is wanted."""
        batches, self._batches = self._batches, None
        if not shut_down(batches, now=True):
            logger.warning("worker process %d cannot be killed: it is left behind, to end when it can", self._worker)
        if self._options.failures.hung == "skip" and (seen.name or not self._again):
            states = {lane: position.saved() for lane, position in self._positions.items()}
            if seen.name and seen.lane is not None:
                states[seen.lane] = states[seen.lane].passing_over(seen.name)
            stalled.go_on, self._again = partial(self._begin, states), True
        raise stalled

    def close(self) -> None:
        """End the process and drop what it had prepared."""
        batches, self._batches, self._ring = self._batches, None, None
        self._asking.close()
        if batches is not None and self._pid == os.getpid():  # not in a process that was forked since
            shut_down(batches)


def start_context() -> BaseContext:
    """Return the context whose processes start as ``set_start_method`` said. If nothing was said: by fork on Linux, as
    by Python's own default before 3.14, since a pipeline may hold functions that no other process can import."""
    linux = sys.platform == "linux" and multiprocessing.get_start_method(allow_none=True) is None
    return multiprocessing.get_context("fork" if linux else None)


def _check_sendable(options: LaneOptions, method: str) -> None:
    """Raises: PipelineError naming the stage that cannot be sent to a process that is not a fork."""
    stages = reversed(list(options.pipeline._every_stage()))  # those within a mix come before it
    parts = [(stage.describe(), stage) for stage in stages]
    for name, part in [*parts, *((f"skip({show(function)})", function) for function in options.key_filters)]:
        try:
            ForkingPickler.dumps(part)
        except Exception as error:
            raise PipelineError(
                f"{name} cannot be sent to worker processes that start by {method} ({error}): define its functions at "
                "the top level of a module, not as lambda; or start workers by fork: "
                'multiprocessing.set_start_method("fork"); or leave out num_workers'
            ) from error


class Runner(MessageSource, Protocol):
    """Runs lanes somewhere."""

    def close(self) -> None:
        """End what runs the lanes."""


_AT_EXIT: weakref.WeakSet[Worker] = weakref.WeakSet()


def _end_at_exit(worker: Worker) -> None:
    """End the worker at exit, before torch and multiprocessing send SIGTERM to processes that are left and wait."""
    _AT_EXIT.add(worker)
    atexit.unregister(_end_all)
    atexit.register(_end_all)  # the last one registered is called first


def _end_all() -> None:
    for worker in list(_AT_EXIT):
        worker.close()


def _begin(_: int) -> None:
    """Prepare the process of a worker.

    torchrun and Slurm send SIGTERM to all processes of a rank, but a trainer that saves first still needs its workers.
    A terminal sends Ctrl-C to all of them, too, and it is the trainer that ends its workers.
    """
    end_with_parent()  # torch's own watch misses a parent that dies while its worker starts
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the trainer may use it for something else
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(GRACE))


class _WorkerLanes(IterableDataset[Any]):
    def __init__(
        self, ring: Ring | None, options: LaneOptions, states: dict[int, LaneState], asked: Connection
    ) -> None:
        self.ring, self.options, self.states, self.asked = ring, options, states, asked

    def __iter__(self) -> Iterator[Any]:
        try:
            answer(self.asked)
            writer = Writer(self.ring)
            batch_memory.use(writer.empty)
            if self.options.traced:
                clock.start()
            stream, made = LaneStream(self.options, self.states), 0
            for number in count(1):
                writer.begin()
                clock.detail(number % clock.DETAILED == 1)
                began = clock.now()
                message = next(stream, None)
                if message is None:
                    return
                clock.note("making a batch", began)
                if message.batch is not None and clock.running is not None:  # others may not be heard of
                    message.spans = clock.running.lines()
                packed, began = PackedMessage(message, writer), clock.now()
                yield packed
                clock.note("waiting for the trainer", began)
                if (made := made + (message.batch is not None)) == self.options.traced:
                    clock.stop()
        except Exception as error:
            yield PackedMessage(failed(error), Writer(None))


class AsArray:
    """A tensor that is sent as an array."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.array = tensor.numpy()


class PackedMessage:
    """A pickled message. It is pickled here, as an error in the thread of torch's queue would not be noticed."""

    @clock.timed("handing over")
    def __init__(self, message: Message, writer: Writer) -> None:
        message.batch = walk(message.batch, torch.Tensor, lambda tensor: _packed(tensor, writer))
        self.data = bytes(ForkingPickler.dumps(message))
        self.slot = writer.sent()

    @clock.timed("taking over")
    def unpacked(self, ring: Ring | None, pin: bool) -> Message:
        """Return the message, with tensors that nobody else writes to."""
        message: Message = pickle.loads(self.data)  # from our own worker
        message.batch = as_tensors(message.batch)
        if pin:
            message.batch = pinned(message.batch)
        if self.slot is not None and ring is not None:
            with leasing():
                message.batch = walk(message.batch, TensorPlace, ring.received(self.slot, pin).tensor)
        return message


def _packed(tensor: torch.Tensor, writer: Writer) -> Any:
    """Return what stands for the tensor in the message: an array, a place in the ring, or the tensor itself."""
    if not is_plain(tensor):
        return tensor
    place = writer.place(tensor) if tensor.nbytes > SMALL else None
    if place is not None:
        return place
    return AsArray(tensor) if tensor.nbytes <= MEDIUM else tensor


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is nothing but an array."""
    usual = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.dtype in PLAIN
    return usual and not tensor.requires_grad and tensor.is_cpu


def as_arrays(batch: Any) -> Any:
    """Return the batch with arrays instead of its plain tensors, for :func:`as_tensors`; they share memory."""
    return walk(batch, torch.Tensor, lambda tensor: AsArray(tensor) if is_plain(tensor) else tensor)


def as_tensors(batch: Any) -> Any:
    """Return the batch with the tensors that were sent as arrays."""
    return walk(batch, AsArray, lambda sent: torch.from_numpy(sent.array))


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, as text."""


def failed(error: Exception) -> Message:
    """Return the last message of a worker, which an error ended."""
    return Message(-1, 0, 0, error=portable(explained(error)), reports=[redact(traceback.format_exc())])


def checked(message: Message) -> Message:
    """Return the message. Raises: the error that it brings."""
    if message.error is not None:
        raise message.error from WorkerTraceback(message.reports[0])
    return message


def portable(error: Exception) -> Exception:
    """Return the error, or one with its text if it cannot be sent between processes."""
    try:
        pickle.loads(pickle.dumps(error))  # our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _as_is(message: Any) -> Any:
    return message


def pinned(batch: Any) -> Any:
    """Return the batch with its tensors in pinned memory."""
    return walk(batch, torch.Tensor, lambda t: t.pin_memory())


def walk(value: Any, kind: type, change: Any) -> Any:
    """Return ``value`` with ``change`` applied to every ``kind`` in its dicts, lists and tuples."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {k: walk(v, kind, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (str, int, float, np.ndarray)):
        values = [walk(v, kind, change) for v in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    return value
