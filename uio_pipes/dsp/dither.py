"""Gaussian noise for dither: drawn anew for each utterance, or taken from a pool at a place of its own."""

from __future__ import annotations

import threading
from functools import cache

import torch

from uio_pipes.lane import Draws

__all__ = ["fresh_noise", "pooled_noise"]

POOL = 1 << 20  # samples: 65 s at 16 kHz, 4 MiB
_SEED = 20_000_003

_local = threading.local()


def fresh_noise(samples: int, draws: Draws) -> torch.Tensor:
    """(S,) float32 standard normal, of the utterance's own generator."""
    if not hasattr(_local, "generator"):
        _local.generator = torch.Generator()  # keyed anew for each utterance: a new one would take longer than that
    return torch.randn(samples, generator=_local.generator.manual_seed(draws.seed >> 1))


def pooled_noise(samples: int, draws: Draws) -> torch.Tensor:
    """(S,) float32: a stretch of the pool from a drawn place on, its sign drawn too; to be read only."""
    first = draws.below(2 * POOL)
    pool = _pool()
    if samples <= POOL:
        return pool[first : first + samples]
    return pool[first : first + POOL].repeat(-(-samples // POOL))[:samples]


@cache
def _pool() -> torch.Tensor:
    """Normals, their negatives, and the beginning once more: a stretch of up to POOL begins anywhere below 2 POOL."""
    normals = torch.randn(POOL, generator=torch.Generator().manual_seed(_SEED))
    return torch.cat((normals, -normals, normals))
