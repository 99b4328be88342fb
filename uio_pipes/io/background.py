"""Threads for reading ahead, shared by a whole process. They start when needed, and end with it.

At its end, jobs that wait are dropped, and those under way are given a few seconds: Python ends a thread where it
returns from foreign code, and code in C++ (Arrow's) would abort the whole process for it.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from uio_pipes.base.clock import READING, timed

THREADS = 16
AT_END = 5.0  # seconds that jobs under way have at the end of the process
LET_GO = 0.5  # seconds that threads of C++ have there to let go of what they hold
T = TypeVar("T")


class Cancelled(Exception):
    """The job was cancelled: nobody waits for its result any more."""


class Job(Generic[T]):
    """Work for a background thread. ``work`` gets a function to sleep with, which raises ``Cancelled`` if need be."""

    def __init__(self, work: Callable[[Callable[[float], object]], T]) -> None:
        self._work: Callable[[Callable[[float], object]], T] | None = work
        self._over, self._cancelled = threading.Event(), threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the job is over, whether it succeeded or not, or until the time is up."""
        self._over.wait(seconds)

    @timed(READING)
    def result(self) -> T:
        """Wait for the job and return its result, or raise its error."""
        self._over.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def then(self, use: Callable[[T], object]) -> None:
        """Pass the result of a finished job to ``use``, unless it failed, and forget it."""
        if self._error is None:
            value, self._value = self._value, None
            use(value)  # type: ignore[arg-type]

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def lose(self) -> None:
        """Note that it will never be done: its thread is not in this process."""
        self._error, self._over = Cancelled(), threading.Event()  # the lock in the old one may be held
        self._over.set()

    def cancel(self) -> None:
        self._cancelled.set()

    def run(self) -> None:
        try:
            if self._cancelled.is_set():
                raise Cancelled
            assert self._work is not None
            self._value = self._work(self._sleep)
        except BaseException as error:
            self._error = error
        self._work = None  # which may hold the job before, that one the job before it, and so on
        self._over.set()

    def _sleep(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise Cancelled


_jobs: SimpleQueue[Job[object]] = SimpleQueue()
_left: set[Job[object]] = set()  # all that are not over, also while a thread takes them: a fork may come at any time
_held: WeakSet[Any] = WeakSet()
_ending = False
_threads = _busy = 0
_lock = threading.Lock()


def submit(work: Callable[[Callable[[float], object]], T], threads: int = 0) -> Job[T]:
    """Have ``work`` done in the background; jobs start in the order in which they come. ``threads``: how many there may
    be for it. Default: 0, :data:`THREADS`."""
    global _threads, _busy
    job = Job(work)
    with _lock:
        _busy += 1
        if _threads < min(threads or THREADS, _busy):
            _threads += 1
            threading.Thread(target=_serve, args=(_jobs,), daemon=True, name=f"uio_pipes-io-{_threads}").start()
    _left.add(job)  # type: ignore[arg-type]
    _jobs.put(job)  # type: ignore[arg-type]
    return job


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what ``call`` returns, which may wait without a bound of its own: it has a thread of its own.

    Raises: TimeoutError if it takes longer.
    """
    job = Job(lambda _: call())
    threading.Thread(target=job.run, daemon=True, name="uio_pipes-call").start()
    job.wait(seconds)
    if not job.over:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return job.result()


def held(thing: T) -> T:
    """Return objects that threads of C++ get to hold, such as a file that Arrow reads. If one is released while Python
    exits, the process aborts, so the exit waits a moment for them."""
    _held.add(thing)
    return thing


def _serve(jobs: SimpleQueue[Job[object]]) -> None:
    global _busy
    while True:
        job = jobs.get()
        if _ending:
            job.cancel()
        job.run()
        _left.discard(job)
        del job  # with its result
        with _lock:
            _busy -= 1


def _forget() -> None:
    """Start afresh in a forked child, where no threads have survived."""
    global _jobs, _left, _threads, _busy, _lock
    for job in _left:
        job.lose()
    _jobs, _left, _threads, _busy, _lock = SimpleQueue(), set(), 0, 0, threading.Lock()


def _end() -> None:
    """Start no further job, and wait for those that are left."""
    global _ending
    _ending, until = True, time.monotonic() + AT_END
    for job in list(_left):
        job.cancel()
    for job in list(_left):
        job.wait(max(0.0, until - time.monotonic()))
    until = time.monotonic() + LET_GO
    while _held and time.monotonic() < until:
        time.sleep(0.001)


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
