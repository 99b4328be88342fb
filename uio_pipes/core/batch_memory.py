"""The memory of batches: a worker gives ``pad`` memory that the main process sees, too.

``pad`` asks here and needs to know nothing of processes. Everything else in a batch is copied when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Make = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


def _private(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


_make: Make = _private


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized tensor for a batch."""
    return _make(shape, dtype)


def use(make: Make) -> None:
    """Make this process allocate the tensors of its batches with ``make`` from now on."""
    global _make
    _make = make
