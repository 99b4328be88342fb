"""uio_pipes itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import uio_pipes as uio
from benchmarks.corpus import Corpus
from benchmarks.peers import BUDGET, DITHER, MELS, SHUFFLE, SORT, Batch

__all__ = ["batches", "features", "pipeline"]


def pipeline(shards: Any, check: bool = False) -> uio.Pipeline:
    """The graph that all benchmarks run; ``shards`` is a list file, or a list of paths."""
    return features(uio.from_shard_list(shards, shuffle=True), check)


def features(source: uio.Pipeline, check: bool = False) -> uio.Pipeline:
    """The same, behind any source."""
    source = source.decode_audio()
    made = source.fbank(num_mel_bins=MELS) if check else source.fbank(num_mel_bins=MELS, dither=DITHER).spec_aug()
    return made.shuffle(SHUFFLE).sort(SORT).dynamic_batch(BUDGET).pad()


def batches(corpus: Corpus, seed: int, check: bool) -> Iterator[Batch]:
    """The loader as users write it."""
    loader = uio.Loader(pipeline(corpus.list("tar"), check), seed=seed)
    for batch in loader:
        yield Batch(batch["keys"], batch["feats"], batch["feats_lengths"])
