"""webdataset, with the same stages as WeNet's graph; decoding by soundfile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import soundfile
import torch

from benchmarks.corpus import Corpus
from benchmarks.peers import SHUFFLE, Batch
from benchmarks.peers.stages import Utterance, add_fbank, by_budget, mask, padded, sorted_blocks

__all__ = ["batches"]


def _decoded(sample: dict[str, Any]) -> Utterance:
    samples, rate = soundfile.read(io.BytesIO(sample["wav"]), dtype="float32")
    waveform = torch.from_numpy(samples).unsqueeze(0)
    return {"key": sample["__key__"], "txt": sample["txt"].decode(), "waveform": waveform, "sample_rate": rate}


def batches(corpus: Corpus, seed: int, check: bool) -> Iterator[Batch]:
    """``initial``: the shuffle fills its buffer first, as everyone else's does."""
    import webdataset

    paths = Path(corpus.list("tar")).read_text().split()
    dataset = webdataset.WebDataset(paths, shardshuffle=len(paths), seed=seed).map(_decoded)
    dataset = dataset.map(partial(add_fbank, dither=0.0)) if check else dataset.map(add_fbank).map(mask)
    dataset = dataset.shuffle(SHUFFLE, initial=SHUFFLE, seed=seed)
    yield from dataset.compose(sorted_blocks).compose(by_budget).map(padded)
