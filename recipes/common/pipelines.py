"""The recipes' graphs: from a shard list to batches."""

from __future__ import annotations

from pathlib import Path

import uio_pipes as uio


def dictionary(data: Path) -> uio.CharTokenizer:
    """Characters, as ``prepare`` found them."""
    return uio.CharTokenizer(data / "dict" / "lang_char.txt")


def train_pipeline(data: Path, max_frames: int, augment: bool) -> uio.Pipeline:
    """Shuffled and batched by frames; ``augment``: speeds and masks, for real speech."""
    pipeline = uio.from_shard_list(str(data / "train" / "shards.list"), shuffle=True).decode_audio().resample(16_000)
    if augment:
        pipeline = pipeline.speed_perturb([0.9, 1.0, 1.1])
    pipeline = pipeline.tokenize(dictionary(data)).filter(min_frames=10, max_frames=max_frames)
    pipeline = pipeline.fbank(num_mel_bins=80, dither=0.1)
    if augment:
        pipeline = pipeline.spec_aug()
    # buckets, not sort: on so few utterances, batches from short to long would make steps depend on each other
    return pipeline.shuffle(1500).bucket_batch(max_frames=max_frames, num_buckets=4).pad()


def decode_pipeline(data: Path, split: str, max_frames: int) -> uio.Pipeline:
    """Every utterance as it is."""
    return (
        uio.from_shard_list(str(data / split / "shards.list"))
        .decode_audio()
        .resample(16_000)
        .tokenize(dictionary(data))
        .fbank(num_mel_bins=80)
        .sort(500)
        .dynamic_batch(max_frames=max_frames)
        .pad()
    )
