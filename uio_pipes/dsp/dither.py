"""Gaussian noise for dither, different for each utterance, put together from two tables of normals."""

from __future__ import annotations

from functools import cache

import torch

from uio_pipes.base.hashing import Draws

LENGTHS = (1 << 18, (1 << 18) - 1)  # of the tables, coprime: 16 s at 16 kHz
_SEED = 20_000_003


def noise(samples: int, draws: Draws) -> list[torch.Tensor]:
    """Return two tensors (S,) float32, not to be written to, whose sum is standard normal.

    They are stretches of two tables of normals, at drawn places and with drawn signs: a sum of two independent normals
    of variance 1/2 is a normal of variance 1. The tables are circles of coprime lengths, so that 2.7e11 different
    noises are equally likely, and none repeats within an utterance; but after 16 s one half of it comes again with the
    other sign, and a sample later the other half. One of 260,000 pairs of utterances has half of its noise in common,
    sample for sample. Drawing as many normals would take ten times as long.
    """
    return [_stretch(table, samples, draws.below(2 * n)) for table, n in zip(_tables(), LENGTHS, strict=True)]


def _stretch(table: torch.Tensor, samples: int, first: int) -> torch.Tensor:
    """Take (S,) from the circle of a table and its negative, from ``first`` on."""
    circle = 2 * len(table) // 3
    if first + samples <= len(table):
        return table[first : first + samples]
    return table[:circle].roll(-first).repeat(-(-samples // circle))[:samples]


@cache
def _tables() -> list[torch.Tensor]:
    """Draw normals of variance 1/2, then append their negatives and the normals again: most stretches are one piece."""
    generator = torch.Generator().manual_seed(_SEED)
    normals = [torch.randn(n, generator=generator) * 0.5**0.5 for n in LENGTHS]
    return [torch.cat((drawn, -drawn, drawn)) for drawn in normals]
