"""Grain: a random-access source whose elements are the recorded batches, decoded and padded by ``map``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from benchmarks.peers import Batch, Resumable, Work

__all__ = ["batches"]


class Load:
    """Reads the files of a batch into one array: keys, samples (B, S), lengths (B,)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, keys: list[str]) -> dict[str, Any]:
        waves = [soundfile.read(self.folder / f"{key}.wav", dtype="float32")[0] for key in keys]
        lengths = np.array([len(wave) for wave in waves], np.int32)
        samples = np.zeros((len(waves), lengths.max()), np.float32)
        for row, wave in zip(samples, waves, strict=True):
            row[: len(wave)] = wave
        return {"keys": keys, "samples": samples, "lengths": lengths}


def batches(work: Work) -> Resumable:
    """Run them in this process, or in workers; Grain's iterator has the state."""
    import grain

    load = Load(work.corpus.wavs().parent / "wav")
    dataset = grain.MapDataset.source(work.order or []).map(load)
    one_thread = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # in each process, as everywhere here
    ordered = dataset.to_iter_dataset(one_thread)
    if work.workers:
        ordered = ordered.mp_prefetch(grain.MultiprocessingOptions(num_workers=work.workers))
    iterator = iter(ordered)
    if work.state is not None:
        iterator.set_state(work.state)

    def loaded() -> Iterator[Batch]:
        for batch in iterator:
            yield Batch(list(batch["keys"]), torch.from_numpy(batch["samples"]), torch.from_numpy(batch["lengths"]))

    return Resumable(loaded(), iterator.get_state)
