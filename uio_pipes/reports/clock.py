"""Times every stage of a running pipeline: by taps between stages, and by wrapping deferred stages."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core import sample as samples
from uio_pipes.core.graph import Graph
from uio_pipes.core.node import Node
from uio_pipes.core.per_utterance import Wrapped
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.io.local import Ref
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.seeing.probe import Tap

READING = "reading audio"
HEADERS = "reading headers"
T = TypeVar("T")
G = TypeVar("G", bound=Graph)


class Clock:
    """Seconds spent, by name. Time that is measured within another measurement is not counted for the outer one."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._within = 0.0  # seconds measured within the current measurement

    def time(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return ``function(…)`` and count its time under ``name``."""
        before, self._within = self._within, 0.0
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            took = time.perf_counter() - began
            self.spent[name] += took - self._within
            self._within = before + took


def timed(graph: G, clock: Clock, within: str = "") -> G:
    """Return ``graph`` with a ``clock`` on every stage; it gives the same batches."""
    stages: list[Stage] = []
    for stage, site in graph._sites():
        name = within + site.name + (f" #{site.ordinal + 1}" if site.ordinal else "")
        stage = stage.with_branches(lambda key, graph: timed(graph, clock, f"{within}{key}: "))
        deferred = stage.deferred()
        stages += (
            [stage, Tap(partial(_TimingNode, label=name, clock=clock))]
            if deferred is None
            else [_TimedStage(deferred, name, clock)]
        )
    return type(graph)(tuple(stages))


@contextlib.contextmanager
def headers_timed(clock: Clock) -> Iterator[None]:
    """Count the reading of headers by itself, instead of for the stage that happens to ask for a length first."""
    measure = vars(samples)["measure"]
    setattr(samples, "measure", partial(clock.time, HEADERS, measure))  # noqa: B010
    try:
        yield
    finally:
        setattr(samples, "measure", measure)  # noqa: B010


@dataclass(frozen=True)
class _TimedStage(Wrapped):
    label: str
    clock: Clock

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        return self.clock.time(self.label, self.inner.plan, plan, sample, draws)

    def apply(self, sample: Sample, draws: Draws) -> None:
        if "wav" in self.reads:
            self.clock.time(READING, _read, sample)
        self.clock.time(self.label, self.inner.apply, sample, draws)


def _read(sample: Sample) -> None:
    """Read the audio's bytes before they are decoded; a file's go to the system's cache."""
    wav = sample.fields.get("wav")
    if isinstance(wav, Ref):
        sample.fields["wav"] = wav.read()
    elif isinstance(wav, str) and is_local(wav) is not None:
        try:
            with open_binary(wav) as file:
                file.read()
        except (DataError, OSError):
            return  # the stage reports it


class _TimingNode(Node):
    """Times the stage before it, without what is timed in the stages before that."""

    def __init__(self, source: Node, label: str, clock: Clock) -> None:
        super().__init__(source)
        self.label, self.clock = label, clock

    def next(self) -> Any:
        return self.clock.time(self.label, self.source.next)

    def skip(self, n: int) -> None:
        self.clock.time(self.label, self.source.skip, n)
