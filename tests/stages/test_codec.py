"""Which codec an utterance gets, and what cannot be encoded."""

from collections import Counter

import torch
from helpers_bad import run

import uio_pipes as uio
from uio_pipes.dsp.effects import transcode


def test_each_codec_is_about_equally_often() -> None:
    """300 draws: chi-squared with 2 degrees of freedom, below its 99.9 % quantile."""
    wav = 0.1 * torch.randn(1, 800, generator=torch.Generator().manual_seed(0))
    wanted = {transcode(wav, 8000, codec, 0.9).numpy().tobytes(): codec for codec in ("mp3", "gsm", "mulaw")}
    rows = [{"key": f"{i}", "wav": wav, "sample_rate": 8000} for i in range(300)]
    graph = uio.from_iterable(rows).codec(["mp3", "gsm", "mulaw"], compression_level=(0.9, 0.9))
    counts = Counter(wanted[b["wav"].numpy().tobytes()] for b in run(graph, failures="raise")[0])
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 13.8
    assert len(counts) == 3


def test_one_codec_may_be_given_by_its_name() -> None:
    graph = uio.from_iterable([]).codec("gsm")
    assert graph.stages[-1] == uio.from_iterable([]).codec(["gsm"]).stages[-1]


def test_what_cannot_be_encoded_is_counted() -> None:
    rows = [{"key": f"{i}", "wav": torch.full((1, 80), v), "sample_rate": 8000} for i, v in enumerate([0.1, torch.nan])]
    batches, loader = run(uio.from_iterable(rows).codec(["mp3"]))
    assert len(batches) == 1
    assert loader.stats().skipped == {"nan_audio": 1}
