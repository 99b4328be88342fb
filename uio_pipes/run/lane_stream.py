"""Runs several lanes of a process in the epoch's order: by (pass, k, lane)."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from uio_pipes.run.lane_runner import LaneRunner, Message, RunSpec
from uio_pipes.run.state import LaneState

Prepared = tuple[dict[int, LaneRunner], dict[Hashable, Any]]  # by lane; and what they share


def prepared_lanes(spec: RunSpec, states: dict[int, LaneState], wanted: Callable[[], bool]) -> Prepared:
    """Restore lanes and fill their buffers, for a ``LaneStream`` to come, as long as that is ``wanted``.

    A lane that fails is left out: the stream builds it anew, and fails likewise if it has to.
    """
    runners, tables = dict[int, LaneRunner](), dict[Hashable, Any]()
    for lane, state in states.items():
        if not state.done and wanted():
            with contextlib.suppress(Exception):
                runner = LaneRunner(spec, lane, state, tables)
                runner.prepare()
                runners[lane] = runner
    return runners, tables


class LaneStream(Iterator[Message]):
    """Runs several lanes in the order (pass, k, lane). It ends with the last lane, or never (``repeat``).

    ``prepared``: what :func:`prepared_lanes` returned some time ago, for earlier states.
    """

    def __init__(self, spec: RunSpec, states: dict[int, LaneState], prepared: Prepared | None = None) -> None:
        self.spec = spec
        runners, tables = prepared or ({}, {})
        self.runners = {
            i: runner if (runner := runners.get(i)) is not None and runner.follow(s) else LaneRunner(spec, i, s, tables)
            for i, s in states.items()
            if not s.done or spec.repeat
        }
        self.queue = [(r.pass_, r.k, i) for i, r in self.runners.items() if not r.done]
        heapq.heapify(self.queue)
        if spec.repeat:
            for i in (i for i, r in self.runners.items() if r.done):
                self._repeat(i)

    def __next__(self) -> Message:
        if not self.queue:
            raise StopIteration
        _, _, lane = heapq.heappop(self.queue)
        runner = self.runners[lane]
        began = time.perf_counter()
        message = runner.next()
        message.took = time.perf_counter() - began
        message.memory *= len(self.runners)
        if not runner.done:
            heapq.heappush(self.queue, (runner.pass_, runner.k, lane))
        elif self.spec.repeat:
            self._repeat(lane)
        return message

    def _repeat(self, lane: int) -> None:
        runner = self.runners[lane]
        runner.again()
        heapq.heappush(self.queue, (runner.pass_, runner.k, lane))
