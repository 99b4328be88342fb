"""Notices lanes of which nothing comes: says what hangs where, and ends the wait.

What hangs neither goes on to another item nor uses the CPU. Whoever waits for a worker's message looks after it, and a
thread of the worker answers what it is at (:mod:`uio_pipes.core.pulse`), if Python runs there; a thread looks after
lanes in the trainer's own process. Time in a debugger, or in which nobody could look, does not count.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from uio_pipes.base.checks import is_number, refuse, require
from uio_pipes.base.errors import UioError
from uio_pipes.base.urls import redact
from uio_pipes.core.ledger import Failures
from uio_pipes.core.pulse import PULSE

logger = logging.getLogger("uio_pipes")
BUSY = 0.05  # share of the time: what uses more of the CPU works, however slowly
ANSWER = 2.0  # seconds in which a worker answers, if Python runs there
GRACE = 10.0  # seconds in which a call of the system that a signal interrupts comes back
CALLS = 12  # innermost calls of a stack that are shown
DEBUGGERS = ("bdb", "pdb", "pydevd", "_pydevd", "debugpy")
STATES = {"T": "is stopped", "t": "is held by a debugger", "D": "waits for a disk"}
HEARERS: WeakSet[Any] = WeakSet()  # each is told what hangs in this process or its workers by ``hear_stall(text)``


class Stalled(UioError):
    """Nothing comes of a lane within ``stall_limit``. ``go_on``: brings it to a new worker, if that is wanted."""

    go_on: Callable[[], None] | None = None


@dataclass(frozen=True)
class Patience:
    """After ``stall`` seconds what hangs is logged; after ``limit`` it ends, or (``skip``) is passed over."""

    stall: float
    limit: float | None
    skip: bool
    rank: int

    @classmethod
    def of(cls, stall: float | None, limit: float | None, failures: Failures, rank: int) -> Patience | None:
        """Return what the arguments of a loader say; None if nobody looks. Raises: PipelineError."""
        for name, value in (("stall", stall), ("stall_limit", limit)):
            ok = value is None or (is_number(value) and value >= 0)
            require(ok, "Loader", f"{name} must be a number of seconds, or None", value, "120 is usual")
        skip = failures.hung == "skip"
        refuse(skip and not limit, "Loader", 'hung="skip" needs stall_limit', "as in stall_limit=600")
        require(not limit or 0 < (stall or 0) <= limit, "Loader", "stall_limit must not be below stall", limit, "600")
        return cls(stall, limit or None, skip, rank) if stall else None

    @property
    def tick(self) -> float:  # seconds between two looks
        return min(1.0, self.stall / 4)


class Whereabouts(NamedTuple):
    """What a process is at; ``name``: by which it can be passed over, if it can; ``held``: a debugger is at work."""

    lane: int | None = None
    name: str = ""
    where: str = ""
    since: float = 0.0
    stack: str = "it has no Python stack to show: it does not answer"
    held: bool = False

    @classmethod
    def here(cls) -> Whereabouts:
        """Return what the lanes in this process are at."""
        frame = sys._current_frames().get(PULSE.thread)
        stage = f"stage {PULSE.stage}" if PULSE.stage else "before any stage"
        held = any(one.f_globals.get("__name__", "").startswith(DEBUGGERS) for one, _ in traceback.walk_stack(frame))
        stack = redact("".join(traceback.format_stack(frame, CALLS)))
        with contextlib.suppress(Exception):  # it goes on just now
            where = f"lane {PULSE.lane}, {stage}{f': {PULSE.file}' if PULSE.file else ''}"
            where += f", utterance {key!r}" if (key := getattr(PULSE.what, "key", PULSE.file)) != PULSE.file else ""
            name = "" if PULSE.restoring else PULSE.name
            return cls(PULSE.lane, name, where, PULSE.since, stack, held)
        return cls(held=True)


def answer(asked: Connection) -> None:
    """In a worker: answer what it is at, each time that the trainer asks."""

    def serve() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                asked.recv()
                asked.send(Whereabouts.here())

    threading.Thread(target=serve, name="uio-answers", daemon=True).start()


See = Callable[[], Whereabouts]
End = Callable[[Whereabouts, Stalled], object]


def looks(patience: Patience, who: str, used: Callable[[], float], see: See, end: End) -> Iterator[None]:
    """Look at a process, once a tick while it is waited for. ``used``: returns the seconds of CPU that it has used;
    ``see``: what it is at; ``end``: puts an end to what hangs."""
    idle, told, last, cpu = 0.0, -patience.stall, time.monotonic(), used()
    while True:
        yield
        passed, last = min(time.monotonic() - last, 2 * patience.tick), time.monotonic()
        before, cpu = cpu, used()
        idle = 0.0 if cpu - before > BUSY * passed else idle + passed
        if idle < patience.stall:
            continue
        seen = see()
        idle *= not seen.held
        if (seconds := min(idle, time.monotonic() - seen.since)) < patience.stall:
            continue
        what = f"{who} has done nothing for {seconds:.0f} s: {seen.where}"
        if abs(seen.since - told) > patience.stall / 2:  # another hang began later than this one was told
            told = seen.since
            logger.warning("rank %d: %s\n%s", patience.rank, what, seen.stack)
            for hearer in list(HEARERS):
                hearer.hear_stall(what)
        if patience.limit is not None and seconds >= patience.limit:
            end(seen, Stalled(f"{what}; stall_limit={patience.limit:g} is over: load the last state to go on"))


def looks_at_worker(patience: Patience, pid: int, asking: Connection, end: End) -> Iterator[None]:
    """Look after a worker. ``asking``: the connection to :func:`answer`."""

    def stat() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()

    def used() -> float:
        try:
            return sum(map(int, stat()[11:15])) / os.sysconf("SC_CLK_TCK")
        except OSError:  # it has ended, or this is another system
            return time.monotonic()

    def see() -> Whereabouts:
        seen, channel, state = Whereabouts(), "", "?"
        with contextlib.suppress(EOFError, OSError):
            while asking.poll():  # an answer that came too late
                asking.recv()
            asking.send(None)
            seen = asking.recv() if asking.poll(ANSWER) else seen
            state, channel = stat()[0], Path(f"/proc/{pid}/wchan").read_text().strip("0")
        system = f"it {STATES.get(state, 'waits')} (state {state}{f', {channel}' if channel else ''})"
        return seen._replace(where="; ".join(filter(None, [seen.where, system])), held=seen.held or state in "Rt")

    return looks(patience, f"worker process {pid}", used, see, end)


_due: list[tuple[Whereabouts, Exception]] = []  # what hangs in this process, and how it ends


def _interrupted(*_: object) -> None:
    seen, error = _due.pop() if _due else (Whereabouts(), None)
    if error is not None and seen.since == PULSE.since:
        if not isinstance(error, Stalled):
            PULSE.settings.mark(seen.name, (0, PULSE.settings.position))
        raise error


def watch_here(patience: Patience) -> threading.Event:
    """Watch the lanes that run in this thread from another one, until the event is set. At the limit a signal (SIGURG)
    interrupts the call that hangs; a process that does not come back ends, so that no other rank waits for it."""
    thread, over = threading.get_ident(), threading.Event()
    stat = Path(f"/proc/self/task/{threading.get_native_id()}/stat")

    def see() -> Whereabouts:
        seen, works = Whereabouts.here(), stat.read_text().rpartition(") ")[2][0] == "R"
        return seen._replace(held=seen.held or works or seen.lane is None or PULSE.thread != thread)

    def end(seen: Whereabouts, error: Stalled) -> None:
        _due[:] = [(seen, PULSE.failure() if patience.skip and seen.name else error)]
        until = time.monotonic() + GRACE
        while PULSE.since == seen.since and not over.is_set():
            signal.pthread_kill(thread, signal.SIGURG)
            over.wait(patience.tick)
            if time.monotonic() > until:
                logger.critical("rank %d: %s; it cannot be interrupted: the process ends", patience.rank, error)
                os._exit(1)

    def serve() -> None:
        looking = looks(patience, "this process", lambda: time.clock_gettime(clock), see, end)
        with contextlib.suppress(OSError):  # the thread has ended
            while not over.wait(patience.tick):
                next(looking)

    if hasattr(time, "pthread_getcpuclockid"):  # not on macOS
        clock = time.pthread_getcpuclockid(thread)
        if patience.limit and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGURG, _interrupted)
        threading.Thread(target=serve, name="uio-looks", daemon=True).start()
    return over
