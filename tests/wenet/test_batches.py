"""The batches that ``wenet_dataset`` gives, against a slow account of what WeNet does with lengths known beforehand."""

import copy
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import contract
import corpus
import pytest
import torch
from corpus import Corpus
from helpers_bad import audio, raw_list
from torch.utils.data import DataLoader
from yamls import YAMLS, dataset_conf

import uio_pipes as uio

TOKENIZER = uio.CharTokenizer({"<blank>": 0, "<unk>": 1, "文": 2, **{str(i): 3 + i for i in range(10)}})
QUIET = {"list_shuffle": False, "shuffle": False, "spec_aug": False}
SHAPES = {
    "feats": torch.float32, "feats_lengths": torch.int32, "pcm": torch.float32, "pcm_length": torch.int32,
    "target": torch.int64, "target_lengths": torch.int32,
}  # fmt: skip


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Sixty-six short utterances of 16 kHz."""
    return corpus.shards(tmp_path_factory.mktemp("wenet"), [5, 6, 4, 7] * 3, rate=16_000, seconds=(0.2, 0.6))


def batches(dataset: uio.PipelineDataset) -> list[dict[str, Any]]:
    """As WeNet's trainer gets them."""
    return list(DataLoader(dataset, batch_size=None))


def check(batch: dict[str, Any], bins: int = 80) -> None:
    """WeNet's keys, kinds and padding, longest first."""
    assert set(batch) == {"keys", "langs", "tasks", *SHAPES}
    assert {name: batch[name].dtype for name in SHAPES} == SHAPES
    size = len(batch["keys"])
    assert batch["feats"].shape == (size, batch["feats_lengths"].max(), bins)
    assert batch["pcm"].shape == (size, batch["pcm_length"].max())
    assert batch["target"].shape == (size, batch["target_lengths"].max())
    assert batch["feats_lengths"].tolist() == sorted(batch["feats_lengths"].tolist(), reverse=True)
    for i, key in enumerate(batch["keys"]):
        frames, labels = batch["feats_lengths"][i], batch["target_lengths"][i]
        assert (batch["feats"][i, frames:] == 0).all()
        assert (batch["target"][i, labels:] == -1).all()
        expected = TOKENIZER.tokenize(f"文{int(key[1:])}")[1]
        assert batch["target"][i, :labels].tolist() == expected
        assert frames == (batch["pcm_length"][i] - 400) // 160 + 1
    assert batch["langs"] == ["zh"] * size
    assert batch["tasks"] == ["transcribe"] * size


# The published configurations


@pytest.mark.parametrize("name", YAMLS)
def test_published_yaml_runs_in_workers_that_persist_over_epochs(name: str, shards: Corpus) -> None:
    conf = dataset_conf(name)
    dataset = uio.wenet_dataset("shard", str(shards.list), TOKENIZER, conf)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=3)
    epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        made = list(loader)
        for batch in made:
            check(batch)
            budget(batch, conf["batch_conf"])
        assert sorted(contract_keys(made)) == sorted(shards.keys)
        epochs.append([contract.digest(batch) for batch in made])
    assert epochs[0] != epochs[1]
    dataset.set_epoch(0)
    assert [contract.digest(batch) for batch in loader] == epochs[0]


def budget(batch: dict[str, Any], conf: dict[str, Any]) -> None:
    if conf["batch_type"] == "static":
        assert len(batch["keys"]) <= conf["batch_size"]
    else:
        assert batch["feats"].shape[0] * batch["feats"].shape[1] <= conf["max_frames_in_batch"]


def contract_keys(made: list[dict[str, Any]]) -> Iterator[str]:
    for batch in made:
        yield from batch["keys"]


def test_validation_set_comes_in_the_lists_order_and_as_it_is(shards: Corpus) -> None:
    conf = copy.deepcopy(dataset_conf("aishell"))
    conf.update(cycle=1, speed_perturb=False, spec_aug=False, shuffle=False, list_shuffle=False, sort=False)
    conf["fbank_conf"]["dither"] = 0.0
    dataset = uio.wenet_dataset("shard", str(shards.list), TOKENIZER, conf, partition=False)
    made = batches(dataset)
    lengths = {key: frames for b in made for key, frames in zip(b["keys"], b["feats_lengths"].tolist(), strict=True)}
    groups = [list(shards.keys[i : i + 16]) for i in range(0, len(shards.keys), 16)]
    assert [b["keys"] for b in made] == [sorted(g, key=lambda k: -lengths[k]) for g in groups]
    dataset.set_epoch(1)
    assert [contract.digest(b) for b in batches(dataset)] == [contract.digest(b) for b in made]


