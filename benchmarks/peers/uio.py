"""uio_pipes itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import uio_pipes as uio
from benchmarks.peers import BUDGET, DITHER, MELS, SHUFFLE, SORT, Batch, Work

__all__ = ["batches", "features", "pipeline"]


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


def batches(work: Work) -> Iterator[Batch]:
    """Run the loader as users write it."""
    source = uio.from_shard_list(work.corpus.list(work.kind), shuffle=True)
    graph = features(source, work.check) if work.features else batched(source.decode_audio())
    loader = uio.Loader(graph, seed=work.seed, num_workers=work.workers)
    name, lengths = ("feats", "feats_lengths") if work.features else ("pcm", "pcm_length")
    for batch in loader:
        yield Batch(batch["keys"], batch[name], batch[lengths])
