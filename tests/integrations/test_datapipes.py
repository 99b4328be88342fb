"""torch's own ``IterDataPipe`` graphs, before a pipeline and behind one."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from contract import Case, check_cuts, digest, keys_of, record
from corpus import Corpus
from torch.utils.data import DataLoader
from torch.utils.data.datapipes.iter import IterableWrapper

import uio_pipes as uio

pytestmark = pytest.mark.filterwarnings("ignore:.*datapipe.*")


def utterance(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    wav = rng.standard_normal((1, 1600 + 160 * number)).astype(np.float32)
    return {"key": f"D{number:03d}", "wav": wav, "sample_rate": 16_000, "txt": f"{number}"}


def is_wanted(number: int) -> bool:
    return number % 3 != 0


def count_frames(batch: dict[str, Any]) -> list[Any]:
    return [batch["keys"], int(batch["feats_lengths"].sum())]


def is_long(counted: list[Any]) -> bool:
    return bool(counted[1] > 60)


WANTED = [f"D{n:03d}" for n in range(40) if n % 3]


def graph_in() -> uio.Pipeline:
    pipe = IterableWrapper(range(40)).filter(is_wanted).map(utterance).batch(4).unbatch()
    return (
        uio.from_iterable(pipe)
        .sharding_filter()
        .decode_audio()
        .fbank(num_mel_bins=8, dither=0.1)
        .shuffle(5)
        .batch(3)
        .pad()
    )


@pytest.mark.parametrize("options", [{}, {"lanes": 3}, {"lanes": 4, "num_workers": 2}], ids=str)
def test_a_graph_of_torchs_feeds_a_pipeline(options: dict[str, Any]) -> None:
    recorded = record(Case(graph_in(), options))
    assert sorted(recorded.keys) == WANTED
    check_cuts(recorded, [0, 3, len(recorded.digests)])


def training(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=8).shuffle(5).batch(3).pad()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pipeline_feeds_a_graph_of_torchs(many_shards: Corpus, workers: int) -> None:
    """In torch's DataLoader too, which deals a graph to its workers by torch's rules where it is told to."""
    pipe = training(many_shards).as_datapipe(seed=3, lanes=4)
    counted = list(DataLoader(pipe.map(count_frames), batch_size=None, num_workers=workers))
    assert Counter(k for keys, _ in counted for k in keys) == Counter(many_shards.keys)
    ours = [count_frames(b) for b in uio.Loader(training(many_shards), seed=3, lanes=4)]
    assert sorted(map(repr, counted)) == sorted(map(repr, ours))
    pipe.set_epoch(0)
    long = DataLoader(pipe.map(count_frames).filter(is_long).batch(2), batch_size=None, num_workers=workers)
    assert sorted(repr(c) for two in long for c in two) == sorted(repr(c) for c in ours if is_long(c))


def test_from_a_graph_through_a_pipeline_into_a_graph() -> None:
    batches = list(graph_in().as_datapipe(seed=3).map(dict))
    assert sorted(k for b in batches for k in keys_of(b)) == WANTED
    assert [digest(b) for b in batches] == [digest(b) for b in uio.Loader(graph_in(), seed=3)]
    assert all(b["feats"].dtype is torch.float32 for b in batches)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_epochs_of_a_datapipe(many_shards: Corpus, options: dict[str, Any]) -> None:
    pipe = training(many_shards).as_datapipe(seed=3, lanes=4)
    ours = uio.Loader(training(many_shards), seed=3, lanes=4)
    expected = [sorted(str(count_frames(b)) for b in ours) for _ in range(2)]
    loader = DataLoader(pipe.map(count_frames), batch_size=None, **options)
    epochs = [sorted(map(str, loader)) for _ in range(2)]
    pipe.set_epoch(0)
    epochs += [sorted(map(str, loader)) for _ in range(2)]
    assert epochs == expected * 2
    assert expected[0] != expected[1]
