"""A thread that receives the next message while the trainer works on a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeAlias

import torch

from uio_pipes.run.lane_runner import Message

ReceiveJob: TypeAlias = "tuple[Future[Message], Callable[[int], Message], int]"


class Receiver:
    """Calls one function after the other in a thread. The thread does not keep the process from ending, however long
    it has to wait for a message. ``gpu``: the current one of the thread."""

    def __init__(self, gpu: int | None) -> None:
        self._jobs: SimpleQueue[ReceiveJob | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs, gpu), name="uio-receives", daemon=True)

    def begin(self, call: Callable[[int], Message], lane: int) -> Future[Message]:
        """Return a future of what ``call(lane)`` returns."""
        if self._thread.ident is None:
            self._thread.start()
        future: Future[Message] = Future()
        self._jobs.put((future, call, lane))
        return future

    def close(self) -> None:
        """Let the thread end after the call that it is in."""
        self._jobs.put(None)


def _serve(jobs: SimpleQueue[ReceiveJob | None], gpu: int | None) -> None:
    if gpu is not None:
        torch.cuda.set_device(gpu)
    while (job := jobs.get()) is not None:
        future, call, lane = job
        try:
            future.set_result(call(lane))
        except BaseException as error:
            future.set_exception(error)
        del job, future, call  # only the trainer shall keep a batch's memory
