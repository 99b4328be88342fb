"""Starts the lanes of a rank, in this process or in workers, and notifies listeners of their batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol
from weakref import WeakSet

from uio_pipes.core.lane import worker_of
from uio_pipes.run.lane_runner import LaneOptions, Message, Place
from uio_pipes.run.options import RunOptions
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ray.workers import RayWorker
from uio_pipes.run.state import LaneState
from uio_pipes.run.tuning import WorkerPlan
from uio_pipes.run.workers import InProcess, Runner, Worker

logger = logging.getLogger("uio_pipes")


class Listener(Protocol):
    """Is notified of what the loaders of this process deliver. ``origins``: also of where utterances came from."""

    @property
    def origins(self) -> bool: ...

    def hear(self, message: Message, progress: EpochProgress, options: RunOptions) -> object:
        """Handle a message: its batch, if it has one, and its reports. ``progress``: the position after it,
        which is the loader's own."""


LISTENERS: WeakSet[Listener] = WeakSet()


def options_of(options: RunOptions, progress: EpochProgress, pass_over: Mapping[int, Place]) -> LaneOptions:
    """Return the options that all lanes of the epoch share; ``pass_over``: where each lane begins to make batches."""
    of_epoch: dict[str, Any] = {
        "pipeline": options.mixes.scheduled(options.pipeline, progress.stream, options.in_steps),
        "lanes": progress.lanes,
        "step_ranks": progress.ranks,
        "epoch": progress.stream,
        "pass_over": pass_over,
        "excluding": options.excluded.of_epoch(progress.stream, options.in_steps),
        "origins": any(one.origins for one in LISTENERS),
        "turns": progress.turns(options.rank),
        "traced": 0 if options.tracing is None else options.tracing.left,
    }
    return LaneOptions(**{one.name: getattr(options, one.name) for one in fields(LaneOptions)} | of_epoch)


def start_lanes(
    options: RunOptions,
    progress: EpochProgress,
    states: Mapping[int, LaneState],
    plan: WorkerPlan,
    pass_over: Mapping[int, Place],
) -> dict[int, Runner]:
    """Return lane → its runner, for all lanes that have not ended."""
    shared, pin = options_of(options, progress, pass_over), options.pins
    groups: dict[int, dict[int, LaneState]] = {}
    for lane, state in states.items():
        if options.repeat or not state.done:
            groups.setdefault(worker_of(lane, options.world_size, plan.workers), {})[lane] = state
    runner_of: dict[int, Runner] = {}
    for number, group in enumerate(groups.values()):
        runner: Runner
        if not plan.workers:
            runner = InProcess(shared, group, pin)
        elif options.fleet is not None:
            runner = RayWorker(options.fleet, number, shared, group, pin, plan.prefetch)
        else:
            runner = Worker(shared, group, pin, plan.prefetch)
        runner_of.update(dict.fromkeys(group, runner))
    return runner_of


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