# Order, filters and batches


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, int]]:
    """A list of recordings at 8 kHz in no order of length, and the samples of each."""
    root = tmp_path_factory.mktemp("raw")
    samples = {f"U{i:02d}": 1600 + 80 * ((i * 37) % 41) for i in range(41)}
    lines = []
    for i, (key, count) in enumerate(samples.items()):
        (root / f"{key}.wav").write_bytes(audio(count, i))
        lines.append({"key": key, "wav": str(root / f"{key}.wav"), "txt": "文" * (1 + i % 5)})
    return raw_list(root / "data.list", lines), samples


def frames(samples: int) -> int:
    """Of 25 ms every 10 ms, after resampling 8 kHz to 16 kHz."""
    return (2 * samples - 400) // 160 + 1


def keys(listed: str, conf: dict[str, Any]) -> list[list[str]]:
    return [b["keys"] for b in batches(uio.wenet_dataset("raw", listed, TOKENIZER, {**QUIET, **conf}))]


def longest_first(group: list[str], samples: dict[str, int]) -> list[str]:
    return sorted(group, key=lambda key: -frames(samples[key]))


def test_sorted_by_buffers_shortest_first_and_batched_longest_first(raw: tuple[str, dict[str, int]]) -> None:
    listed, samples = raw
    order: list[str] = []
    for i in range(0, len(samples), 10):
        order += sorted(list(samples)[i : i + 10], key=lambda key: frames(samples[key]))
    expected = [longest_first(order[i : i + 4], samples) for i in range(0, len(order), 4)]
    assert keys(listed, {"sort_conf": {"sort_size": 10}, "batch_conf": {"batch_size": 4}}) == expected


def test_length_filter_counts_seconds_before_resampling_and_keeps_its_bounds(raw: tuple[str, dict[str, int]]) -> None:
    listed, samples = raw
    low, high = 1600 + 80 * 10, 1600 + 80 * 30  # at 8 kHz: 30 and 50 frames of 10 ms
    made = keys(listed, {"sort": False, "filter_conf": {"min_length": 30, "max_length": 50}})
    assert sorted(k for group in made for k in group) == [k for k, n in samples.items() if low <= n <= high]


def test_list_goes_round_as_often_as_cycle_says(raw: tuple[str, dict[str, int]]) -> None:
    listed, samples = raw
    for conf in ({}, {"list_shuffle": True}, {"list_shuffle": True, "list_shuffle_conf": {"shuffle_size": 9}}):
        made = [k for group in keys(listed, {"sort": False, "cycle": 3, **conf}) for k in group]
        assert sorted(made) == sorted(list(samples) * 3)
        assert (made[:16] == longest_first(list(samples)[:16], samples)) == (conf == {})


def test_an_endless_cycle_goes_on(raw: tuple[str, dict[str, int]]) -> None:
    listed, samples = raw
    endless = uio.wenet_dataset("raw", listed, None, {**QUIET, "sort": False, "cycle": -1})
    made = islice(DataLoader(endless, batch_size=None), 9)
    assert sum(len(batch["keys"]) for batch in made) == 9 * 16 > 3 * len(samples)


def test_a_tokenizer_of_wenets_or_none(raw: tuple[str, dict[str, int]]) -> None:
    class Wenets:
        def tokenize(self, line: str) -> tuple[list[str], list[int]]:
            return list(line), [7] * len(line)

    listed, _ = raw
    (first, *_) = batches(uio.wenet_dataset("raw", listed, Wenets(), QUIET))
    assert set(first["target"].flatten().tolist()) <= {7, -1}
    (first, *_) = batches(uio.wenet_dataset("raw", listed, None, QUIET))
    assert set(first) == {"keys", "feats", "feats_lengths", "pcm", "pcm_length", "langs", "tasks"}


@pytest.mark.parametrize(("kind", "bins"), [("mfcc", 20), ("log_mel_spectrogram", 80)])
def test_other_features(kind: str, bins: int, raw: tuple[str, dict[str, int]]) -> None:
    conf = {**QUIET, "feats_type": kind, "mfcc_conf": {"num_mel_bins": 40, "num_ceps": 20}}
    made = batches(uio.wenet_dataset("raw", raw[0], TOKENIZER, conf))
    assert {batch["feats"].shape[2] for batch in made} == {bins}


def test_channel_and_speakers(tmp_path: Path) -> None:
    (tmp_path / "two.wav").write_bytes(audio(4000, 1, 16_000, channels=2))
    (tmp_path / "spk.txt").write_text("S1 4\n")
    item = {"key": "A", "wav": str(tmp_path / "two.wav"), "txt": "文", "speaker": "S1"}
    listed = raw_list(tmp_path / "data.list", [item])
    conf = {**QUIET, "speaker_conf": {"speaker_table_path": str(tmp_path / "spk.txt")}}
    (second,) = batches(uio.wenet_dataset("raw", listed, None, {**conf, "singal_channel_conf": {"channel": 1}}))
    (first,) = batches(uio.wenet_dataset("raw", listed, None, conf))
    assert second["speaker"].tolist() == [4]
    assert not torch.equal(first["pcm"], second["pcm"])
