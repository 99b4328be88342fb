"""Decisions of ``num_workers="auto"``, from given rates: no clock is asked."""

import logging
from collections.abc import Callable

import pytest

from uio_pipes.run.tuning import MOST_AHEAD, WINDOW, Rates, Tuner, WorkerPlan, at_once, larger

LIMIT = WorkerPlan(8, 8)


@pytest.mark.parametrize(
    ("plan", "lanes", "step", "make", "wanted"),
    [
        (WorkerPlan(1, 2), 16, 0.1, 0.11, WorkerPlan(2, 2)),  # slower than the trainer
        (WorkerPlan(1, 2), 16, 0.1, 0.9, WorkerPlan(2, 2)),  # at most double
        (WorkerPlan(4, 2), 16, 0.1, 0.42, WorkerPlan(6, 2)),  # 16 lanes in 5 workers are no faster than in 4
        (WorkerPlan(4, 2), 16, 0.0, 0.45, WorkerPlan(8, 2)),  # a trainer that does nothing
        (WorkerPlan(4, 2), 5, 0.1, 0.9, WorkerPlan(5, 2)),  # no more workers than lanes
        (WorkerPlan(2, 2), 16, 0.1, 0.1, WorkerPlan(2, 4)),  # fast enough on average: uneven
        (WorkerPlan(2, 8), 16, 0.1, 0.1, WorkerPlan(3, 8)),  # and as far ahead as it goes
        (WorkerPlan(8, 2), 16, 0.1, 9.0, WorkerPlan(8, 4)),  # no more cores
        (WorkerPlan(8, 8), 16, 0.1, 9.0, None),
        (WorkerPlan(1, 8), 1, 0.1, 9.0, None),
    ],
)
def test_the_plan_to_try_when_the_trainer_waits(
    plan: WorkerPlan, lanes: int, step: float, make: float, wanted: WorkerPlan | None
) -> None:
    assert larger(plan, LIMIT, lanes, Rates(step, make, make, 1.0)) == wanted


def test_lanes_worked_on_at_once() -> None:
    assert [at_once(16, workers) for workers in (1, 2, 3, 4, 5, 8, 16)] == [1, 2, 16 / 6, 4, 4, 8, 16]


class World:
    """A trainer and workers with given rates. ``make``: seconds for a batch, by the number of workers."""

    def __init__(self, step: float, make: Callable[[int], float], cores: int = 8, lanes: int = 16) -> None:
        self.step, self.make, self.lanes = step, make, lanes
        self.tuner = Tuner.beginning(2, cores)
        self.tuner.began(lanes)
        self.plans = [self.tuner.plan]
        self.received = 0

    def run(self, windows: int, pause: float = 0.0) -> list[WorkerPlan]:
        """Let so many windows pass, each with one ``pause`` of the trainer; return the plans so far."""
        for _ in range(windows):
            for number in range(WINDOW):
                self._batch(pause if number == 7 else 0.0)
        return self.plans

    def _batch(self, pause: float) -> None:
        plan = self.tuner.plan
        make = self.make(plan.workers)
        wait = max(0.0, make / at_once(self.lanes, plan.workers) - self.step)
        self.received += 1
        counts = {"padded": 400 * (self.received // self.lanes)}
        self.tuner.add(self.received % self.lanes, counts, self.step + pause, wait, make, self.lanes)
        if self.tuner.plan != plan:
            self.plans.append(self.tuner.plan)
            self.tuner.began(self.lanes)


def test_it_grows_until_the_trainer_does_not_wait_and_not_where_that_is_slow() -> None:
    for make, workers in ((0.35, (1, 2, 4)), (0.09, (1,))):
        world = World(step=0.1, make=lambda _, make=make: make)
        assert world.run(50) == [WorkerPlan(count, 2) for count in workers]


def test_a_trainer_that_does_nothing_gets_all_cores() -> None:
    world = World(step=0.0, make=lambda workers: 0.1, cores=6)
    assert [plan.workers for plan in world.run(50) if plan.prefetch == 2][:4] == [1, 2, 4, 6]
    assert world.tuner.plan.workers == 6


def test_it_goes_back_to_what_is_as_fast_and_stays_there() -> None:
    """From four workers on the disk is the limit, so that further ones only wait for each other."""
    world = World(step=0.001, make=lambda workers: 0.1 * max(1.0, at_once(16, workers) / 4))
    assert [plan.workers for plan in world.run(50)] == [1, 2, 4, 8, 4, 4, 4]
    assert world.plans[4:] == [WorkerPlan(4, 2), WorkerPlan(4, 4), WorkerPlan(4, 2)], "further ahead is no help, either"
    settled = list(world.plans)
    assert world.run(100) == settled


def test_a_machine_that_became_slower_hides_no_gain() -> None:
    """A larger plan that was no faster than the smaller one in better times is taken if that one is slower now."""
    world = World(step=0.001, make=lambda workers: 0.1, cores=2)
    assert world.run(2) == [WorkerPlan(1, 2), WorkerPlan(2, 2)]
    world.make = lambda workers: 0.3
    assert world.run(3) == [WorkerPlan(1, 2), WorkerPlan(2, 2), WorkerPlan(1, 2)]
    world.run(50)
    assert world.tuner.plan.workers == 2
    assert all(plan.workers == 2 for plan in world.plans[3:])


@pytest.mark.parametrize("make", [0.01, 0.2, 3.0])
def test_it_never_oscillates(make: float) -> None:
    """However the rates change, each plan is tried at most once more after it was left."""
    world = World(step=0.05, make=lambda workers: make)
    for number in range(200):
        world.make = lambda workers, now=number: make * (0.3 + now % 7) / (1 + now % 3)
        world.run(1)
    tried = list(world.plans)
    assert len(tried) < 24
    assert world.run(100) == tried


def test_pauses_of_the_trainer_say_nothing() -> None:
    """A validation after some batches neither hides that it waits, nor makes a larger plan look useless."""
    world = World(step=0.1, make=lambda workers: 0.19)
    assert world.run(10, pause=1000.0) == [WorkerPlan(1, 2)]
    assert world.run(2) == [WorkerPlan(1, 2), WorkerPlan(2, 2)]
    world.run(3, pause=1000.0)
    assert world.run(20) == [WorkerPlan(1, 2), WorkerPlan(2, 2)]


def test_batches_that_fill_buffers_are_not_measured() -> None:
    tuner = Tuner.beginning(2, 8)
    tuner.began(16)
    for number in range(16):
        tuner.add(number, {}, 0.1, 30.0, 30.0, 16)
    for number in range(WINDOW):
        tuner.add(number % 16, {}, 0.1, 0.0, 0.01, 16)
    assert tuner.plan == WorkerPlan(1, 2)


def test_a_given_prefetch_is_where_it_begins() -> None:
    assert Tuner.beginning(20, 4).limit == WorkerPlan(4, 20)
    assert Tuner.beginning(3, 4).limit == WorkerPlan(4, MOST_AHEAD)


def test_it_says_what_it_tries_and_settles_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uio_pipes")
    World(step=0.1, make=lambda workers: 0.15).run(10)
    assert caplog.messages == [
        'num_workers="auto" tries 2 workers, prefetch 2: a worker makes a batch in 150 ms, the trainer works on it for '
        "100 ms and waits for it for 50 ms",
        'num_workers="auto" settles on 2 workers, prefetch 2: a worker makes a batch in 150 ms, the trainer works on '
        "it for 100 ms and waits for it for 0 ms",
    ]
