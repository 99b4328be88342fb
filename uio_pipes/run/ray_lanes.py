"""What a Ray actor runs: lanes, as in a worker process, of one worker of the trainer's or of several.

A message travels in two parts: its large tensors as arrays, which Ray's object store holds without copying them into a
pickle, and all else as bytes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from uio_pipes.run.lane_runner import Message
from uio_pipes.run.lane_stream import LaneStream
from uio_pipes.run.workers import SMALL, AsArray, as_tensors, failed, is_plain, pinned, walk

Packed = tuple[bytes, list["np.ndarray[Any, Any]"]]


class _Place(NamedTuple):
    """The place of a tensor in a message: it is the array of this number."""

    array: int
    dtype: torch.dtype


class Lanes:
    """The actor. Calls of its first group are answered one after the other; ``ping`` and ``end`` belong to another."""

    def __init__(self) -> None:
        self._streams: dict[int, Iterator[Message] | None] = {}  # by the number that the trainer gave; None: ended

    def node(self) -> str:
        """Return the ID of the node where the actor runs."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def ping(self) -> None:
        """Show that the actor answers."""

    def begin(self, number: int, given: bytes, folder: str) -> None:
        """Begin lanes: ``given`` is a pickle of a RunSpec and the states of the lanes; paths start at ``folder``."""
        with contextlib.suppress(OSError):  # it may not be there, which matters only to relative paths
            os.chdir(folder)
        if number not in self._streams:
            self._streams[number] = _messages(given)

    def next(self, number: int, count: int) -> list[Packed]:
        """Return the next messages of these lanes, ``count`` if there are as many."""
        made: list[Packed] = []
        while len(made) < count and (stream := self._streams.get(number)) is not None:
            message = next(stream, None)
            if message is None:
                break
            try:
                made.append(_packed(message))
            except Exception as error:
                made.append(_packed(failed(error)))
        return made

    def end(self, number: int) -> None:
        """Drop these lanes, and what was asked of them."""
        self._streams[number] = None


def _messages(given: bytes) -> Iterator[Message]:
    try:
        yield from LaneStream(*pickle.loads(given))  # from our own trainer
    except Exception as error:
        yield failed(error)


def pickled(value: Any) -> bytes:
    """Return a pickle, which may contain functions and classes of the trainer's script."""
    from ray import cloudpickle

    made: bytes = cloudpickle.dumps(value, protocol=4)  # type: ignore[no-untyped-call]
    return made


def _packed(message: Message) -> Packed:
    arrays: list[np.ndarray[Any, Any]] = []

    def placed(tensor: torch.Tensor) -> Any:
        if not is_plain(tensor):
            return tensor
        if tensor.nbytes <= SMALL:
            return AsArray(tensor)
        arrays.append(tensor.contiguous().numpy())
        return _Place(len(arrays) - 1, tensor.dtype)

    message.batch = walk(message.batch, torch.Tensor, placed)
    return pickled(message), arrays


def unpacked(packed: Packed, pin: bool) -> Message:
    """Return the message. Its tensors are copied out of the object store, where they could not be written to."""
    data, arrays = packed
    message: Message = pickle.loads(data)  # from our own actor

    def copied(place: _Place) -> torch.Tensor:
        array = arrays[place.array]
        made = torch.empty(array.shape, dtype=place.dtype, pin_memory=pin)
        np.copyto(made.numpy(), array)
        return made

    message.batch = walk(message.batch, _Place, copied)
    message.batch = as_tensors(message.batch)
    message.batch = pinned(message.batch) if pin else message.batch
    return message
