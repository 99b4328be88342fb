"""Starts the lanes of a rank, in this process or in workers, and moves them to other workers."""

from __future__ import annotations

import logging
import os

from uio_pipes.core.lane import worker_of
from uio_pipes.run.lane_runner import RunSpec
from uio_pipes.run.options import LISTENERS, RunOptions
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ray.fleet import Fleet
from uio_pipes.run.ray.workers import RayWorker
from uio_pipes.run.state import LaneState
from uio_pipes.run.tuning import WorkerPlan
from uio_pipes.run.workers import InProcess, Runner, Worker

logger = logging.getLogger("uio_pipes")

States = dict[int, LaneState]


def spec_of(options: RunOptions, progress: EpochProgress, pass_over: dict[int, int]) -> RunSpec:
    """Return what all lanes of the epoch share; ``pass_over``: lane → batches to pass over first."""
    return RunSpec(
        options.mixes.scheduled(options.pipeline, progress.stream, options.in_steps),
        lanes=progress.lanes,
        seed=options.seed,
        epoch=progress.stream,
        failures=options.failures,
        snapshot_every=options.snapshot_every,
        repeat=options.repeat,
        pass_over=pass_over,
        ranks=progress.ranks,
        left_out=options.left_out,
        excluding=options.excluded.of_epoch(progress.stream, options.in_steps),
        utterances=options.utterances,
        origins=bool(options.delivered or LISTENERS),
    )


def start_lanes(
    spec: RunSpec, states: States, plan: WorkerPlan, world_size: int, pin: bool, fleet: Fleet | None = None
) -> dict[int, Runner]:
    """Return lane → its runner, for all lanes that have not ended; with a ``fleet`` workers are actors of it."""
    runner_of: dict[int, Runner] = {}
    for number, group in enumerate(_groups(spec, states, plan, world_size)):
        runner: Runner
        if not plan.workers:
            runner = InProcess(spec, group, pin)
        elif fleet is not None:
            runner = RayWorker(fleet, number, spec, group, pin, plan.prefetch)
        else:
            runner = Worker(spec, group, pin, plan.prefetch)
        runner_of.update(dict.fromkeys(group, runner))
    return runner_of


def _groups(spec: RunSpec, states: States, plan: WorkerPlan, world_size: int) -> list[States]:
    groups: dict[int, States] = {}
    for lane, state in states.items():
        if spec.repeat or not state.done:
            groups.setdefault(worker_of(lane, world_size, plan.workers), {})[lane] = state
    return list(groups.values())


class Successors:
    """Workers that take lanes over from others, which go on meanwhile.

    They restore the lanes and fill the buffers, and wait. As soon as all have done that, and each lane has come
    further, they pass over the batches that were made meanwhile, by plan, as a resume does. So the trainer does not
    wait for processes that start and buffers that fill.
    """

    def __init__(self, spec: RunSpec, states: States, plan: WorkerPlan, world_size: int, pin: bool) -> None:
        """Raises: OSError if a process cannot be started."""
        self.plan, self._states = plan, states
        self.workers: list[Worker] = []
        self._lanes: list[list[int]] = []
        try:
            for group in _groups(spec, states, plan, world_size):
                self.workers.append(Worker(spec, group, pin, plan.prefetch, standby=True))
                self._lanes.append(list(group))
        except OSError:
            self.close()
            raise

    @property
    def ready(self) -> bool:
        """True if all workers stand by."""
        return all(worker.stands_by for worker in self.workers)

    def can_follow(self, states: States) -> bool:
        """Return whether each lane is further than the workers are: they have passed over a batch to fill buffers."""
        return all(_at(states[lane]) > _at(self._states[lane]) for lanes in self._lanes for lane in lanes)

    def take_over(self, states: States) -> dict[int, Runner]:
        """Begin at these states; return lane → its new runner."""
        runner_of: dict[int, Runner] = {}
        for worker, lanes in zip(self.workers, self._lanes, strict=True):
            worker.go({lane: states[lane] for lane in lanes})
            runner_of.update(dict.fromkeys(lanes, worker))
        return runner_of

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.close()


def _at(state: LaneState) -> tuple[int, int, bool]:
    return state.pass_, state.k, state.done


def log_memory(estimate: int) -> None:
    """Log how many bytes the buffers of this rank will need."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"buffers of this rank: about {estimate / 2**20:.0f} MiB when full"
    if estimate > ram / 4:
        logger.warning(
            "%s, above a quarter of the memory (%.0f GiB); use smaller buffers or fewer lanes", text, ram / 2**30
        )
    else:
        logger.info("%s", text)
