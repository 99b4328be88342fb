"""webdataset, with the same stages as WeNet's graph; decoding by soundfile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers import SHUFFLE, Batch, Work
from benchmarks.peers.stages import Utterance, batched, by_soundfile, padded, prepared

__all__ = ["batches"]


def _decoded(sample: dict[str, Any]) -> Utterance:
    audio = sample["flac"] if "flac" in sample else sample["wav"]
    return by_soundfile({"key": sample["__key__"], "txt": sample["txt"].decode(), "wav": audio})


def batches(work: Work) -> Iterator[Batch]:
    """Yield batches. ``initial``: the shuffle fills its buffer first, as that of every other peer does. webdataset
    documents no way to go on in the middle of an epoch."""
    import webdataset

    paths = Path(work.corpus.list(work.kind)).read_text().split()
    dataset = webdataset.WebDataset(paths, shardshuffle=len(paths), seed=work.seed).map(_decoded)
    dataset = dataset.map(partial(prepared, work=work))
    if work.buffers:
        dataset = dataset.shuffle(SHUFFLE, initial=SHUFFLE, seed=work.seed)
    dataset = dataset.compose(partial(batched, work=work)).map(padded)
    yield from webdataset.WebLoader(dataset, batch_size=None, num_workers=work.workers) if work.workers else dataset
