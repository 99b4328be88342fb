"""Merges the lanes of a rank: its batches in the epoch's order, (pass, k, lane), whichever process makes them."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future
from dataclasses import replace
from operator import add
from queue import SimpleQueue
from typing import Any, TypeAlias

import torch

from uio_pipes.base.errors import UioError
from uio_pipes.run.dealing import LaneBatch, Turns
from uio_pipes.run.empty_epochs import Losses
from uio_pipes.run.lane_runner import Message, Place, Position
from uio_pipes.run.options import RunOptions
from uio_pipes.run.stall import Stalled
from uio_pipes.run.state import LaneState
from uio_pipes.run.workers import MessageSource

BeginOver = Callable[[dict[int, LaneState], int, int], None]
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
        example: one failure, as it is reported.
        waited: seconds spent waiting for messages.
        passed: messages that were delivered or passed over.
        number: of the next batch to be fetched, among all of this rank in the epoch.

    Args:
        lanes: those that give batches; ``move`` says who runs them.
        over: ranges of numbers to pass over; ``begin_over``: a weak reference to what lets runners begin at states,
            with so many batches made before, that do not make the next ones. ``turns``: of this rank, if others run
            the same lane.
    """

    def __init__(
        self,
        positions: dict[int, Position],
        lanes: Collection[int],
        options: RunOptions,
        number: int,
        over: Sequence[range],
        begin_over: Callable[[], BeginOver | None],
        turns: Turns | None = None,
    ) -> None:
        self.positions, self.lanes, self.repeat = positions, lanes, options.repeat
        self.known = 0
        self.remaining: dict[int, tuple[int, int]] = {}
        self.example = ""
        self.waited = 0.0
        self.passed = 0
        self.read = [0, 0]  # bytes, and requests made again, for all messages so far
        self._failed: Exception | None = None  # what came instead of a message: nothing comes after it
        self._counts: dict[int, dict[str, Any]] = {}
        # Lanes that gave a batch in their current pass, and lanes whose last whole pass gave none.
        self._gave = {lane for lane in lanes if positions[lane].state.k and not positions[lane].state.done}
        self._rest: set[int] = set()
        self._runner_of: dict[int, MessageSource] = {}
        self._fetched: deque[tuple[Message, int]] = deque()
        self._due = due({lane: positions[lane].state for lane in lanes}, self.repeat)
        self.number, self.steps, self.shares = number, options.in_steps, options.shares
        self._over_at, self._begin_over = over, begin_over
        self._lost = None if turns is None else turns.lost
        self.gone: LaneBatch | None = None  # of which nothing is left, though it was this rank's turn
        self.turns_taken, self._own = 0, False  # in the step that is being fetched; whether this rank had one
        self._last_to_pass = 0  # number up to which runners know what they are to pass over
        self._mover = options.mover
        # With workers, a thread receives the next message while the trainer works, and begins its copy to a GPU.
        # Pinning must not open a context on another GPU than the trainer's.
        self._receiver = Receiver(torch.cuda.current_device() if options.pins else None)
        self._ahead: Future[Message] | None = None
        self._received_losses: Losses | None = None

    @property
    def had_batches(self) -> bool:
        """True if this rank has had any batch in this epoch, before a resume or since."""
        begun = any(p.state.k or p.state.pass_ for p in self.positions.values())
        return self.known > 0 or begun or self.cut is not None

    @property
    def at_rest(self) -> bool:
        """True if it is pointless to begin the lanes again: a whole pass of each has given nothing."""
        return len(self._rest) == len(self.lanes)

    @property
    def losses(self) -> Losses:
        """The utterances lost in the part of this epoch that has been fetched."""
        counts = {lane: position.state.counts for lane, position in self.positions.items()} | self._counts
        return Losses.of(counts.values(), self.example)

    @property
    def received_losses(self) -> Losses:
        """Those up to the last batch that the trainer received, in the lanes that are known since this run began:
        how much the others hold back is not known. Once asked for, they are counted on with each message."""
        if (found := self._received_losses) is None:
            known = [one for one in self.positions.values() if one.held is not None or one.state.done]
            found = Losses.of((one.state.counts for one in known), held=sum(one.held or 0 for one in known))
            self._received_losses = found
        found.example = self.example
        return found

    def fetch(self) -> bool:
        """Wait for one more batch. Return False at the end, or if all lanes give nothing pass after pass.

        Raises: what a runner raised, each time from then on.
        """
        while True:
            if self._failed is not None:
                raise self._failed
            if self.gone is not None:
                return False
            if not self._due or self.at_rest:
                return False
            if self._lost is None and self._over() and self.number >= self._last_to_pass:
                self._tell()
            message = self._take()
            if self._lost is None:
                found = message.is_step
            else:
                self.turns_taken += not (message.done or message.k in self._lost)
                self._own |= message.is_step
                found = message.closes and self._own
                if message.lost:
                    self.gone = (message.lane, message.k)
                if message.closes:
                    self.turns_taken, self._own = 0, False
            if found:
                self.known += 1
                return True

    def _take(self) -> Message:
        began = time.perf_counter()
        pass_, k, lane = heapq.heappop(self._due)
        try:
            message = self._next_of(lane)
        except Exception as error:
            self._failed = error
            raise
        if (message.lane, message.pass_, message.k) != (lane, pass_, k):
            raise UioError(f"lane {lane} was due with batch {k}, but lane {message.lane} came with {message.k}")
        if not message.done:
            heapq.heappush(self._due, (pass_, k + 1, lane))
        elif self.repeat:
            heapq.heappush(self._due, (pass_ + 1, 0, lane))
        if not (message.done or message.others):
            if over := self._over():
                message.batch = None
                self._gave.add(lane)
            known = self._lost is not None and k in self._lost
            message.over = over and self.shares and not known
            another = self.steps or self.shares  # takes the place of one that is lost
            message.lost = another and message.batch is None and not (over or known)
            self.number += over or message.batch is not None or not another
        message.number = self.number
        self._note(message)
        self.remaining[lane] = message.remaining
        waited = time.perf_counter() - began
        self.waited += waited
        self._fetched.append((message, int(waited * 1e6)))
        self._ahead = None
        if self._due and self._runner_of[next_lane := self._due[0][2]].ahead:
            self._ahead = self._receiver.begin(self._received, next_lane)
        return message

    def _next_of(self, lane: int) -> Message:
        while True:
            try:
                return self._received(lane) if self._ahead is None else self._ahead.result()
            except Stalled as stalled:
                self._ahead = None
                if stalled.go_on is None:
                    raise
                stalled.go_on()  # in the trainer's thread, in which workers start

    def _over(self, later: int = 0) -> bool:
        """Return whether the next batch, or one that comes so much ``later``, is to be passed over."""
        return any(self.number + later in one for one in self._over_at)

    def _tell(self) -> None:
        """Let runners begin that do not make the batches which are to be passed over now."""
        count = next((n for n in range(1, MOST_AT_ONCE) if not self._over(n)), MOST_AT_ONCE)
        self._last_to_pass = self.number + count
        begin, made = self._begin_over(), self.received()
        if begin is not None and made is not None and count > (ahead := made[1] - len(self._fetched)):
            begin(*made, count - ahead)

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
    def in_turns(self) -> bool:
        """True if others run the same lane."""
        return self._lost is not None

    @property
    def cut(self) -> tuple[int, int] | None:
        """The lane that has ended before each of its ranks had a turn, and how many had one."""
        if not self.turns_taken or self._due or self.gone is not None:
            return None
        return next(iter(self.lanes)), self.turns_taken

    @property
    def going(self) -> int:
        """The number of lanes that have not ended."""
        return len(self._due)

    def received(self) -> tuple[dict[int, LaneState], int] | None:
        """Return the positions of the lanes after the last message, and how many messages the trainer has yet to get.

        None if an error came: it is raised when its turn comes.
        """
        messages = self.undelivered
        if self._ahead is not None:
            try:
                messages.append(self._ahead.result())
            except Exception:
                return None
        reached = {lane: Position(replace(self.positions[lane].state)) for lane in self.lanes}
        for message in messages:
            reached[message.lane].advance(message)
        return {lane: position.saved() for lane, position in reached.items()}, len(messages)

    def move(self, runner_of: Mapping[int, MessageSource]) -> None:
        """Continue with these runners, whose lanes begin at the positions of ``received``."""
        self._runner_of |= runner_of

    def close(self) -> None:
        """Stop receiving; call it before the runners are closed."""
        self._receiver.close()
        self._due.clear()
        self._ahead = None  # its batch may lie in shared memory

    def deliver(self, batches: bool = True) -> Message | None:
        """Return the next fetched message that is not empty, or None, and advance the positions to it.

        ``batches``: False to stop before a batch, or before a step that is passed over.
        """
        while self._fetched and (batches or not self._fetched[0][0].is_step):
            message, waited_us = self._fetched.popleft()
            self._advance(message, waited_us)
            if message.is_step or message.reports or message.tallies or message.lost:
                if self._mover is not None:
                    message.batch = self._mover.end(message.batch, message.copied)
                last = message
                while self._lost is not None and message.is_step and not last.closes:
                    last, waited_us = self._fetched.popleft()  # those of the other ranks in this step
                    self._advance(last, waited_us)
                return message
        return None

    def pass_over(self, n: int) -> Iterator[Message]:
        """Drop the next ``n`` batches, made or not; yield their messages."""
        number = self.number
        while n and self._due and not self.at_rest:
            message = self._take()
            is_step = (not message.done) if self._lost is None else message.closes
            number += is_step and not self.steps  # which the epoch makes up for
            self.number, message.number, message.lost, message.batch = number, number, False, None
            self._fetched.clear()
            self._advance(message)
            if not (message.done or message.others):
                self._gave.add(message.lane)
            n -= is_step
            yield message

    def _advance(self, message: Message, waited_us: int = 0) -> None:
        """Note that the trainer received a message."""
        position = self.positions[message.lane]
        known = position.held is not None or position.state.done
        before = position.state.counts if known else {}, position.held or 0
        self.passed += 1
        self.read[:] = map(add, self.read, message.read)
        position.advance(message, waited_us)
        if self._received_losses is not None:
            self._received_losses.move(*before, position.state.counts, position.held or 0)

    @property
    def undelivered(self) -> list[Message]:
        """The messages that were fetched, but not delivered."""
        return [message for message, _ in self._fetched]


