"""The loaders that are compared: each module has ``batches(work)``, with the same stages and the same budget of frames.

A batch has ``keys``, ``feats`` (B, T, F) and ``lengths`` (B,), or waveforms (B, S) if no features are wanted. Where a
loader's documentation describes how to go on in the middle of an epoch, ``batches`` returns ``Resumable``, and goes on
from ``work.state``. A module does not import its library at its own import, because the library may not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch

from benchmarks.common import sized
from benchmarks.corpus import Corpus

__all__ = [
    "BUDGET",
    "DITHER",
    "EACH",
    "LIMIT",
    "MELS",
    "ORDERED",
    "PEERS",
    "SHUFFLE",
    "SORT",
    "WORKS",
    "Batch",
    "Resumable",
    "Work",
    "batches_of",
]

MELS, DITHER = 80, 0.1
BUDGET, SHUFFLE, SORT = sized((12_000, 1_500, 500), (1_000, 20, 10))
EACH = sized(16, 4)  # utterances of a batch where there is no budget
PEERS = {
    "uio_pipes": "uio.batches",
    "WeNet style, torchaudio.load": "wenet.torchaudio_batches",
    "WeNet style, soundfile": "wenet.soundfile_batches",
    "torchdata nodes over tarfile": "nodes.batches",
    "webdataset": "webds.batches",
    "Lhotse Shar": "lhotse_shar.batches",
    "Energon": "energon.batches",
    "LitData": "lit_data.batches",
    "Mosaic streaming": "mosaic.batches",
}
ORDERED = {  # these read files; the first chooses batches, which the others replay (``work.order``)
    "uio_pipes, files": "uio.file_batches",
    "torch Dataset": "torch_dataset.batches",
    "Lhotse cuts": "lhotse_cuts.batches",
    "Grain": "grain_files.batches",
    "SPDL": "spdl_files.batches",
}
LIMIT = {"bare reads, no order, no checks": "bare.batches"}  # a limit for padded waveforms, not a peer
LIBRARIES = {  # imported before the clock starts, by module of this folder
    "uio": ["uio_pipes.api", "uio_pipes.run.workers"],
    "wenet": ["torch.utils.data.datapipes.iter", "torchaudio"],
    "nodes": ["torchdata.nodes", "torchdata.stateful_dataloader"],
    "webds": ["webdataset"],
    "lhotse_shar": ["lhotse.dataset", "lhotse.shar"],
    "lhotse_cuts": ["lhotse.dataset"],
    "bare": [],
    "energon": ["megatron.energon", "megatron.energon.flavors.webdataset"],
    "lit_data": ["litdata"],
    "mosaic": ["streaming"],
    "torch_dataset": ["torch.utils.data"],
    "grain_files": ["grain"],
    "spdl_files": ["spdl.io", "spdl.pipeline"],
}
WORKS = {  # peers that read only some kinds of shards
    "Lhotse Shar": ("tar", "flac"),
    "Energon": ("tar", "flac"),
    "LitData": ("tar", "flac"),
    "Mosaic streaming": ("tar", "flac"),
}


class Work(NamedTuple):
    """The task of a peer.

    kind: of shards.
    check: switches dither and masks off, to compare features.
    buffers: shuffle, sort and fill the budget; otherwise batches are of ``EACH`` utterances, in shuffled shards.
    order: the keys of each batch, for those that replay them.
    state: what ``Resumable.state()`` returned in the run that is to be gone on with; None at a start.
    endless: the next epoch may follow by itself, for a loader that its authors resume only so.
    """

    corpus: Corpus
    seed: int
    kind: str = "tar"
    check: bool = False
    workers: int = 0
    features: bool = True
    buffers: bool = True
    order: list[list[str]] | None = None
    state: Any = None
    endless: bool = False


class Batch(NamedTuple):
    """The batch that a trainer would get."""

    keys: list[str]
    feats: torch.Tensor
    lengths: torch.Tensor


@dataclass
class Resumable:
    """The batches of a loader, and what it has to keep in a checkpoint after the last of them that was taken.

    endless: its buffers reach across the edge of an epoch, so that it has to give what it gives when it is not killed,
    and not each utterance once.
    """

    batches: Iterable[Batch]
    state: Callable[[], Any]
    endless: bool = False

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


def batches_of(peer: str) -> Callable[[Work], Iterable[Batch]]:
    """Return the function of a peer, which builds its graph; iterating runs it. Its library is imported now."""
    module, _, name = peer.partition(".")
    for library in LIBRARIES[module]:
        import_module(library)
    function: Callable[[Work], Iterable[Batch]] = getattr(import_module(f"benchmarks.peers.{module}"), name)
    return function
