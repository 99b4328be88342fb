"""Functions for any training loop: batches on its device, and one state of the lanes of all ranks."""

from __future__ import annotations

from typing import Any

import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.run.device import Mover
from uio_pipes.run.epoch_end import require_steps_together
from uio_pipes.run.loader import Loader
from uio_pipes.run.ranks import all_gathered
from uio_pipes.run.state_merging import merge_states


def to_device(loader: Loader, device: torch.device | str | int) -> Loader:
    """Make ``loader`` give its batches on ``device`` from its next iteration on; return the loader.

    With workers, the next batch is received in the background while the trainer works on this one, and is copied from
    pinned memory on a CUDA stream of its own. States are not affected: a batch counts when the trainer gets it.

    Args:
        loader: the loader, not a pipeline.
        device: a ``torch.device``, its name ("cuda:0") or its number.

    Raises:
        PipelineError: there is no such device, or ``loader`` is a pipeline.
    """
    if isinstance(loader, Graph):
        raise PipelineError("to_device: takes a Loader, not a Pipeline; write to_device(uio.Loader(pipeline), device)")
    loader._move_by(Mover(device))
    return loader


def moved_as(loader: Loader, batch: Any) -> Any:
    """Return a batch on the device that ``loader`` gives its batches on."""
    mover = loader._options.mover
    return batch if mover is None else mover.end(*mover.begin(batch))


def gather_state(loader: Loader) -> dict[str, str] | None:
    """Collect the state of all ranks' lanes on rank 0; other ranks get None. Of a mesh, one process gets it.

    It is a collective of the ranks that share the data: each of them calls it at the same step. For a loader of one
    rank it is ``loader.state_dict()``.

    Args:
        loader: this rank's loader.

    Raises:
        StateError: under ``uneven="join"``, as ranks are not at the same step then.
    """
    if loader.peer:
        return None  # the first of those that get the same batches has the same state
    if loader.world_size == 1:
        return loader.state_dict()
    require_steps_together(loader._options)
    states = all_gathered(loader.state_dict(), loader._options.ranks.members or (), "in gather_state")
    return merge_states(states) if loader.rank == 0 else None


def gathered(loader: Loader, state: dict[str, str]) -> dict[str, str]:
    """Merge the states of all ranks, and return the same on each: a collective. ``state`` is that of this rank."""
    if loader.world_size == 1:
        return state
    require_steps_together(loader._options)
    return merge_states(all_gathered(state, loader._options.ranks.members or (), "to save the loader's state"))
