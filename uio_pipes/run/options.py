"""The options of a loader, checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch.utils.data import DataLoader, Dataset

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import Policy
from uio_pipes.formats.lists.quarantine import Quarantine
from uio_pipes.run.device import Mover
from uio_pipes.run.mixes import Mixes
from uio_pipes.run.ranks import Ranks
from uio_pipes.run.ray_fleet import Fleet, RayWorkers
from uio_pipes.run.tuning import LANES, WorkerPlan


@dataclass(frozen=True)
class RunOptions:
    """The options of a loader, named after the arguments of :class:`~uio_pipes.run.loader.Loader`.

    Raises: PipelineError if one breaks a rule.
    """

    pipeline: Graph
    seed: int
    num_workers: int | Literal["auto"]
    lanes: int
    ranks: Ranks
    uneven: str
    steps_per_epoch: int | None
    prefetch: int
    pin_memory: bool
    snapshot_every: int
    policy: Policy
    on_change: str
    mixes: Mixes = field(default_factory=Mixes)
    mover: Mover | None = None
    left_out: tuple[Callable[[str], bool], ...] = ()  # by loader.skip
    utterances: bool = False  # to give those of each batch, finished, instead of its tensors
    counted: int | None = None  # ranks for which steps are counted; None, these
    fleet: Fleet | None = None  # that the workers run in, instead of processes of this machine

    def __post_init__(self) -> None:
        if not isinstance(self.pipeline, Graph):
            raise PipelineError(_no_pipeline(self.pipeline))
        require_whole("seed", self.seed)
        _check_workers(self.num_workers)
        for name, least in (("prefetch", 1), ("snapshot_every", 1), ("lanes", 1)):
            require_whole(name, getattr(self, name), least)
        if self.steps_per_epoch is not None:
            require_whole("steps_per_epoch", self.steps_per_epoch, 1)
        _require_flag("pin_memory", self.pin_memory)
        if self.on_change not in ("error", "restart", "adopt"):
            raise PipelineError(f"on_change must be 'error', 'restart' or 'adopt', not {self.on_change!r}")
        self._check_graph()

    def _check_graph(self) -> None:
        kind = self.pipeline._kind
        if kind in ("item", "file", "record"):
            raise PipelineError(
                f"the pipeline gives {kind}s, not utterances: add .open_files().load_from_tar() or .load_from_raw()"
            )
        if self.lanes < self.ranks.world_size:
            raise PipelineError(
                f"{self.lanes} lanes cannot feed {self.ranks.world_size} ranks: lanes must be at least world_size; "
                "leave it out, or take a multiple of the number of ranks"
            )
        self.pipeline._check_lanes(self.lanes)

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def world_size(self) -> int:
        return self.ranks.world_size

    @property
    def pins(self) -> bool:
        """True if batches are put in pinned memory: without a GPU there is none."""
        return self.pin_memory and torch.cuda.is_available()

    @property
    def plan(self) -> WorkerPlan:
        """The workers to run, if they are given."""
        return WorkerPlan(0 if self.num_workers == "auto" else self.num_workers, self.prefetch)

    @property
    def in_steps(self) -> bool:
        """True if an epoch is a number of batches instead of all the data."""
        return self.steps_per_epoch is not None

    @property
    def of_workers(self) -> bool:
        """True if the ranks are workers of another loader, which decides about steps and says what it lacks."""
        return self.counted is not None

    @property
    def together(self) -> bool:
        """True if ranks step together, so that the epoch ends for all at once."""
        return self.uneven != "join" or self.in_steps

    @property
    def repeat(self) -> bool:
        """True if lanes that have ended begin again."""
        return self.uneven == "repeat" or self.in_steps


def _require_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise PipelineError(f"{name} must be True or False, not {value!r}")


def _no_pipeline(given: object) -> str:
    """Return what to give to a loader instead of something that is not a pipeline."""
    rule = f"pipeline must be a Pipeline, not {given!r}"
    if isinstance(getattr(given, "pipeline", None), Graph):
        return f"{rule}; give the pipeline that it was made of (its attribute .pipeline)"
    if isinstance(given, DataLoader):
        return f"{rule}; a Loader takes the place of torch's DataLoader, so give it the pipeline itself"
    if isinstance(given, (list, tuple, Dataset)):
        return f"{rule}; uio.from_iterable(…) makes one of a Dataset or a list of utterances"
    return f"{rule}; begin with uio.from_shard_list(…), uio.from_raw_list(…) or another uio.from_…"


def default_lanes(world_size: int, num_workers: int | Literal["auto"]) -> int:
    """Return the number of lanes that deals as WeNet does: one for each worker of each rank.

    If the workers are yet to be chosen, on each rank for itself, it depends on nothing but the number of ranks.
    """
    _check_workers(num_workers)
    return world_size * (LANES if num_workers == "auto" else max(1, num_workers))


def fleet_of(workers: RayWorkers | None, num_workers: int | Literal["auto"]) -> Fleet | None:
    """Return the Ray actors to run the lanes in, if any. Raises: PipelineError if there are two kinds of workers."""
    if workers is None:
        return None
    if not isinstance(workers, RayWorkers):
        raise PipelineError(f"workers must be uio.RayWorkers(…), not {workers!r}; num_workers=… is for local ones")
    if num_workers != 0:
        raise PipelineError(f"workers={workers!r} and num_workers={num_workers!r} exclude each other: leave out one")
    return Fleet(workers)


def _check_workers(num_workers: object) -> None:
    if num_workers == "auto":
        return
    if isinstance(num_workers, str):
        raise PipelineError(f"num_workers must be a whole number or 'auto', not {num_workers!r}")
    require_whole("num_workers", num_workers, 0)


def open_quarantine(path: str | os.PathLike[str], graph: Graph) -> Quarantine:
    """Open the file for failures. Raises: PipelineError if the graph reads it, or it cannot be written."""
    if any(os.path.realpath(path) in stage.fixed_files() for stage in graph._every_stage()):
        raise PipelineError(
            f"quarantine={os.fspath(path)!r} is the file that the pipeline excludes, and would change while it is "
            "in use: write to another one and join them for the next run"
        )
    try:
        return Quarantine(path)
    except OSError as error:
        raise PipelineError(f"cannot write quarantine={os.fspath(path)!r}: {error.strerror}") from error
