"""The graphs of the recipes: from a list to batches."""

from __future__ import annotations

from collections.abc import Callable

import uio_pipes as uio

from .config import BatchConfig, Config
from .data_types import DATA_TYPES
from .strict import check

__all__ = ["source", "train_pipeline", "valid_pipeline"]

_SOURCES: dict[str, Callable[..., uio.Pipeline]] = {
    "raw": uio.from_raw_list,
    "shard": uio.from_shard_list,
    "indexed": uio.from_indexed,
}


def source(lists: str, data_type: str, shuffle: bool) -> uio.Pipeline:
    """Utterances from list files, globs or URLs (``uio.list_files``)."""
    check(data_type in DATA_TYPES, "--data-type", f"one of {', '.join(DATA_TYPES)}", data_type)
    return _SOURCES[data_type](lists, shuffle=shuffle)


def train_pipeline(config: Config, tokenizer: uio.Tokenizer, lists: str, data_type: str) -> uio.Pipeline:
    """Shuffled, augmented batches for training."""
    data = config.data
    pipeline = source(lists, data_type, shuffle=True).decode_audio().resample(data.sample_rate)
    if data.speeds:
        pipeline = pipeline.speed_perturb(list(data.speeds))
    pipeline = _filtered(pipeline.tokenize(tokenizer), config)
    pipeline = pipeline.fbank(num_mel_bins=config.model.num_mel_bins, dither=data.dither)
    if data.spec_aug is not None:
        pipeline = pipeline.spec_aug(**vars(data.spec_aug))
    if data.shuffle:
        pipeline = pipeline.shuffle(data.shuffle)
    if data.sort:
        pipeline = pipeline.sort(data.sort)
    if data.batch.type == "bucket":
        return pipeline.bucket_batch(max_frames=data.batch.max_frames, window=data.batch.window).pad()
    return _in_order(pipeline, data.batch).pad()


def valid_pipeline(config: Config, tokenizer: uio.Tokenizer, lists: str, data_type: str) -> uio.Pipeline:
    """Batches of all utterances, unchanged: no augmentation, no dither, no shuffle."""
    data = config.data
    pipeline = source(lists, data_type, shuffle=False).decode_audio().resample(data.sample_rate)
    pipeline = _filtered(pipeline.tokenize(tokenizer), config).fbank(num_mel_bins=config.model.num_mel_bins)
    return _in_order(pipeline.sort(500), data.batch).pad()


def _filtered(pipeline: uio.Pipeline, config: Config) -> uio.Pipeline:
    data = config.data
    return pipeline.filter(
        min_frames=data.min_frames,
        max_frames=data.max_frames,
        token_min_length=data.token_min_length,
        token_max_length=data.token_max_length,
    )


def _in_order(pipeline: uio.Pipeline, batch: BatchConfig) -> uio.Pipeline:
    if batch.type == "static":
        return pipeline.batch(batch.size)
    return pipeline.dynamic_batch(max_frames=batch.max_frames)
