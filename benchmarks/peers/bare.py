"""The least work that padded waveforms need, as a limit: read sizes from tar headers, read, convert and pad payloads.

No shuffle, no checks, no text, no state; batches have utterances of similar length, as after sorting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.peers import BUDGET, Batch, Work
from benchmarks.peers.stages import SHIFT

__all__ = ["batches"]

BLOCK, RIFF = 512, 44  # bytes of a tar header, and of a wav header
SIZE = slice(124, 135)
Place = tuple[int, str, int, int]  # bytes of samples, key, descriptor, offset


def batches(work: Work) -> Iterator[Batch]:
    """Yield batches within the budget."""
    batch: list[Place] = []
    for place in sorted(place for path in work.corpus.shards(work.kind) for place in _places(path)):
        if batch and place[0] // 2 // SHIFT * (len(batch) + 1) > BUDGET:
            yield _padded(batch)
            batch = []
        batch.append(place)
    yield _padded(batch)


def _places(path: str) -> Iterator[Place]:
    file, at = os.open(path, os.O_RDONLY), 0
    while (header := os.pread(file, BLOCK, at)) and header[0]:
        size = int(header[SIZE], 8)
        name = header[: header.index(0)].decode()
        if name.endswith(".wav"):
            yield size - RIFF, name.removesuffix(".wav"), file, at + BLOCK + RIFF
        at += BLOCK + -(-size // BLOCK) * BLOCK


def _padded(places: list[Place]) -> Batch:
    rows = np.empty((len(places), places[-1][0] // 2), np.float32)
    for row, (size, _, file, offset) in zip(rows, places, strict=True):
        samples = np.frombuffer(os.pread(file, size, offset), np.int16)
        count = len(samples)
        floats = samples.astype(np.float32)
        floats *= np.float32(1 / 32768)
        row[:count], row[count:] = floats, 0
    lengths = torch.tensor([size // 2 for size, *_ in places], dtype=torch.int32)
    return Batch([key for _, key, *_ in places], torch.from_numpy(rows), lengths)
