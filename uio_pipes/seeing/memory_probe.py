"""The peak memory of a training step, and batches of any shape to measure it on."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.run.loader import Loader

PROC = Path("/proc/self")


class Shape(NamedTuple):
    """What the memory of a batch depends on: utterances, frames of the longest, labels of the longest."""

    utterances: int
    frames: int
    labels: int

    def __str__(self) -> str:
        return f"{self.utterances:,} × {self.frames:,} frames × {self.labels:,} labels"


def on_gpu() -> bool:
    """Return whether this process uses a GPU, so that the memory of that one counts."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def peak(run: Callable[[], object]) -> int:
    """Return the most bytes in use while ``run()`` ran: by tensors on the current GPU, or resident in this process.

    What allocators keep of earlier steps is given back first, and the peak forgotten that the kernel knows (proc(5)).
    """
    gc.collect()
    if on_gpu():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated()
    if not PROC.exists():
        raise PipelineError("fit_budget: there is no /proc to measure the memory of this process; use Linux, or a GPU")
    ctypes.CDLL(None).malloc_trim(0)
    (PROC / "clear_refs").write_text("5")
    run()
    line = next(line for line in (PROC / "status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def template(loader: Loader) -> Callable[[Shape], dict[str, Any]]:
    """Return a function that makes batches of any shape, all rows alike: an utterance of the epoch's first batch, over
    and over. The loader does not move.

    A field with ``NAME_lengths`` (or ``NAME_length``) gets the labels of the shape if it is a target, else the frames.

    Raises: PipelineError if ``pad`` does not make the batches.
    """
    place: dict[str, Any] = {"rank": loader.rank, "world_size": loader.world_size, "uneven": "join"}
    own = Loader(loader.pipeline, seed=loader.seed, lanes=loader.lanes, **place)
    own.set_epoch(loader.epoch)
    batch, mover = next(iter(own)), loader._options.mover
    fields = _lengths(batch) if isinstance(batch, Mapping) else {}
    if not fields or "keys" not in batch:
        raise PipelineError("fit_budget: probes are made of padded batches; the pipeline must end with .pad()")
    count, frames = len(batch["keys"]), own.stats().padded // len(batch["keys"])
    batch = batch if mover is None else mover.end(*mover.begin(batch))
    row = next((i for i in range(count) if all(batch[lengths][i] > 0 for lengths in fields.values())), 0)

    def made(shape: Shape) -> dict[str, Any]:
        probe = {name: _repeated(value, row, count, shape.utterances) for name, value in batch.items()}
        for name, lengths in fields.items():
            value, last = batch[name], max(1, int(batch[lengths][row]))
            long = shape.labels if "target" in name else round(value.size(1) * shape.frames / frames)
            whole = value[row, torch.arange(long, device=value.device) % last]
            probe[name] = whole.expand(shape.utterances, *whole.shape).contiguous()
            probe[lengths] = torch.full_like(probe[lengths], long)
        return probe

    return made


def _lengths(batch: Mapping[str, Any]) -> dict[str, str]:
    """Return the padded fields of a batch, with the names of their lengths."""
    names = {name: of for name in batch for of in (f"{name}_lengths", f"{name}_length") if of in batch}
    return {name: of for name, of in names.items() if isinstance(batch[name], torch.Tensor)}


def _repeated(value: Any, row: int, count: int, times: int) -> Any:
    """Return one row ``times`` over, if the value has one for each of ``count`` utterances."""
    if not hasattr(value, "__len__") or len(value) != count:
        return value
    return (
        value[row : row + 1].repeat(times, *[1] * (value.ndim - 1))
        if isinstance(value, torch.Tensor)
        else [value[row]] * times
    )
