"""The clock of a process: what its threads do, as spans of time, for :meth:`Loader.trace` and ``uio bench``.

There is one for all of a process, so nobody has to pass it on. While none runs, a place that is timed only asks for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet, ref

P = ParamSpec("P")
T = TypeVar("T")
now = time.perf_counter_ns  # the same in all processes of a machine
SHORT = 20_000  # nanoseconds: what takes less stays a part of what called it
READING, HEADERS = "reading", "reading headers"
# Name, when it began, when it ended; those of the next one; …: in the order of their ends. A flat list of what nobody
# else refers to costs least, also in a message. The name is a tuple with that of the thread if that is not the main one.
Spans = list[Any]


class Clock:
    """Keeps spans of ``short`` nanoseconds or more."""

    def __init__(self, short: int) -> None:
        self.short = short
        self._spans: Spans = []
        self._thread = threading.get_ident()
        self._names: dict[int, str] = {}  # of stages, by their links
        self._followed = WeakSet[Any]()

    def keep(self, name: str, began: int, ended: int) -> None:
        own = threading.get_ident() == self._thread
        self._spans.extend((name if own else (name, threading.current_thread().name), began, ended))

    def taken(self) -> Spans:
        """Return the spans that ended since this was called before."""
        spans = self._spans[:]
        del self._spans[: len(spans)]  # another thread may have added some
        return spans

    def time(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(…)``, which is a span ``name``."""
        began = now()
        try:
            return function(*args, **kwargs)
        finally:
            if (ended := now()) - began >= self.short:
                self.keep(name, began, ended)

    def applied(self, link: Any, began: int) -> int:
        """Note that a link was applied from ``began`` until now, which is returned: the next one begins then."""
        if (ended := now()) - began >= self.short:
            self.keep(self._names.get(id(link), link.name), began, ended)
        return ended

    def follow(self, node: Any, name: str, only_link: bool) -> None:
        """Time each ``next`` of a node of the stage ``name``, and what its link does; ``only_link``: not the former."""
        if (link := getattr(node, "link", None)) is not None:
            self._names[id(link)] = name
        if only_link:
            return
        method, here, keep, short = type(node).next, ref(node), self.keep, self.short  # no cycle

        def timed_next() -> Any:
            began = now()
            try:
                return method(here())
            finally:
                if (ended := now()) - began >= short:
                    keep(name, began, ended)

        node.next = timed_next
        self._followed.add(node)

    def leave(self) -> None:
        """Let nodes run as before."""
        for node in self._followed:
            del node.next


running: Clock | None = None


def start(short: int = SHORT) -> Clock:
    """Start the clock of this process. The stages of lanes that begin from now on are timed."""
    global running
    running = Clock(short)
    return running


def stop() -> None:
    """Stop it, if it runs."""
    global running
    clock, running = running, None
    if clock is not None:
        clock.leave()


os.register_at_fork(after_in_child=stop)


def note(name: str, began: int) -> None:
    """Keep what began at ``began`` and ends now, if the clock runs."""
    if running is not None and (ended := now()) - began >= running.short:
        running.keep(name, began, ended)


def timed(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make each call of a function a span ``name``, while the clock runs."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return function(*args, **kwargs) if running is None else running.time(name, function, *args, **kwargs)

        return call

    return decorated


def add_own_times(own: dict[str, int], spans: Spans) -> None:
    """Add the nanoseconds of the main thread's spans to those in ``own``, by name. Each counts without those within it,
    but headers with the reading of their bytes."""
    inner = list[tuple[str, int, int]]()  # those whose caller has not come yet
    for name, began, ended in zip(*[iter(spans)] * 3, strict=True):
        if isinstance(name, tuple):
            continue
        own[name] = own.get(name, 0) + ended - began
        while inner and inner[-1][1] >= began:
            within, first, last = inner.pop()
            own[within if (name, within) == (HEADERS, READING) else name] -= last - first
        inner.append((name, began, ended))
