"""A worker whose lanes run in a Ray actor, on this machine or another one.

The actor makes a message for each call, or a few, and a number of calls is under way: so it works ahead as far as a
local worker does. Whoever runs the lanes, their state is here: it moves with the messages that were taken. If the actor
is lost, another one begins where the last message left the lanes, and the trainer only waits.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from typing import Any

from uio_pipes.run.lane_runner import LaneOptions, Message, Position
from uio_pipes.run.ray.fleet import NO_AGENT, QUIET, Fleet, Host, Packed, pickled, unpacked
from uio_pipes.run.stall import Stalled, Whereabouts, looks
from uio_pipes.run.state import LaneState
from uio_pipes.run.workers import checked

GROUP = 4  # most messages of a call: each call costs Ray some milliseconds of CPU time, however large the messages are
DEATHS = 3  # actors in a row that may die before the same message


class RayWorker:
    """Lanes that run in an actor of the fleet. ``place``: the number of this worker among those of the rank."""

    ahead = True

    def __init__(
        self, fleet: Fleet, place: int, options: LaneOptions, states: dict[int, LaneState], pin: bool, prefetch: int
    ) -> None:
        self._fleet, self._place, self._options, self._pin = fleet, place, options, pin
        self._group = max(1, min(GROUP, prefetch // 2))
        self._most = prefetch // self._group  # calls that are under way, and the one whose messages are being taken
        self._positions = {lane: Position(replace(state)) for lane, state in states.items()}
        self._deaths = 0  # since the last message
        self._pid = os.getpid()
        self._closed = False
        self._calls: deque[Any] = deque()
        self._packed: deque[Packed] = deque()  # received, and not taken yet
        self.host = fleet.enter(self, place)
        self._begin(self.host)

    def take(self) -> Message:
        """Return the next message of these lanes, in their order."""
        message = checked(unpacked(self._received(), self._pin))
        self._deaths = 0
        self._count(message)
        self._positions[message.lane].advance(message)
        return message

    def _received(self) -> Packed:
        """Return the next message, whichever actor makes it."""
        ray, errors, patience, watch = self._fleet.ray, self._fleet.ray.exceptions, self._options.patience, None
        while not self._packed:
            if self._closed:
                raise RuntimeError("the loader was closed")
            self._settle()
            call = self._calls[0]
            try:
                if ray.wait([call], timeout=QUIET)[0]:  # get with a timeout would begin to fetch it anew each time
                    self._packed.extend(ray.get(call))
                    self._calls.popleft()
                    break
            except (errors.RayActorError, errors.ObjectLostError, errors.OutOfMemoryError) as error:
                self._fleet.lose(self.host, error.with_traceback(None))
            except OSError as error:  # the connection to it broke
                raise RuntimeError(NO_AGENT) from error
            self._fleet.check()
            if patience is not None:
                who = f"the Ray actor on node {self.host.name}"
                watch = watch or looks(patience, who, lambda: self.host.used, lambda: self.host.seen, self._give_up)
                next(watch)
        packed = self._packed.popleft()
        if not self._packed:
            self._ask()
        return packed

    def _give_up(self, seen: Whereabouts, stalled: Stalled) -> None:
        """Go on without what hangs, if that is wanted. Raises: Stalled."""
        if self._options.failures.hung != "skip" or not seen.name:
            raise stalled
        self._fleet.lose(self.host, None, seen)

    def _settle(self) -> None:
        """Go on in an actor that suits better by now: one that has started, or the own one again."""
        host = self._fleet.host(self._place, alone=self._deaths > 1)
        if host is not self.host and host.started:
            self._leave()
            self._begin(host)

    def _begin(self, host: Host) -> None:
        """Begin the lanes in an actor, where the last message left them."""
        self.host, self._number = host, next(self._fleet.numbers)
        states = {lane: position.saved() for lane, position in self._positions.items()}
        host.actor.begin.remote(self._number, pickled((self._options, states)), os.getcwd())
        self._packed.clear()
        self._calls.clear()
        for _ in range(self._most):
            self._ask()

    def _ask(self) -> None:
        self._calls.append(self.host.actor.next.remote(self._number, self._group))

    def moved(self, error: Exception | None, hung: Whereabouts | None) -> None:
        """Go on in another actor: this one died of ``error``, is to pass over what ``hung``, or does not answer."""
        if hung is not None and hung.lane in self._positions:
            position = self._positions[hung.lane]
            position.state = position.state.passing_over(hung.name)
        self._deaths += error is not None
        if self._deaths >= DEATHS:
            raise RuntimeError(
                f"{self._deaths} Ray actors in a row died before the same batch (out of memory?); load the last state "
                f"to go on. The last one: {error}"
            ) from error
        self._begin(self._fleet.host(self._place, alone=self._deaths > 1))

    def _leave(self) -> None:
        self.host.actor.end.options(concurrency_group="pulse").remote(self._number)

    def _count(self, message: Message) -> None:
        node, before = self._fleet.stats(self.host), self._positions[message.lane].state.counts
        for name in ("utterances", "frames"):
            setattr(node, name, getattr(node, name) + message.counts.get(name, 0) - before.get(name, 0))
        node.batches += message.batch is not None
        node.seconds += message.took

    def close(self) -> None:
        """Let the actor drop these lanes; it stays for the next epoch."""
        if self._closed or self._pid != os.getpid() or not self._fleet.ray.is_initialized():
            return
        self._closed = True
        self._fleet.leave(self)
        if not self.host.lost:
            self._leave()
        self._calls.clear()
