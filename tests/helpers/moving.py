"""Loaders whose lanes move to other numbers of workers at given batches, whatever the rates are."""

from collections.abc import Mapping
from typing import Any

import uio_pipes as uio
from uio_pipes.run.tuning import Tuner, WorkerPlan

PLANS = (WorkerPlan(1, 2), WorkerPlan(3, 1), WorkerPlan(2, 4), WorkerPlan(4, 2), WorkerPlan(1, 1))


class Scripted(Tuner):
    """Wants the next of ``plans`` after every ``every`` batches since the last move, at the end the first one again, or
    the last for good (``once``). ``followed``: those it got."""

    def __init__(self, plans: tuple[WorkerPlan, ...] = PLANS, every: int = 3, once: bool = False) -> None:
        super().__init__(plans[0], WorkerPlan(8, 8))
        self.plans, self.every, self.once = plans, every, once
        self.followed: list[WorkerPlan] = []
        self.batches = 0

    def began(self, batches: int) -> None:
        self.followed.append(self.plan)
        self.batches = 0

    def add(self, lane: int, counts: Mapping[str, Any], step: float, wait: float, make: float, lanes: int) -> None:
        self.batches += 1
        if self.batches == self.every and not (self.once and self.plan == self.plans[-1]):
            self.plan = self.plans[(self.plans.index(self.plan) + 1) % len(self.plans)]


def moving(pipeline: uio.Pipeline, tuner: Tuner | None = None, **options: Any) -> uio.Loader:
    """Return a loader with ``num_workers="auto"`` that is driven by ``tuner``."""
    loader = uio.Loader(pipeline, num_workers="auto", **options)
    loader._tuner = tuner or Scripted()
    return loader
