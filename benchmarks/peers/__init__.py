"""The loaders that are compared: each module has ``batches(corpus, seed, check)``; same stages, same budget of frames.

``check`` switches dither and masks off, so that features can be compared. A batch has ``keys``, ``feats`` (B, T, F) and
``lengths`` (B,); the modules import their library when they are called, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from benchmarks.corpus import Corpus

__all__ = ["BUDGET", "DITHER", "MELS", "PEERS", "SHUFFLE", "SORT", "Batch", "batches_of"]

MELS, DITHER, BUDGET, SHUFFLE, SORT = 80, 0.1, 12_000, 1_500, 500
PEERS = {
    "uio_pipes": "uio",
    "WeNet style, torchaudio.load": "wenet_torchaudio",
    "WeNet style, soundfile": "wenet_soundfile",
    "webdataset": "webds",
    "Lhotse Shar": "lhotse_shar",
}


class Batch(NamedTuple):
    """What a trainer would get."""

    keys: list[str]
    feats: torch.Tensor
    lengths: torch.Tensor


def batches_of(peer: str) -> Callable[[Corpus, int, bool], Iterator[Batch]]:
    """The function of a peer, which builds its graph; iterating runs it."""
    if peer == "uio":
        from benchmarks.peers.uio import batches
    elif peer == "webds":
        from benchmarks.peers.webds import batches
    elif peer == "lhotse_shar":
        from benchmarks.peers.lhotse_shar import batches
    else:
        from benchmarks.peers.wenet import soundfile_batches, torchaudio_batches

        return torchaudio_batches if peer == "wenet_torchaudio" else soundfile_batches
    return batches
