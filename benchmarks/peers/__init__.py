"""The loaders that are compared: each module has ``batches(work)``, with the same stages and the same budget of frames.

A batch has ``keys``, ``feats`` (B, T, F) and ``lengths`` (B,), or waveforms (B, S) if no features are wanted. A module
does not import its library at its own import, because the library may not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import NamedTuple

import torch

from benchmarks.common import sized
from benchmarks.corpus import Corpus

__all__ = ["BUDGET", "DITHER", "LIMIT", "MELS", "PEERS", "SHUFFLE", "SORT", "WORKS", "Batch", "Work", "batches_of"]

MELS, DITHER = 80, 0.1
BUDGET, SHUFFLE, SORT = sized((12_000, 1_500, 500), (1_000, 20, 10))
PEERS = {
    "uio_pipes": "uio.batches",
    "WeNet style, torchaudio.load": "wenet.torchaudio_batches",
    "WeNet style, soundfile": "wenet.soundfile_batches",
    "torchdata nodes over tarfile": "nodes.batches",
    "webdataset": "webds.batches",
    "Lhotse Shar": "lhotse_shar.batches",
    "Energon": "energon.batches",
    "LitData": "lit_data.batches",
}
LIMIT = {"bare reads, no order, no checks": "bare.batches"}  # a limit for padded waveforms, not a peer
LIBRARIES = {  # imported before the clock starts, by module of this folder
    "uio": ["uio_pipes.api", "uio_pipes.run.workers"],
    "wenet": ["torch.utils.data.datapipes.iter", "torchaudio"],
    "nodes": ["torchdata.nodes"],
    "webds": ["webdataset"],
    "lhotse_shar": ["lhotse.dataset", "lhotse.shar"],
    "bare": [],
    "energon": ["megatron.energon", "megatron.energon.flavors.webdataset"],
    "lit_data": ["litdata"],
}
WORKS = {  # peers that read only some kinds of shards
    "Lhotse Shar": ("tar", "flac"),
    "Energon": ("tar", "flac"),
    "LitData": ("tar", "flac"),
}


class Work(NamedTuple):
    """The task of a peer: ``kind`` of shards; ``check`` switches dither and masks off, to compare features."""

    corpus: Corpus
    seed: int
    kind: str = "tar"
    check: bool = False
    workers: int = 0
    features: bool = True


class Batch(NamedTuple):
    """The batch that a trainer would get."""

    keys: list[str]
    feats: torch.Tensor
    lengths: torch.Tensor


def batches_of(peer: str) -> Callable[[Work], Iterator[Batch]]:
    """Return the function of a peer, which builds its graph; iterating runs it. Its library is imported now."""
    module, _, name = peer.partition(".")
    for library in LIBRARIES[module]:
        import_module(library)
    function: Callable[[Work], Iterator[Batch]] = getattr(import_module(f"benchmarks.peers.{module}"), name)
    return function
