"""SPDL: a pipeline over an iterable of lists of files, with its own reader of wav, in threads of one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.peers import Batch, Work

__all__ = ["batches"]


def batches(work: Work) -> Iterator[Batch]:
    """Yield the recorded batches. Its workers are threads; SPDL documents no way to go on in the middle of an epoch."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    folder = work.corpus.wavs().parent / "wav"

    def load(keys: list[str]) -> Batch:
        waves: list[Any] = [np.asarray(spdl.io.load_wav((folder / f"{key}.wav").read_bytes()))[:, 0] for key in keys]
        lengths = np.array([len(wave) for wave in waves], np.int32)
        samples = np.zeros((len(waves), lengths.max()), np.float32)
        for row, wave in zip(samples, waves, strict=True):
            np.multiply(wave, np.float32(1 / 32768), out=row[: len(wave)])
        return Batch(keys, torch.from_numpy(samples), torch.from_numpy(lengths))

    threads = max(1, work.workers)
    builder = PipelineBuilder().add_source(work.order or [])
    builder.pipe(load, concurrency=threads, output_order="input").add_sink(buffer_size=3)
    pipeline = builder.build(num_threads=threads)
    with pipeline.auto_stop():
        yield from pipeline