def utterances_in(batch: Any) -> int:
    """Return the number of utterances in a batch, whatever names ``pad`` has given its outputs; 1 in a sample."""
    if isinstance(batch, dict):
        first = batch.get("keys", next(iter(batch.values()), ()))
        return len(first) if isinstance(first, Sized) and not isinstance(first, (str, bytes)) else 1
    return len(batch) if isinstance(batch, list) else int(batch is not None)


def due(states: Mapping[int, LaneState], repeat: bool) -> list[tuple[int, int, int]]:
    """Return the next batch of each lane, as a heap of (pass, k, lane)."""
    heap = []
    for lane, state in states.items():
        if not state.done:
            heap.append((state.pass_, state.k, lane))
        elif repeat:
            heap.append((state.pass_ + 1, 0, lane))
    heapq.heapify(heap)
    return heap


def places_after(states: Mapping[int, LaneState], n: int, repeat: bool) -> dict[int, Place]:
    """Return the positions of the lanes after the next ``n`` batches if none ends. If one does, its next pass is made,
    and others go further than this."""
    heap = due(states, repeat)
    for _ in range(n if heap else 0):
        pass_, k, lane = heap[0]
        heapq.heapreplace(heap, (pass_, k + 1, lane))
    return {lane: (pass_, k) for pass_, k, lane in heap}
