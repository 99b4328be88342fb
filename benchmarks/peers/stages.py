"""Stages for the peers that have none of their own: torchaudio's fbank, SpecAugment, sort, dynamic batch, pad."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import soundfile
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchaudio.compliance import kaldi

from benchmarks.peers import BUDGET, DITHER, EACH, MELS, SORT, Batch, Work

__all__ = [
    "Divided",
    "Utterance",
    "batched",
    "by_budget",
    "by_soundfile",
    "frames",
    "in_workers",
    "padded",
    "prepared",
    "sort",
]

Utterance = dict[str, Any]
SHIFT = 160  # samples in a frame, where there are no features to count


def by_soundfile(utterance: Utterance) -> Utterance:
    """Decode the bytes in ``wav`` to ``waveform`` (1, S)."""
    samples, utterance["sample_rate"] = soundfile.read(io.BytesIO(utterance.pop("wav")), dtype="float32")
    utterance["waveform"] = torch.from_numpy(samples).unsqueeze(0)
    return utterance


def prepared(utterance: Utterance, work: Work) -> Utterance:
    """Add masked features, if they are wanted."""
    if not work.features:
        return utterance
    utterance = add_fbank(utterance, 0.0 if work.check else DITHER)
    return utterance if work.check else mask(utterance)


def add_fbank(utterance: Utterance, dither: float) -> Utterance:
    """Make ``feat`` of ``waveform`` (1, S)."""
    utterance["feat"] = kaldi.fbank(
        utterance.pop("waveform") * (1 << 15),
        num_mel_bins=MELS,
        dither=dither,
        energy_floor=0.0,
        sample_frequency=utterance["sample_rate"],
    )
    return utterance


def mask(utterance: Utterance) -> Utterance:
    """Set two spans of up to 50 frames and two of up to 10 bins to 0."""
    feat = utterance["feat"].clone()
    for axis, longest in ((0, 50), (0, 50), (1, 10), (1, 10)):
        start = random.randrange(feat.size(axis))
        feat.narrow(axis, start, min(random.randint(1, longest), feat.size(axis) - start)).zero_()
    utterance["feat"] = feat
    return utterance


def batched(utterances: Iterable[Utterance], work: Work) -> Iterator[list[Utterance]]:
    """Yield lists of utterances: sorted ones within the budget, or ``EACH`` as they come where no buffer is wanted."""
    if work.buffers:
        yield from by_budget(sort(utterances))
        return
    rest = iter(utterances)
    while batch := list(islice(rest, EACH)):
        yield batch


def sort(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield blocks of 500, each sorted by length."""
    block: list[Utterance] = []
    for utterance in utterances:
        block.append(utterance)
        if len(block) == SORT:
            yield from sorted(block, key=frames)
            block = []
    yield from sorted(block, key=frames)


def by_budget(utterances: Iterable[Utterance]) -> Iterator[list[Utterance]]:
    """Yield lists of as many utterances as fit into the budget of padded frames."""
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
    """Return one tensor, longest first."""
    batch = sorted(batch, key=frames, reverse=True)
    rows = [utterance["feat"] if "feat" in utterance else utterance["waveform"][0] for utterance in batch]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    return Batch([utterance["key"] for utterance in batch], pad_sequence(rows, batch_first=True), lengths)


def frames(utterance: Utterance) -> int:
    """Return the length that sorting and the budget use."""
    return int(utterance["feat"].size(0) if "feat" in utterance else utterance["waveform"].size(1) // SHIFT)


class Divided(IterableDataset[Batch]):
    """The result of ``graph`` for this worker's share of the shards, dealt as WeNet deals them."""

    def __init__(self, paths: list[str], graph: Callable[[list[str]], Iterable[Batch]]) -> None:
        self.paths, self.graph = paths, graph

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        mine = self.paths if worker is None else self.paths[worker.id :: worker.num_workers]
        return iter(self.graph(mine))


def in_workers(dataset: Any, workers: int, **options: Any) -> Iterable[Batch]:
    """Put torch's DataLoader around a dataset that makes batches itself."""
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options) if workers else dataset
