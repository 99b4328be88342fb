"""How batches get from where lanes run to the trainer: in this process, or from one worker process each.

Each worker is a torch ``DataLoader`` with one worker of its own, so that the main process can choose which one it
takes the next batch from (torch's own round robin would tie the order to the number of workers). Small tensors travel
as arrays inside the message: a tensor's way through shared memory costs more than they do.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from uio_pipes.runner import LaneStream, Message, RunSpec

__all__ = ["InProcess", "Source", "Worker", "walk"]

SMALL = 1 << 16  # bytes
GRACE = 30  # torchrun's own: seconds that a worker lives on after SIGTERM, unless its trainer ends before
PLAIN = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)


class InProcess:
    """Lanes that run in this process."""

    def __init__(self, spec: RunSpec, lanes: list[int], states: dict[int, dict[str, Any]], pin: bool) -> None:
        self._stream = LaneStream(spec, lanes, states)
        self._pin = pin

    def take(self) -> Message:
        """The next message of these lanes, in their order."""
        message = next(self._stream)
        if self._pin:
            message.batch = _pinned(message.batch)
        return message

    def close(self) -> None:
        """Nothing to end."""


class Worker:
    """Lanes that run in a process of their own. Raises what fails there."""

    def __init__(
        self, spec: RunSpec, lanes: list[int], states: dict[int, dict[str, Any]], pin: bool, prefetch: int
    ) -> None:
        loader: Any = DataLoader(
            _Stream(spec, lanes, states),
            batch_size=None,
            num_workers=1,
            prefetch_factor=prefetch,
            collate_fn=_as_is,
            worker_init_fn=_outlive_sigterm,
            pin_memory=pin,
            generator=torch.Generator(),  # its seed for workers must not come from the trainer's generator
        )
        self._batches: Any = iter(loader)
        self._pid = os.getpid()
        self._pids = ", ".join(str(worker.pid) for worker in self._batches._workers)

    def take(self) -> Message:
        """The next message of these lanes, in their order."""
        message = self._receive()
        if message.error is not None:
            raise message.error from WorkerTraceback(message.reports[0])
        return message

    def _receive(self) -> Message:
        with contextlib.suppress(ConnectionError, EOFError, FileNotFoundError):  # its tensors went with it
            data: Message | _Packed = next(self._batches)
            return data.unpacked() if isinstance(data, _Packed) else data
        raise RuntimeError(f"worker process {self._pids} was killed (out of memory?); load the last state to go on")

    def close(self) -> None:
        """End the process; what it had prepared is dropped."""
        batches, self._batches = self._batches, None
        if batches is not None and self._pid == os.getpid():  # not in a process that was forked meanwhile
            batches._shutdown_workers()


Source = InProcess | Worker


def _outlive_sigterm(_: int) -> None:
    """torchrun and Slurm send SIGTERM to all processes of a rank; a trainer that saves first needs its workers."""
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(GRACE))


class _Stream(IterableDataset[Any]):
    def __init__(self, spec: RunSpec, lanes: list[int], states: dict[int, dict[str, Any]]) -> None:
        self.arguments = (spec, lanes, states)

    def __iter__(self) -> Iterator[Any]:
        try:
            for message in LaneStream(*self.arguments):
                yield _Packed(message)
        except Exception as error:
            yield _Packed(Message(-1, 0, 0, error=_portable(error), reports=[traceback.format_exc()]))


class _Small:
    """A small tensor on its way."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.array = tensor.numpy()


def _is_small(tensor: torch.Tensor) -> bool:
    usual = tensor.layout is torch.strided and tensor.dtype in PLAIN and not tensor.requires_grad
    return usual and tensor.is_cpu and tensor.nbytes <= SMALL


class _Packed:
    """A message on its way. Pickled at once: what cannot be would otherwise fail in a thread of the queue, unheard."""

    def __init__(self, message: Message) -> None:
        message.batch = walk(message.batch, torch.Tensor, lambda t: _Small(t) if _is_small(t) else t)
        self.data = bytes(ForkingPickler.dumps(message))

    def unpacked(self) -> Message:
        message: Message = pickle.loads(self.data)  # from our own worker
        message.batch = walk(message.batch, _Small, lambda s: torch.from_numpy(s.array))
        return message

    def pin_memory(self) -> Message:
        """Called by the DataLoader's thread."""
        message = self.unpacked()
        message.batch = _pinned(message.batch)
        return message


class WorkerTraceback(Exception):
    """Where in a worker an error was raised, as text."""


def _portable(error: Exception) -> Exception:
    """The error, or one of its text if it would not survive the way between processes."""
    try:
        pickle.loads(pickle.dumps(error))  # our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _as_is(message: Any) -> Any:
    return message


def _pinned(batch: Any) -> Any:
    return walk(batch, torch.Tensor, lambda t: t.pin_memory())


def walk(value: Any, kind: type, change: Any) -> Any:
    """``value`` with ``change`` applied to every ``kind`` in its dicts, lists and tuples."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {k: walk(v, kind, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (str, int, float, np.ndarray)):
        values = [walk(v, kind, change) for v in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    return value
