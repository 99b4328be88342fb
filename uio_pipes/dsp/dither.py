"""Gaussian noise for dither, each utterance's own, without drawing it: sums of stretches of two tables of normals."""

from __future__ import annotations

from functools import cache

import torch

from uio_pipes.base.hashing import Draws

__all__ = ["noise"]

LENGTHS = (1 << 18, (1 << 18) - 1)  # of the tables, coprime: 16 s at 16 kHz
_SEED = 20_000_003


def noise(samples: int, draws: Draws) -> list[torch.Tensor]:
    """Two tensors (S,) float32, to be read only, whose sum is standard normal: stretches of two tables of normals,
    at drawn places and with drawn signs.

    A sum of two independent normals of variance 1/2 is a normal of variance 1. The tables are gone through in circles
    of coprime lengths, so that 2.7e11 noises are as likely, and none repeats within an utterance; but after 16 s half
    of it, and after 16 s and a sample the other half, comes with the other sign. Of 260,000 pairs of utterances one has
    half of its noise in common, sample for sample. Drawing as many normals takes ten times as long.
    """
    return [_stretch(table, samples, draws.below(2 * n)) for table, n in zip(_tables(), LENGTHS, strict=True)]


def _stretch(table: torch.Tensor, samples: int, first: int) -> torch.Tensor:
    """(S,) of the circle of a table and its negative, from ``first`` on."""
    circle = 2 * len(table) // 3
    if first + samples <= len(table):
        return table[first : first + samples]
    return table[:circle].roll(-first).repeat(-(-samples // circle))[:samples]


@cache
def _tables() -> list[torch.Tensor]:
    """Normals of variance 1/2, their negatives, and the normals once more, so that most stretches lie in one piece."""
    generator = torch.Generator().manual_seed(_SEED)
    normals = [torch.randn(n, generator=generator) * 0.5**0.5 for n in LENGTHS]
    return [torch.cat((drawn, -drawn, drawn)) for drawn in normals]
