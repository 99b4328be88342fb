"""Where a stage that makes batches gets their memory from: a worker has memory that the main process sees, too.

``pad`` asks here, and knows nothing of processes. Whatever else a batch holds is copied when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["empty", "use"]

Make = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


def _private(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


_make: Make = _private


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor for a batch, not filled."""
    return _make(shape, dtype)


def use(make: Make) -> None:
    """Let ``make`` give this process its batches' memory from now on."""
    global _make
    _make = make
