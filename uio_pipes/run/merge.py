"""A rank's batches in the epoch's order, (pass, k, lane), whichever process runs a lane."""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from uio_pipes.base.errors import UioError
from uio_pipes.run.device import Mover
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.no_batches import Losses
from uio_pipes.run.position import Position
from uio_pipes.run.workers import Source, Worker

__all__ = ["Feed", "shares"]


class Feed:
    """Takes messages from the sources in order, and keeps those that the trainer has not received yet.

    Attributes:
        positions: where each lane stands for the trainer.
        known: batches known to exist since this feed began: delivered and fetched ones.
        natural: ``known`` when the epoch's own batches had ended; None before. (With ``repeat`` lanes go on after
            that.)
        example: one failure, as it is reported.
    """

    def __init__(
        self,
        positions: dict[int, Position],
        source_of: dict[int, Source],
        repeat: bool,
        mover: Mover | None = None,
        pin: bool = False,
    ) -> None:
        self.positions, self.repeat = positions, repeat
        self.known = 0
        self.natural: int | None = None
        self.remaining: dict[int, tuple[int, int]] = {}
        self.example = ""
        self._counts: dict[int, dict[str, Any]] = {}
        # Lanes that gave a batch in the pass under way, and those whose last whole pass gave none.
        self._gave = {lane for lane in source_of if positions[lane].state.k and not positions[lane].state.done}
        self._rest: set[int] = set()
        self._source_of = source_of
        self._fetched: deque[tuple[Message, int]] = deque()
        self._due = due(positions, source_of, repeat)
        self._mover = mover
        # For a device, with workers: one thread that waits for the next message, pins it and begins its copy.
        ahead = (mover is not None or pin) and any(isinstance(source, Worker) for source in source_of.values())
        self._thread = _thread(pin) if ahead else None
        self._ahead: Future[Message] | None = None

    @property
    def had_batches(self) -> bool:
        """Whether this rank has had any batch in this epoch, before a resume or since."""
        return self.known > 0 or any(p.state.k or p.state.pass_ for p in self.positions.values())

    @property
    def at_rest(self) -> bool:
        """Whether it makes no sense to deal the lanes again: a whole pass of each has given nothing."""
        return len(self._rest) == len(self._source_of)

    @property
    def losses(self) -> Losses:
        """What did not come through in this epoch, as far as it has been fetched."""
        counts = {lane: position.state.counts for lane, position in self.positions.items()} | self._counts
        return Losses.of(counts.values(), self.example)

    def fetch(self) -> bool:
        """Wait for one more batch. False at the end, or where lanes dealt again and again give nothing."""
        while True:
            if self.natural is None and (not self._due or self._due[0][0] > 0):
                self.natural = self.known
            if not self._due or self.at_rest:
                return False
            message = self._take()
            if message.batch is not None:
                self.known += 1
                return True

    def _take(self) -> Message:
        began = time.perf_counter()
        pass_, k, lane = heapq.heappop(self._due)
        message = self._received(lane) if self._ahead is None else self._ahead.result()
        if (message.lane, message.pass_, message.k) != (lane, pass_, k):
            raise UioError(f"lane {lane} was due with batch {k}, but lane {message.lane} came with {message.k}")
        if not message.done:
            heapq.heappush(self._due, (pass_, k + 1, lane))
        elif self.repeat:
            heapq.heappush(self._due, (pass_ + 1, 0, lane))
        self._note(message)
        self.remaining[lane] = message.remaining
        self._fetched.append((message, int((time.perf_counter() - began) * 1e6)))
        self._ahead = self._thread.submit(self._received, self._due[0][2]) if self._thread and self._due else None
        return message

    def _note(self, message: Message) -> None:
        """Which lanes give something; one that gave nothing in a whole pass is tried again in the next one."""
        lane = message.lane
        self._counts[lane] = message.counts
        if message.reports and not self.example:
            self.example = message.reports[0]
        if message.batch is not None:
            self._gave.add(lane)
            self._rest.discard(lane)
        elif message.done and lane not in self._gave:
            self._rest.add(lane)
        if message.done:
            self._gave.discard(lane)

    def _received(self, lane: int) -> Message:
        """The next message of a lane's source, its batch on the way to the device."""
        message = self._source_of[lane].take()
        if self._mover is not None:
            message.batch = self._mover.begin(message.batch)
        return message

    def close(self) -> None:
        """Receive no more: to be called before the sources are closed."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._due.clear()

    def deliver(self) -> Message | None:
        """The next fetched message with a batch, or None; the positions of all that are passed advance."""
        while self._fetched:
            message, waited_us = self._fetched.popleft()
            self.positions[message.lane].advance(message, waited_us)
            if message.batch is not None or message.reports:
                if self._mover is not None:
                    message.batch = self._mover.end(message.batch)
                return message
        return None

    def pass_over(self, n: int) -> Iterator[Message]:
        """Let go of the next ``n`` batches, made or not."""
        while n and self._due and not self.at_rest:
            message = self._take()
            self._fetched.clear()
            self.positions[message.lane].advance(message)
            if not message.done:
                self._gave.add(message.lane)
                n -= 1
            yield message

    def unreported(self) -> Iterator[Message]:
        """What was fetched and will not be delivered, for its reports."""
        yield from (message for message, _ in self._fetched)

    def undelivered(self) -> int:
        """Utterances in batches that were fetched, but not delivered."""
        return sum(
            len(m.batch.get("keys", ()))
            if isinstance(m.batch, dict)
            else len(m.batch)
            if isinstance(m.batch, list)
            else 1
            for m, _ in self._fetched
            if m.batch is not None
        )


def _thread(pin: bool) -> ThreadPoolExecutor:
    """A thread that has this one's GPU: pinning must not open a context on another."""
    if not pin:
        return ThreadPoolExecutor(1, "uio-to-device")
    return ThreadPoolExecutor(1, "uio-to-device", torch.cuda.set_device, (torch.cuda.current_device(),))


def due(positions: Mapping[int, Position], lanes: Iterable[int], repeat: bool) -> list[tuple[int, int, int]]:
    """What each lane gives next, as a heap: (pass, k, lane)."""
    heap = []
    for lane in lanes:
        state = positions[lane].state
        if not state.done:
            heap.append((state.pass_, state.k, lane))
        elif repeat:
            heap.append((state.pass_ + 1, 0, lane))
    heapq.heapify(heap)
    return heap


def shares(positions: Mapping[int, Position], n: int, repeat: bool) -> dict[int, int]:
    """How many of the next ``n`` batches are of each lane, at least: as many as if no lane ended."""
    heap, share = due(positions, positions, repeat), Counter[int]()
    for _ in range(n if heap else 0):
        pass_, k, lane = heap[0]
        share[lane] += 1
        heapq.heapreplace(heap, (pass_, k + 1, lane))
    return share
