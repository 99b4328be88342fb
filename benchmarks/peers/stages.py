"""Stages that the peers without their own share: torchaudio's fbank, SpecAugment, sort, dynamic batch, pad."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import soundfile
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchaudio.compliance import kaldi

from benchmarks.peers import BUDGET, DITHER, MELS, SORT, Batch, Work

__all__ = ["Divided", "Utterance", "by_budget", "by_soundfile", "frames", "in_workers", "padded", "prepared", "sort"]

Utterance = dict[str, Any]
SHIFT = 160  # samples in a frame, where there are no features to count


def by_soundfile(utterance: Utterance) -> Utterance:
    """``waveform`` (1, S) of the bytes in ``wav``."""
    samples, utterance["sample_rate"] = soundfile.read(io.BytesIO(utterance.pop("wav")), dtype="float32")
    utterance["waveform"] = torch.from_numpy(samples).unsqueeze(0)
    return utterance


def prepared(utterance: Utterance, work: Work) -> Utterance:
    """With features, if they are asked for, and masked."""
    if not work.features:
        return utterance
    utterance = add_fbank(utterance, 0.0 if work.check else DITHER)
    return utterance if work.check else mask(utterance)


def add_fbank(utterance: Utterance, dither: float) -> Utterance:
    """``feat`` of ``waveform`` (1, S)."""
    utterance["feat"] = kaldi.fbank(
        utterance.pop("waveform") * (1 << 15),
        num_mel_bins=MELS,
        dither=dither,
        energy_floor=0.0,
        sample_frequency=utterance["sample_rate"],
    )
    return utterance


def mask(utterance: Utterance) -> Utterance:
    """Two spans of up to 50 frames and two of up to 10 bins set to 0."""
    feat = utterance["feat"].clone()
    for axis, longest in ((0, 50), (0, 50), (1, 10), (1, 10)):
        start = random.randrange(feat.size(axis))
        feat.narrow(axis, start, min(random.randint(1, longest), feat.size(axis) - start)).zero_()
    utterance["feat"] = feat
    return utterance


def sort(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Blocks of 500, each in the order of length."""
    block: list[Utterance] = []
    for utterance in utterances:
        block.append(utterance)
        if len(block) == SORT:
            yield from sorted(block, key=frames)
            block = []
    yield from sorted(block, key=frames)


def by_budget(utterances: Iterable[Utterance]) -> Iterator[list[Utterance]]:
    """As many as stay within the budget of padded frames."""
    batch: list[Utterance] = []
    longest = 0
    for utterance in utterances:
        longest = max(longest, frames(utterance))
        if batch and longest * (len(batch) + 1) > BUDGET:
            yield batch
            batch, longest = [], frames(utterance)
        batch.append(utterance)
    if batch:
        yield batch


def padded(batch: list[Utterance]) -> Batch:
    """One tensor, longest first."""
    batch = sorted(batch, key=frames, reverse=True)
    rows = [utterance["feat"] if "feat" in utterance else utterance["waveform"][0] for utterance in batch]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    return Batch([utterance["key"] for utterance in batch], pad_sequence(rows, batch_first=True), lengths)


def frames(utterance: Utterance) -> int:
    """The length that sorting and the budget go by."""
    return int(utterance["feat"].size(0) if "feat" in utterance else utterance["waveform"].size(1) // SHIFT)


class Divided(IterableDataset[Batch]):
    """What ``graph`` makes of this worker's share of the shards, as WeNet deals them."""

    def __init__(self, paths: list[str], graph: Callable[[list[str]], Iterable[Batch]]) -> None:
        self.paths, self.graph = paths, graph

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        mine = self.paths if worker is None else self.paths[worker.id :: worker.num_workers]
        return iter(self.graph(mine))


def in_workers(dataset: Any, workers: int, **options: Any) -> Iterable[Batch]:
    """torch's DataLoader around what batches by itself."""
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options) if workers else dataset
