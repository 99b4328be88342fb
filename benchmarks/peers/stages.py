"""Stages that the peers without their own share: torchaudio's fbank, SpecAugment, sort, dynamic batch, pad."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torchaudio.compliance import kaldi

from benchmarks.peers import BUDGET, DITHER, MELS, SORT, Batch

__all__ = ["add_fbank", "by_budget", "mask", "padded", "sorted_blocks"]

Utterance = dict[str, Any]


def add_fbank(utterance: Utterance, dither: float = DITHER) -> Utterance:
    """``feat`` of ``waveform`` (1, S)."""
    utterance["feat"] = kaldi.fbank(
        utterance["waveform"] * (1 << 15),
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


def sorted_blocks(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Blocks of 500, each in the order of length."""
    block: list[Utterance] = []
    for utterance in utterances:
        block.append(utterance)
        if len(block) == SORT:
            yield from sorted(block, key=_frames)
            block = []
    yield from sorted(block, key=_frames)


def by_budget(utterances: Iterable[Utterance]) -> Iterator[list[Utterance]]:
    """As many as stay within the budget of padded frames."""
    batch: list[Utterance] = []
    longest = 0
    for utterance in utterances:
        longest = max(longest, _frames(utterance))
        if batch and longest * (len(batch) + 1) > BUDGET:
            yield batch
            batch, longest = [], _frames(utterance)
        batch.append(utterance)
    if batch:
        yield batch


def padded(batch: list[Utterance]) -> Batch:
    """One tensor, longest first."""
    batch = sorted(batch, key=_frames, reverse=True)
    lengths = torch.tensor([_frames(utterance) for utterance in batch], dtype=torch.int32)
    feats = pad_sequence([utterance["feat"] for utterance in batch], batch_first=True, padding_value=0.0)
    return Batch([utterance["key"] for utterance in batch], feats, lengths)


def _frames(utterance: Utterance) -> int:
    return int(utterance["feat"].size(0))
