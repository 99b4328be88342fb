"""The clock of a process: what its threads do, as spans of time, for :meth:`Loader.trace` and ``uio bench``.

There is one for all of a process, so nobody has to pass it on. While none runs, a place that is timed only asks for it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

Params = ParamSpec("Params")
T = TypeVar("T")
now = time.perf_counter_ns  # the same in all processes of a machine
SHORT = 20_000  # nanoseconds: what takes less stays a part of what called it
DETAILED = 64  # of so many batches of a process one is traced utterance by utterance: of all, that would cost 4 to 6 %
MOST = 3 * 400  # numbers of spans after which a batch, for which buffers are filled, is traced as the others are
WAITED = 200_000  # nanoseconds: a read that takes less did not wait for a disk, and is shown in detail alone
READING, HEADERS = "reading", "reading headers"
# Name, when it began, when it ended; those of the next one; …: in the order of their ends. A flat list of what nobody
# else refers to costs least. In other threads than the main one, the name is a tuple: the span's, the thread's, and its
# number.
KeptSpans = list[Any]


class Clock:
    """Keeps spans of ``short`` nanoseconds or more. With 0, it times all that stages do."""

    def __init__(self, short: int) -> None:
        self.short = self.reads = short  # ``reads``: of those that take less, none is kept
        self._spans: KeptSpans = []
        self._thread, self._started = threading.get_ident(), now()
        self._names: dict[int, str] = {}  # of stages, by their links
        self._starts: dict[Any, str] = {}  # how the lines of a span begin, by its name
        self.named = set[tuple[str, int]]()  # what lines have told the name of: the process, and threads
        self.followed = WeakKeyDictionary[Any, Callable[[], Any]]()

    def keep(self, name: str, began: int, ended: int) -> None:
        if began < self._started or (name == READING and ended - began < self.reads):
            return
        if threading.get_ident() != self._thread:
            thread = threading.current_thread()  # by the system's number: Perfetto takes 32 bits
            self._spans.extend(((name, thread.name, thread.native_id), began, ended))
            return
        self._spans.extend((name, began, ended))
        if detailed is self and len(self._spans) > MOST and self.short:
            detail(False)

    def taken(self) -> KeptSpans:
        """Return the spans that ended since this was called before."""
        spans = self._spans[:]
        del self._spans[: len(spans)]  # another thread may have added some
        return spans

    def lines(self) -> str:
        """Return these spans as Chrome's trace events, in microseconds: of each a line, with a comma before it."""
        spans, starts, made = iter(self.taken()), self._starts, list[str]()
        for name, began, ended in zip(spans, spans, spans, strict=True):
            at = began // 1000
            made.append(f'{starts.get(name) or self._start(name)}{at},"dur":{ended // 1000 - at}}}')
        return "".join(made)

    def _start(self, span: str | tuple[str, str, int]) -> str:
        """Return how the lines of a span begin. The names of its process and thread come before the first of them."""
        name, thread, number = (span, "main", os.getpid()) if isinstance(span, str) else span
        where = f'"pid":{os.getpid()},"tid":{number},"name":{json.dumps(name)}'
        start = self._starts[span] = f',\n{{"ph":"X",{where},"ts":'
        for kind in (("thread", number, thread), ("process", 0, "worker")):
            if kind[:2] not in self.named:
                self.named.add(kind[:2])
                start = about(*kind) + start
        return start

    def applied(self, link: Any, began: int) -> int:
        """Note that a link was applied from ``began`` until now, which is returned: the next one begins then."""
        note(self._names.get(id(link), link.name), began)
        return now()

    def follow(self, node: Any, name: str, only_link: bool) -> None:
        """Time each ``next`` of a node of the stage ``name``, and what its link does; ``only_link``: not the former."""
        if (link := getattr(node, "link", None)) is not None:
            self._names[id(link)] = name
        if only_link:
            return
        method, here = type(node).next, ref(node)  # no cycle

        def timed_next() -> Any:
            began = now()
            try:
                return method(here())
            finally:
                note(name, began)

        self.followed[node] = timed_next
        if detailed is self:
            node.next = timed_next


running: Clock | None = None
detailed: Clock | None = None  # the same one, while it times what stages do with each utterance


def start(short: int = SHORT) -> Clock:
    """Start the clock of this process. The stages of lanes that begin from now on are timed."""
    global running, detailed
    detailed = running = Clock(short)
    return running


def detail(wanted: bool) -> None:
    """From now on, time what stages do with each utterance, or only what reads, and what comes once in a batch."""
    global detailed
    if running is not None and wanted is (detailed is None):
        detailed, running.reads = (running, running.short) if wanted else (None, WAITED)
        for node, timed_next in running.followed.items():
            if wanted:
                node.next = timed_next
            else:
                del node.next


def stop() -> None:
    """Stop it, if it runs."""
    global running
    detail(False)
    running = None


os.register_at_fork(after_in_child=stop)


def note(name: str, began: int) -> None:
    """Keep what began at ``began`` and ends now, if the clock runs."""
    clock = running  # which another thread may stop
    if clock is not None and (ended := now()) - began >= clock.short:
        clock.keep(name, began, ended)


def timed(name: str, of_utterance: bool = False) -> Callable[[Callable[Params, T]], Callable[Params, T]]:
    """Make each call of a function a span ``name``, while the clock runs. ``of_utterance``: only in detail."""

    def decorated(function: Callable[Params, T]) -> Callable[Params, T]:
        @wraps(function)
        def call(*args: Params.args, **kwargs: Params.kwargs) -> T:
            if (detailed if of_utterance else running) is None:
                return function(*args, **kwargs)
            began = now()
            try:
                return function(*args, **kwargs)
            finally:
                note(name, began)

        return call

    return decorated


def about(kind: str, thread: int, name: str) -> str:
    """Return the line of a trace that names this process or a thread of it."""
    line = {"ph": "M", "pid": os.getpid(), "tid": thread, "name": f"{kind}_name", "args": {"name": name}}
    return f",\n{json.dumps(line)}"


def add_own_times(own: dict[str, int], spans: KeptSpans) -> None:
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
