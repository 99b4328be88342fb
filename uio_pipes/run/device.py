"""Batches on the trainer's device: the next one is copied while the trainer works on this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.workers import walk

if TYPE_CHECKING:
    from uio_pipes.run.loader import Loader

__all__ = ["Mover", "to_device"]


def to_device(loader: Loader, device: torch.device | str | int) -> Loader:
    """Let ``loader`` give its batches on ``device``, beginning with its next iteration; returns the loader.

    With workers, the next batch is received in the background while the trainer works on this one, and its copy is
    begun from pinned memory, on a stream of its own. States are not affected: a batch counts when the trainer gets
    it.

    Args:
        loader: the loader, not a pipeline.
        device: where its batches go: a ``torch.device``, its name ("cuda:0") or its number.

    Raises:
        PipelineError: there is no such device, or ``loader`` is a pipeline.
    """
    if isinstance(loader, Pipeline):
        raise PipelineError("to_device: takes a Loader, not a Pipeline; write to_device(uio.Loader(pipeline), device)")
    loader.mover = Mover(device)
    loader.pin_memory = loader.mover.stream is not None
    return loader


class Mover:
    """Copies batches to ``device``. ``begin`` may be called in another thread than ``end``."""

    def __init__(self, device: torch.device | str | int) -> None:
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            first = str(error).split("\n", 1)[0]
            raise PipelineError(
                f"to_device: there is no device {device!r} here ({first}); name cuda:N or cpu"
            ) from error
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if on_gpu else None  # type: ignore[no-untyped-call]

    def begin(self, batch: Any) -> Any:
        """The batch with its tensors on the device, once what is queued there has run."""
        if self.stream is None:
            return walk(batch, torch.Tensor, lambda tensor: tensor.to(self.device))
        with torch.cuda.stream(self.stream):
            return walk(batch, torch.Tensor, lambda tensor: tensor.to(self.device, non_blocking=True))

    def end(self, batch: Any) -> Any:
        """The batch, safe to be used on the current stream: it waits for the copy, the host does not."""
        if self.stream is None:
            return batch
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)
        return walk(batch, torch.Tensor, lambda tensor: _used_on(tensor, current))


def _used_on(tensor: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    tensor.record_stream(stream)  # its memory was taken on another stream: not to be given away before this one is done
    return tensor
