"""Reading by one process for its peers, which get the same batches.

Each has a merge of its own, which asks for messages in the same order; on the first peer they come from the runners of
its lanes and are sent on, on the others they are received. So positions, states, statistics and errors are the same on
all of them.

A message goes to each peer in two sends of gloo: how long it is, and one block of bytes. A broadcast that is left in
the middle could not be given up; a send that nobody receives costs nothing. The peer that reads gives a batch to its
trainer once all others have it, so it may end at any time, and never runs far ahead.
"""

from __future__ import annotations

import contextlib
import pickle
import weakref
from collections import deque
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from uio_pipes.run.lane_runner import Message
from uio_pipes.run.ranks import RankPlace, patience, private_group, waiting
from uio_pipes.run.shared_memory import ALIGN
from uio_pipes.run.stall import Stalled
from uio_pipes.run.workers import MessageSource, Runner, as_arrays, as_tensors, checked, failed, pinned

_runs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # by the peers' group


class Handover:
    """The messages of one run, from the peer that reads to the others. What an earlier run left is never received."""

    def __init__(self, ranks: RankPlace) -> None:
        self.reads = ranks.reads
        self.failed: Exception | None = None  # the error that was sent: no message follows it
        self._first, *self._others = ranks.peers
        self._sends: deque[list[Any]] = deque()  # for each message that a peer may not have received yet
        self._received = 0

    @cached_property
    def _way(self) -> dict[str, Any]:
        """The peers' group, and the number of this run in it. All peers come here with the first message."""
        group = private_group([self._first, *self._others])
        _runs[group] = _runs.get(group, 0) + 1
        return {"group": group, "tag": _runs[group]}

    def sources(self, start: Callable[[], dict[int, Runner]], lanes: Collection[int], pin: bool) -> dict[int, Any]:
        """Return lane → where its messages come from. Only the peer that reads starts runners.

        If they cannot be started, the first message is the error: so all peers hear of it.
        """
        if not self.reads:
            return dict.fromkeys(lanes, Receiving(self, pin))
        try:
            return {lane: HandedOver(runner, self) for lane, runner in start().items()}
        except Exception as error:
            return dict.fromkeys(lanes, HandedOver(_Failed(error), self))

    def send(self, message: Message) -> None:
        """Begin to send a message to all other peers."""
        block, pieces = _packed(message)
        tensors, way = (torch.tensor([len(block), pieces]), block), self._way
        with self._waiting_for_others():
            to = [(tensor, peer) for peer in self._others for tensor in tensors]
            self._sends.append([dist.isend(t, dst=peer, **way) for t, peer in to])

    def _waiting_for_others(self) -> contextlib.AbstractContextManager[None]:
        return waiting(self._others, "to take the batches that this one reads for them", warn=False)

    def receive(self) -> Message:
        """Wait for the next message. Raises: RuntimeError if the peer that reads has ended."""
        length = torch.empty(2, dtype=torch.int64)
        self._wait(length)
        block = torch.empty(int(length[0]), dtype=torch.uint8)
        self._wait(block)
        return _unpacked(block, int(length[1]))

    def _wait(self, tensor: torch.Tensor) -> None:
        way = self._way
        with waiting([self._first], "to hand over a batch that it has read", warn=False):
            work = dist.irecv(tensor, src=self._first, **way)
            assert work is not None
            work.wait(patience())

    def settle(self, count: int | None) -> None:
        """Wait until all peers have the first ``count`` messages of the run. None: all that were sent."""
        while self._sends and (count is None or self._received < count):
            with self._waiting_for_others():
                for work in self._sends.popleft():
                    work.wait(patience())
            self._received += 1


class HandedOver:
    """The messages of a runner, which all other peers get, too."""

    def __init__(self, runner: MessageSource, handover: Handover) -> None:
        self._runner, self._handover = runner, handover
        self.ahead = runner.ahead

    def take(self) -> Message:
        """Return the next message. An error is sent, and raised."""
        try:
            message = self._runner.take()
        except Exception as error:
            if isinstance(error, Stalled) and error.go_on is not None:
                raise
            self._handover.send(failed(error))
            self._handover.failed = error
            raise
        self._handover.send(message)
        return message


class Receiving:
    """The messages that the peer that reads has sent."""

    ahead = False

    def __init__(self, handover: Handover, pin: bool) -> None:
        self._handover, self._pin = handover, pin

    def take(self) -> Message:
        """Return the next message; raise the error if it is one."""
        message = checked(self._handover.receive())
        message.memory = 0  # it is not this process that has buffers
        if self._pin:
            message.batch = pinned(message.batch)
        return message


class _Failed:
    """Lanes that could not be started."""

    ahead = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def take(self) -> Message:
        raise self._error


def _packed(message: Message) -> tuple[torch.Tensor, int]:
    """Return the message as one block of bytes, and the number of pieces in it: the pickle, and large arrays.

    Before the pieces stand their sizes. Each piece begins at a multiple of ``ALIGN``.
    """
    buffers: list[pickle.PickleBuffer] = []
    sent = Message(**{**vars(message), "batch": as_arrays(message.batch)})
    data = memoryview(pickle.dumps(sent, protocol=5, buffer_callback=buffers.append))
    pieces = [np.frombuffer(piece, np.uint8) for piece in (data, *(buffer.raw() for buffer in buffers))]
    sizes = np.array([piece.nbytes for piece in pieces])
    places, end = _places(sizes)
    made = torch.empty(end, dtype=torch.uint8)  # aligned
    block = made.numpy()
    block[: sizes.nbytes] = sizes.view(np.uint8)
    for place, piece in zip(places, pieces, strict=True):
        block[place] = piece
    return made, len(pieces)


def _unpacked(block: torch.Tensor, pieces: int) -> Message:
    """Return the message. Its large tensors are views of the block."""
    memory = block.numpy()
    places, _ = _places(memory[: 8 * pieces].view(np.int64))
    data, *buffers = (memory[place] for place in places)
    message: Message = pickle.loads(data.data, buffers=buffers)  # from a process of our own
    message.batch = as_tensors(message.batch)
    return message


def _places(sizes: np.ndarray[Any, Any]) -> tuple[list[slice], int]:
    """Return where pieces of these sizes lie in a block, and its length."""
    places, end = [], sizes.nbytes
    for size in sizes.tolist():
        begin = -(-end // ALIGN) * ALIGN
        end = begin + size
        places.append(slice(begin, end))
    return places, end
