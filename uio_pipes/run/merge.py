"""Merges the lanes of a rank: its batches in the epoch's order, (pass, k, lane), whichever process makes them."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeAlias

import torch

from uio_pipes.base.errors import UioError
from uio_pipes.run.device import Mover
from uio_pipes.run.lane_runner import Message, Place, Position
from uio_pipes.run.no_batches import Losses
from uio_pipes.run.state import LaneState
from uio_pipes.run.workers import MessageSource

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


MOST_AT_ONCE = 1 << 14  # batches that runners are told to pass over


class Merge:
    """Takes messages from the runners in order, and keeps those that the trainer has not received yet.

    Attributes:
        positions: of each lane, as the trainer knows it.
        known: batches known to exist since this merge began: those delivered and those fetched.
        natural: ``known`` when each lane had ended once (under ``repeat`` they go on after that); None before.
        example: one failure, as it is reported.
        waited: seconds spent waiting for messages.
        passed: messages that were delivered or passed over.
        number: of the next batch to be fetched, among all of this rank in the epoch.
        lost: the numbers before which nothing was left of a batch since the trainer got one.
        over: ranges of numbers to pass over; ``begin_over(states, count)`` lets runners begin there that do not make
            the next ``count`` batches.
    """

    def __init__(
        self,
        positions: dict[int, Position],
        runner_of: Mapping[int, MessageSource],
        repeat: bool,
        mover: Mover | None = None,
        pin: bool = False,
        number: int = 0,
        steps: bool = False,
    ) -> None:
        self.positions, self.repeat = positions, repeat
        self.known = 0
        self.natural: int | None = None
        self.remaining: dict[int, tuple[int, int]] = {}
        self.example = ""
        self.waited = 0.0
        self.passed = 0
        self._failed: Exception | None = None  # what came instead of a message: nothing comes after it
        self._counts: dict[int, dict[str, Any]] = {}
        # Lanes that gave a batch in their current pass, and lanes whose last whole pass gave none.
        self._gave = {lane for lane in runner_of if positions[lane].state.k and not positions[lane].state.done}
        self._rest: set[int] = set()
        self._runner_of = runner_of
        self._fetched: deque[tuple[Message, int]] = deque()
        self._due = due(positions, runner_of, repeat)
        self.number, self.steps = number, steps
        self.lost: list[int] = []
        self.over: Sequence[range] = ()
        self.begin_over: Callable[[dict[int, LaneState], int], None] = lambda states, count: None
        self._told = 0  # number up to which runners know what they are to pass over
        self._mover = mover
        # With workers, a thread receives the next message while the trainer works, and begins its copy to a GPU.
        ahead = any(runner.ahead for runner in runner_of.values())
        # Pinning must not open a context on another GPU than the trainer's.
        self._receiver = Receiver(torch.cuda.current_device() if pin else None) if ahead else None
        self._ahead: Future[Message] | None = None

    @property
    def had_batches(self) -> bool:
        """True if this rank has had any batch in this epoch, before a resume or since."""
        return self.known > 0 or any(p.state.k or p.state.pass_ for p in self.positions.values())

    @property
    def at_rest(self) -> bool:
        """True if it is pointless to begin the lanes again: a whole pass of each has given nothing."""
        return len(self._rest) == len(self._runner_of)

    @property
    def losses(self) -> Losses:
        """The utterances lost in this epoch, as far as it has been fetched."""
        counts = {lane: position.state.counts for lane, position in self.positions.items()} | self._counts
        return Losses.of(counts.values(), self.example)

    @property
    def received_losses(self) -> Losses:
        """Those up to the last batch that the trainer received, in the lanes that were heard of since this run began:
        how much the others hold back is not known."""
        known = [one for one in self.positions.values() if one.held is not None or one.state.done]
        return Losses.of((one.state.counts for one in known), self.example, sum(one.held or 0 for one in known))

    def fetch(self) -> bool:
        """Wait for one more batch. Return False at the end, or if all lanes give nothing pass after pass.

        Raises: what a runner raised, each time from then on.
        """
        while True:
            if self._failed is not None:
                raise self._failed
            if self.natural is None and (not self._due or self._due[0][0] > 0):
                self.natural = self.known
            if not self._due or self.at_rest:
                return False
            if self._over() and self.number >= self._told:
                self._tell()
            message = self._take()
            if message.batch is not None:
                self.known += 1
                return True

    def _take(self) -> Message:
        began = time.perf_counter()
        pass_, k, lane = heapq.heappop(self._due)
        try:
            message = self._received(lane) if self._ahead is None else self._ahead.result()
        except Exception as error:
            self._failed = error
            raise
        if (message.lane, message.pass_, message.k) != (lane, pass_, k):
            raise UioError(f"lane {lane} was due with batch {k}, but lane {message.lane} came with {message.k}")
        if not message.done:
            heapq.heappush(self._due, (pass_, k + 1, lane))
        elif self.repeat:
            heapq.heappush(self._due, (pass_ + 1, 0, lane))
        if not message.done:
            if over := self._over():
                message.batch = None
                self._gave.add(lane)
            message.lost = self.steps and message.batch is None and not over
            self.number += over or message.batch is not None or not self.steps
        message.number = self.number
        self._note(message)
        self.remaining[lane] = message.remaining
        waited = time.perf_counter() - began
        self.waited += waited
        self._fetched.append((message, int(waited * 1e6)))
        self._ahead = None
        if self._receiver is not None and self._due:
            self._ahead = self._receiver.begin(self._received, self._due[0][2])
        return message

    def _over(self, later: int = 0) -> bool:
        """Return whether the next batch, or one that comes so much ``later``, is to be passed over."""
        return any(self.number + later in one for one in self.over)

    def _tell(self) -> None:
        """Let runners begin that do not make the batches which are to be passed over now."""
        count = next((n for n in range(1, MOST_AT_ONCE) if not self._over(n)), MOST_AT_ONCE)
        self._told = self.number + count
        if (made := self.received()) is not None and count > (ahead := made[1] - len(self._fetched)):
            self.begin_over(made[0], count - ahead)

    def _note(self, message: Message) -> None:
        """Note which lanes give batches. A lane that gave none in a whole pass is tried again in the next one."""
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
        """Return the next message of a lane's runner; the copy of its batch to the device has begun."""
        message = self._runner_of[lane].take()
        if self._mover is not None:
            message.batch, message.copied = self._mover.begin(message.batch)
        return message

    @property
    def going(self) -> int:
        """The number of lanes that have not ended."""
        return len(self._due)

    def received(self) -> tuple[dict[int, LaneState], int] | None:
        """Return where the lanes stand after the last message that came, and how many the trainer has yet to get.

        None if an error came: it is raised when its turn comes.
        """
        messages = [message for message, _ in self._fetched]
        if self._ahead is not None:
            try:
                messages.append(self._ahead.result())
            except Exception:
                return None
        reached = {lane: Position(replace(self.positions[lane].state)) for lane in self._runner_of}
        for message in messages:
            reached[message.lane].advance(message)
        return {lane: position.saved() for lane, position in reached.items()}, len(messages)

    def move(self, runner_of: Mapping[int, MessageSource]) -> None:
        """Go on with other runners, whose lanes begin where ``received`` says."""
        self._runner_of = {**self._runner_of, **runner_of}

    def close(self) -> None:
        """Receive nothing more; call it before the runners are closed."""
        if self._receiver is not None:
            self._receiver.close()
            self._due.clear()
            self._ahead = None  # its batch may lie in shared memory

    def deliver(self) -> Message | None:
        """Return the next fetched message that says anything, or None, and advance the positions to it."""
        while self._fetched:
            message, waited_us = self._fetched.popleft()
            self.passed += 1
            self.positions[message.lane].advance(message, waited_us)
            self.lost += [message.number] * message.lost
            if message.batch is not None or message.reports or message.tallies:
                if self._mover is not None:
                    message.batch = self._mover.end(message.batch, message.copied)
                return message
        return None

    def pass_over(self, n: int) -> Iterator[Message]:
        """Drop the next ``n`` batches, whether they have been made or not; yield their messages."""
        number = self.number
        while n and self._due and not self.at_rest:
            message = self._take()
            if self.steps:  # which the epoch makes up for
                self.number, message.lost = number, False
            self._fetched.clear()
            self.passed += 1
            self.positions[message.lane].advance(message)
            if not message.done:
                self._gave.add(message.lane)
                n -= 1
            yield message

    def unreported(self) -> Iterator[Message]:
        """Yield the messages that were fetched and will not be delivered, for their reports."""
        yield from (message for message, _ in self._fetched)

    def undelivered(self) -> int:
        """Return the number of utterances in batches that were fetched, but not delivered."""
        return sum(utterances_in(message.batch) for message, _ in self._fetched)


def utterances_in(batch: Any) -> int:
    """Return the number of utterances in a batch, whatever names ``pad`` has given its outputs."""
    if isinstance(batch, dict):
        return len(batch.get("keys", next(iter(batch.values()), ())))
    return len(batch) if isinstance(batch, list) else int(batch is not None)


def due(positions: Mapping[int, Position], lanes: Iterable[int], repeat: bool) -> list[tuple[int, int, int]]:
    """Return what each lane gives next, as a heap of (pass, k, lane)."""
    heap = []
    for lane in lanes:
        state = positions[lane].state
        if not state.done:
            heap.append((state.pass_, state.k, lane))
        elif repeat:
            heap.append((state.pass_ + 1, 0, lane))
    heapq.heapify(heap)
    return heap


def places_after(positions: Mapping[int, Position], n: int, repeat: bool) -> dict[int, Place]:
    """Return where the lanes stand after the next ``n`` batches if none ends. If one does, its next pass is made, and
    others go further than this."""
    heap = due(positions, positions, repeat)
    for _ in range(n if heap else 0):
        pass_, k, lane = heap[0]
        heapq.heapreplace(heap, (pass_, k + 1, lane))
    return {lane: (pass_, k) for pass_, k, lane in heap}
