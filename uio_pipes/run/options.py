"""The options of a loader, checked and resolved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import Policy
from uio_pipes.run.device import Mover
from uio_pipes.run.epoch_end import choose

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """What a loader runs, and how. Attributes are named after the arguments of :class:`~uio_pipes.run.loader.Loader`.

    Raises: PipelineError if one breaks a rule.
    """

    pipeline: Graph
    seed: int
    num_workers: int
    lanes: int
    rank: int
    world_size: int
    uneven: str
    steps_per_epoch: int | None
    prefetch: int
    pin_memory: bool
    snapshot_every: int
    policy: Policy
    on_change: str
    mover: Mover | None = None

    @classmethod
    def of(
        cls,
        pipeline: Graph,
        *,
        seed: int,
        num_workers: int,
        lanes: int | None,
        rank: int | None,
        world_size: int | None,
        partition: bool,
        uneven: str | None,
        steps_per_epoch: int | None,
        prefetch: int,
        pin_memory: bool,
        snapshot_every: int,
        policy: Policy,
        on_change: str,
    ) -> RunOptions:
        """Check what was given, and find out what was left to us."""
        if not isinstance(pipeline, Graph):
            raise PipelineError(_no_pipeline(pipeline))
        require_whole("seed", seed)
        require_whole("num_workers", num_workers, 0)
        for name, number in (("prefetch", prefetch), ("snapshot_every", snapshot_every)):
            require_whole(name, number, 1)
        for name, chosen in (("lanes", lanes), ("steps_per_epoch", steps_per_epoch)):
            if chosen is not None:
                require_whole(name, chosen, 1)
        for name, flag in (("partition", partition), ("pin_memory", pin_memory)):
            if not isinstance(flag, bool):
                raise PipelineError(f"{name} must be True or False, not {flag!r}")
        if on_change not in ("error", "restart"):
            raise PipelineError(f"on_change must be 'error' or 'restart', not {on_change!r}")
        rank, world_size = _topology(rank, world_size, partition)
        options = cls(
            pipeline,
            seed,
            num_workers,
            world_size * max(1, num_workers) if lanes is None else lanes,
            rank,
            world_size,
            choose(uneven, world_size),
            steps_per_epoch,
            prefetch,
            pin_memory and torch.cuda.is_available(),
            snapshot_every,
            policy,
            on_change,
        )
        options._check_graph()
        return options

    def _check_graph(self) -> None:
        kind = self.pipeline._kind
        if kind in ("item", "file", "record"):
            raise PipelineError(
                f"the pipeline gives {kind}s, not utterances: add .open_files().load_from_tar() or .load_from_raw()"
            )
        if self.lanes < self.world_size:
            raise PipelineError(
                f"{self.lanes} lanes cannot feed {self.world_size} ranks: lanes must be at least world_size; "
                "leave it out, or take a multiple of the number of ranks"
            )
        self.pipeline._check_lanes(self.lanes)

    @property
    def in_steps(self) -> bool:
        """Whether a number of batches makes an epoch, and not all the data."""
        return self.steps_per_epoch is not None

    @property
    def together(self) -> bool:
        """Whether ranks step together, so that the epoch ends for all at once."""
        return self.uneven != "join" or self.in_steps

    @property
    def repeat(self) -> bool:
        """Whether lanes that have ended are dealt again."""
        return self.uneven == "repeat" or self.in_steps


def _no_pipeline(given: object) -> str:
    """Say what to give to a loader instead of something that is no pipeline."""
    rule = f"pipeline must be a Pipeline, not {given!r}"
    if isinstance(getattr(given, "pipeline", None), Graph):
        return f"{rule}; give the pipeline that it was made of (its attribute .pipeline)"
    if isinstance(given, DataLoader):
        return f"{rule}; a Loader takes the place of torch's DataLoader, so give it the pipeline itself"
    if isinstance(given, (list, tuple, Dataset)):
        return f"{rule}; uio.from_iterable(…) makes one of a Dataset or a list of utterances"
    return f"{rule}; begin with uio.from_shard_list(…), uio.from_raw_list(…) or another uio.from_…"


def _topology(rank: int | None, world_size: int | None, partition: bool) -> tuple[int, int]:
    grouped = dist.is_available() and dist.is_initialized()
    if world_size is not None:
        require_whole("world_size", world_size, 1)
    if rank is not None:
        require_whole("rank", rank)
    if (rank is None) != (world_size is None):
        raise PipelineError("rank and world_size are given together, or neither")
    if rank is None or world_size is None:
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
    if not 0 <= rank < world_size:
        raise PipelineError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
    return (rank, world_size) if partition else (0, 1)
