"""Starts the lanes of a rank, in this process or in workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from uio_pipes.core.lane import worker_of
from uio_pipes.run.lane_runner import Place, RunSpec
from uio_pipes.run.options import LISTENERS, RunOptions
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ray.fleet import Fleet
from uio_pipes.run.ray.workers import RayWorker
from uio_pipes.run.state import LaneState
from uio_pipes.run.tuning import WorkerPlan
from uio_pipes.run.workers import InProcess, Runner, Worker

logger = logging.getLogger("uio_pipes")

States = dict[int, LaneState]


def spec_of(options: RunOptions, progress: EpochProgress, pass_over: Mapping[int, Place]) -> RunSpec:
    """Return what all lanes of the epoch share; ``pass_over``: where each lane begins to make its batches."""
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
