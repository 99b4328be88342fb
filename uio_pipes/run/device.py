"""Batches on the trainer's device: the copies, and ``uio.to_device``, which asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.run.workers import walk

if TYPE_CHECKING:
    from uio_pipes.run.loader import Loader


class Mover:
    """Copies batches to ``device``. ``begin`` and ``end`` may be called in different threads."""

    def __init__(self, device: torch.device | str | int) -> None:
        try:
            self.device = torch.empty(0, device=torch.device(device)).device  # "cuda": this process's GPU by number
        except (RuntimeError, AssertionError, TypeError) as error:
            first = str(error).split("\n", 1)[0]
            raise PipelineError(
                f"to_device: there is no device {device!r} here ({first}); give cuda:N or cpu"
            ) from error
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if on_gpu else None  # type: ignore[no-untyped-call]

    def begin(self, batch: Any) -> tuple[Any, torch.cuda.Event | None]:
        """Begin the copy: return the batch with tensors on the device, and what tells when the copies have run."""
        if self.stream is None:
            return walk(batch, torch.Tensor, lambda tensor: tensor.to(self.device)), None
        with torch.cuda.stream(self.stream):
            batch = walk(batch, torch.Tensor, lambda tensor: tensor.to(self.device, non_blocking=True))
            return batch, self.stream.record_event()

    def end(self, batch: Any, copied: torch.cuda.Event | None) -> Any:
        """Return the batch, safe to use on the current CUDA stream: that waits for the copy, the host does not."""
        if copied is None:
            return batch
        current = torch.cuda.current_stream(self.device)
        current.wait_event(copied)  # not for the next batch, whose copy may be under way
        return walk(batch, torch.Tensor, lambda tensor: _used_on(tensor, current))


def _used_on(tensor: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    tensor.record_stream(stream)  # allocated on another stream: it must not be reused before this one is done
    return tensor


def to_device(loader: Loader, device: torch.device | str | int) -> Loader:
    """Let ``loader`` give its batches on ``device`` from its next iteration on; return the loader.

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
