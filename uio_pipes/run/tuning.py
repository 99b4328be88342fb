"""``num_workers="auto"``: chooses the number of workers and how far they prepare ahead, from measured rates.

The loader begins with one worker and measures windows of batches. If the trainer waits, it tries a larger plan: more
workers if they are too slow on average, otherwise batches prepared further ahead. If the trainer still waits, and two
windows show no more speed, it returns to the plan before. The larger one is not tried again, unless the one before
turns out to be slower by now. So plans grow, the search ends, and nothing oscillates.

Who makes a batch does not matter to it (rule 6 of docs/architecture.md), so no batch and no state depends on a plan.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, NamedTuple

from uio_pipes.base.urls import plural

LANES = 16  # of each rank, unless `lanes` is given: the same on all machines, however many workers they come to
WINDOW = 32  # batches that are measured together, or one of each lane, if those are more
SHORTEST = 0.5  # seconds that a window takes at least
WAITING = 0.05  # share of the time above which the trainer waits too long
GAIN = 1.03  # speed that a larger plan must bring
SPARE = 1.2  # speed that workers must have on average, as a multiple of the trainer's
MOST_AHEAD = 8  # batches that each worker prepares ahead, unless the loader is told to prepare more

logger = logging.getLogger("uio_pipes")


class WorkerPlan(NamedTuple):
    """Worker processes of a rank, and batches that each prepares ahead. Without workers the lanes run in the rank."""

    workers: int
    prefetch: int

    def __str__(self) -> str:
        return f"{plural(self.workers, 'worker')}, prefetch {self.prefetch}"


class Rates(NamedTuple):
    """Means over a window, in seconds for a batch.

    ``step``: the trainer works on it; ``wait``: the trainer waits for it; ``make``: a worker makes it. ``speed``: the
    frames in a second that the trainer received (batches, if nothing has frames).
    """

    step: float
    wait: float
    make: float
    speed: float

    @property
    def waits(self) -> bool:
        """True if the trainer waits too long."""
        return self.wait > WAITING * (self.step + self.wait)


def at_once(lanes: int, workers: int) -> float:
    """Return how many lanes are worked on at once on average: the worker with the most lanes is done last."""
    return lanes / ceil(lanes / workers)


def larger(plan: WorkerPlan, limit: WorkerPlan, lanes: int, rates: Rates) -> WorkerPlan | None:
    """Return the plan to try when the trainer waits with ``plan``; None if there is none up to ``limit``.

    ``lanes``: those of the rank that have not ended.
    """
    now = at_once(lanes, plan.workers)
    wanted = SPARE * rates.make / rates.step if rates.step else inf
    ahead = plan._replace(prefetch=min(2 * plan.prefetch, limit.prefetch))
    if now >= wanted and ahead != plan:
        return ahead  # the workers are fast enough on average: it is unevenness that the trainer waits for
    more = [w for w in range(plan.workers + 1, min(limit.workers, lanes) + 1) if at_once(lanes, w) > now]
    best = max((at_once(lanes, w) for w in more), default=0.0)
    aim = min(wanted, 2 * now, best)  # at most double: a measured step at a time, to find where it stops to help
    return next((plan._replace(workers=w) for w in more if at_once(lanes, w) >= aim), ahead if ahead != plan else None)


@dataclass
class _Window:
    """The sums over a number of batches."""

    batches: int = 0
    step: float = 0.0
    wait: float = 0.0
    make: float = 0.0
    frames: int = 0
    longest: float = 0.0  # step

    def add(self, step: float, wait: float, make: float, frames: int) -> None:
        self.batches += 1
        self.step, self.wait, self.make = self.step + step, self.wait + wait, self.make + make
        self.frames += frames
        self.longest = max(self.longest, step)

    @property
    def seconds(self) -> float:
        return self.step + self.wait

    @property
    def has_pause(self) -> bool:
        """True if the trainer did something else in between, such as a validation: then the window says nothing."""
        return self.longest > self.seconds / 2

    @property
    def rates(self) -> Rates:
        n = self.batches
        return Rates(self.step / n, self.wait / n, self.make / n, (self.frames or n) / max(self.seconds, 1e-9))


@dataclass
class Tuner:
    """Chooses the plan of one rank. The loader keeps it from epoch to epoch.

    Args:
        plan: the plan to follow, which changes after some of the calls of ``add``.
        limit: the most workers, and the furthest ahead, that are still to be tried.
    """

    plan: WorkerPlan
    limit: WorkerPlan
    _before: tuple[WorkerPlan, float] | None = None  # the smaller plan and its speed, while a larger one is tried
    _doubts: bool = False  # a window has shown no more speed: one more decides
    _left: tuple[WorkerPlan, WorkerPlan, float] | None = None  # the plan given up just now, the limit till then, speed
    _window: _Window = field(default_factory=_Window)
    _frames: dict[int, int] = field(default_factory=dict)  # lane → frames delivered so far
    _warming: int = 0  # batches still to come that say nothing
    _reported: WorkerPlan | None = None

    @classmethod
    def beginning(cls, prefetch: int, cores: int) -> Tuner:
        """Return the tuner of a new loader: one worker, which prepares ``prefetch`` batches ahead."""
        return cls(WorkerPlan(1, prefetch), WorkerPlan(cores, max(prefetch, MOST_AHEAD)))

    def began(self, batches: int) -> None:
        """Note that workers have begun: the next ``batches`` fill buffers, or were made before, and are not counted."""
        self._warming = batches
        self._frames.clear()

    def add(self, lane: int, counts: Mapping[str, Any], step: float, wait: float, make: float, lanes: int) -> None:
        """Count a batch that the trainer received; after a window of them, choose.

        Args:
            lane: its lane. counts: what the ledger of the lane counted up to the batch.
            step: seconds that the trainer worked on the batch before. wait: that it waited. make: that a worker worked.
            lanes: number of the rank's lanes that have not ended.
        """
        frames = counts.get("padded", 0)
        before, self._frames[lane] = self._frames.get(lane, frames), frames
        if self._warming:
            self._warming -= 1
            return
        window = self._window
        window.add(step, wait, make, frames - before)
        if window.batches >= max(WINDOW, lanes) and window.seconds >= SHORTEST:
            self._window = _Window()
            if not window.has_pause and lanes:
                self._choose(window.rates, lanes)

    def _choose(self, rates: Rates, lanes: int) -> None:
        before, self._before = self._before, None
        in_vain = before is not None and rates.waits and rates.speed < GAIN * before[1]
        if in_vain and not self._doubts:
            self._before, self._doubts = before, True
            return
        self._doubts = False
        left, self._left = self._left, None
        if before is not None and in_vain:
            self._left = self.plan, self.limit, rates.speed
            self._go_back(before[0])
        elif left is not None and rates.waits and left[2] > GAIN * rates.speed:
            self.plan, self.limit = left[:2]  # all has become slower since the plans were compared
            self._log("takes %s after all", self.plan, rates)
        elif rates.waits and (more := larger(self.plan, self.limit, lanes, rates)) is not None:
            self._before, self.plan = (self.plan, rates.speed), more
            self._log("tries %s", more, rates)
        elif self._reported != self.plan:
            self._reported = self.plan
            self._log("settles on %s", self.plan, rates)

    def _go_back(self, plan: WorkerPlan) -> None:
        """Return to the smaller plan, and do not try more of what was changed in vain."""
        self.limit = WorkerPlan(
            *(was if was != now else most for was, now, most in zip(plan, self.plan, self.limit, strict=True))
        )
        logger.info('num_workers="auto" goes back to %s: %s brought no more speed', plan, self.plan)
        self.plan = plan

    def stay(self, plan: WorkerPlan) -> None:
        """Note that no more processes than those of ``plan`` can be started."""
        self.plan = self.limit = plan
        self._before = None

    def _log(self, what: str, plan: WorkerPlan, rates: Rates) -> None:
        milliseconds = tuple(f"{1e3 * seconds:.3g}" for seconds in (rates.make, rates.step, rates.wait))
        logger.info(
            f'num_workers="auto" {what}: a worker makes a batch in %s ms, the trainer works on it for %s ms and waits '
            "for it for %s ms",
            plan,
            *milliseconds,
        )
