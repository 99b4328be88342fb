"""Copies of batches to the trainer's device, for ``uio.to_device``."""

from __future__ import annotations

from typing import Any

import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.run.workers import walk


class Mover:
    """Copies batches to ``device``. ``begin`` and ``end`` may be called in different threads."""

    def __init__(self, device: torch.device | str | int) -> None:
        try:
            self.device = torch.empty(0, device=torch.device(device)).device  # "cuda": this process's GPU by number
        except (RuntimeError, AssertionError, TypeError) as error:
            first = str(error).split("\n", 1)[0]
            raise PipelineError(
                f"to_device: the device {device!r} is not available ({first}); use cuda:N or cpu"
            ) from error
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if on_gpu else None  # type: ignore[no-untyped-call]

    def begin(self, batch: Any) -> tuple[Any, torch.cuda.Event | None]:
        """Begin the copy: return the batch with tensors on the device, and an event for the end of the copies."""
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
        # They were allocated on another stream, and must not be reused before this one is done.
        return walk(batch, torch.Tensor, lambda tensor: tensor.record_stream(current) or tensor)
