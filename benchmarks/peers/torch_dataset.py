"""PyTorch alone: a map-style Dataset over files, and a DataLoader whose batches are given by ``batch_sampler``."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers import Batch, Work
from benchmarks.peers.stages import Utterance, by_soundfile, padded

__all__ = ["batches"]


class Utterances(Dataset[Utterance]):
    """Reads and decodes an utterance when it is asked for it by its key."""

    def __init__(self, work: Work) -> None:
        self.folder = work.corpus.wavs().parent / "wav"

    def __getitem__(self, key: str) -> Utterance:
        return by_soundfile({"key": key, "wav": (self.folder / f"{key}.wav").read_bytes()})


def batches(work: Work) -> Iterator[Batch]:
    """Yield the recorded batches. PyTorch documents no way to go on in the middle of an epoch."""
    torch.manual_seed(work.seed)
    yield from DataLoader(Utterances(work), batch_sampler=work.order, num_workers=work.workers, collate_fn=padded)
