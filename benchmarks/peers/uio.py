"""uio_pipes itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import uio_pipes as uio
from benchmarks.peers import BUDGET, DITHER, EACH, MELS, SHUFFLE, SORT, Batch, Resumable, Work

__all__ = ["batches", "features", "file_batches", "pipeline"]


def pipeline(shards: Any, check: bool = False) -> uio.Pipeline:
    """Return the graph that all benchmarks run; ``shards`` is a list file, or a list of paths."""
    return features(uio.from_shard_list(shards, shuffle=True), check)


def features(source: uio.Pipeline, check: bool = False) -> uio.Pipeline:
    """Return the same graph after any source."""
    source = source.decode_audio()
    if check:
        return batched(source.fbank(num_mel_bins=MELS))
    return batched(source.fbank(num_mel_bins=MELS, dither=DITHER).spec_aug())


def batched(source: uio.Pipeline) -> uio.Pipeline:
    """Shuffle, sort, batch within the budget and pad."""
    return source.shuffle(SHUFFLE).sort(SORT).dynamic_batch(BUDGET).pad()


def batches(work: Work) -> Resumable:
    """Run the loader over shards, as users write it."""
    return _resumable(uio.from_shard_list(work.corpus.list(work.kind), shuffle=True), work)


def file_batches(work: Work) -> Resumable:
    """Run it over a list of files; by two lanes, so that its batches are the same with and without workers."""
    return _resumable(uio.from_raw_list(work.corpus.wavs(), shuffle=True), work, lanes=2)


def _resumable(source: uio.Pipeline, work: Work, lanes: int | None = None) -> Resumable:
    if work.features:
        graph = features(source, work.check)
    else:
        graph = batched(source.decode_audio()) if work.buffers else source.decode_audio().batch(EACH).pad()
    loader = uio.Loader(graph, seed=work.seed, num_workers=work.workers, lanes=lanes)
    if work.state is not None:
        loader.load_state_dict(work.state)
    return Resumable(_batches(loader, work), loader.state_dict)


def _batches(loader: uio.Loader, work: Work) -> Iterator[Batch]:
    name, lengths = ("feats", "feats_lengths") if work.features else ("pcm", "pcm_length")
    for batch in loader:
        yield Batch(batch["keys"], batch[name], batch[lengths])
