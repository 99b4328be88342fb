"""``from_iterable``: any Python object, resumed at its number, by its state, or by skipping."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract import Case, check_cuts, record, restored
from corpus import wav_bytes
from helpers_bad import keys
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.datapipes.iter import IterableWrapper
from torchdata.nodes import IterableWrapper as NodeWrapper

import uio_pipes as uio

ITEMS = [{"key": f"u{i:02d}", "txt": f"{i}", "n": i} for i in range(17)]


class MapStyle(Dataset[Any]):
    """Says which items were asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(ITEMS)

    def __getitem__(self, i: int) -> dict[str, Any]:
        self.asked.append(i)
        return ITEMS[i]


class Plain(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(ITEMS)


class Stateful:
    """An iterable that can be put back to where it was; counts how often it was read."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < len(ITEMS):
            self.at += 1
            yield ITEMS[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def add_suffix(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "txt": item["txt"] + "!"}


OBJECTS = {
    "list": (ITEMS, "number"),
    "tuple": (tuple(ITEMS), "number"),
    "dataset": (MapStyle(), "number"),
    "iterable_dataset": (Plain(), "skipping"),
    "own_state": (Stateful(), "own state_dict"),
    "datapipe": (IterableWrapper(ITEMS).map(add_suffix), "skipping"),
    "torchdata_node": (NodeWrapper(ITEMS), "own state_dict"),
}


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_is_delivered_once_and_resumed_anywhere(name: str, lanes: int) -> None:
    items, way = OBJECTS[name]
    graph = uio.from_iterable(items).sharding_filter().shuffle(4)
    assert way in str(graph)
    recorded = record(Case(graph, {"lanes": lanes}))
    assert sorted(recorded.keys) == [item["key"] for item in ITEMS]
    check_cuts(recorded, range(0, len(ITEMS) + 1, 3))
    assert sorted(keys(uio.Loader(graph, num_workers=2, lanes=4))) == [item["key"] for item in ITEMS]


def after_ten(items: Any) -> uio.Loader:
    """A loader that has delivered ten."""
    loader = uio.Loader(uio.from_iterable(items))
    for _ in zip(range(10), loader, strict=False):
        pass
    return loader


def test_what_has_a_number_or_a_state_is_not_read_from_its_beginning() -> None:
    loader = after_ten(MapStyle())
    again = MapStyle()
    resumed = restored(uio.from_iterable(again), loader.state_dict())
    assert keys(resumed) == [item["key"] for item in ITEMS[10:]]
    assert min(again.asked) == 10
    assert '"at":10' in after_ten(Stateful()).state_dict()["lane_000000"].replace(" ", "")


def test_audio_in_every_form(tmp_path: Path) -> None:
    data = wav_bytes(3)
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    pcm = np.frombuffer(data[44:], "<i2")
    wave = pcm.astype(np.float32) / 32768
    forms: list[Any] = [str(path), data, wave, wave[None], torch.from_numpy(wave), pcm]
    items = [{"key": str(i), "wav": wav, "sample_rate": 8000, "txt": ""} for i, wav in enumerate(forms)]
    got = list(uio.Loader(uio.from_iterable(items).decode_audio().fbank(num_mel_bins=4)))
    assert [s["key"] for s in got] == [str(i) for i in range(len(forms))]
    for sample in got:
        assert sample["wav"].shape == (1, len(wave))
        torch.testing.assert_close(sample["feat"], got[0]["feat"])


@pytest.mark.parametrize(
    "wav", [np.zeros(4000, np.int16), np.zeros((1, 4000)), torch.zeros(4000)], ids=lambda w: str(w.dtype)
)
def test_samples_need_no_decoding(wav: Any) -> None:
    items = [{"key": "a", "wav": wav, "sample_rate": 8000, "txt": ""}]
    (sample,) = uio.Loader(uio.from_iterable(items).speed_perturb([1.0]).fbank(num_mel_bins=4))
    assert sample["feat"].shape == (48, 4)
    assert sample["wav"].dtype == torch.float32


def test_features_and_missing_keys(tmp_path: Path) -> None:
    feats = [np.full((30 + i, 4), i, np.float32) for i in range(3)]
    np.save(tmp_path / "f.npy", feats[2])
    items = [{"feat": feats[0]}, {"feat": torch.from_numpy(feats[1])}, {"feat": str(tmp_path / "f.npy")}]
    (batch,) = uio.Loader(uio.from_iterable(items).batch(3).pad())
    assert batch["keys"] == ["000000002", "000000001", "000000000"]
    assert batch["feats"].shape == (3, 32, 4)


def test_utterances_of_the_user_are_not_changed() -> None:
    items = [{"key": "a", "wav": torch.ones(1, 4000), "sample_rate": 8000, "txt": "x"}]
    graph = uio.from_iterable(items).decode_audio().speed_perturb([0.9]).map(add_suffix, length="same").fbank()
    list(uio.Loader(graph.spec_aug()))
    assert items[0].keys() == {"key", "wav", "sample_rate", "txt"}
    assert torch.equal(items[0]["wav"], torch.ones(1, 4000))


def test_a_shorter_iterable_does_not_pass_for_the_one_of_the_state() -> None:
    shorter = uio.Loader(uio.from_iterable(IterableWrapper(ITEMS[:5])))
    with pytest.raises(uio.StateError):
        shorter.load_state_dict(after_ten(Plain()).state_dict())


class Reshuffled:
    """Like Hugging Face's datasets: another order after ``set_epoch``."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return ({**item, "txt": str(self.epoch)} for item in ITEMS)


def test_an_object_with_set_epoch_is_told_the_epoch() -> None:
    loader = uio.Loader(uio.from_iterable(Reshuffled()).repeat(2))
    told = [[sample["txt"] for sample in loader] for _ in range(2)]
    assert len(set(told[0] + told[1])) == 4, "two rounds in each of two epochs"
    recorded = record(Case(uio.from_iterable(Reshuffled()).sharding_filter(), {"lanes": 2}))
    check_cuts(recorded, range(0, 18, 4))


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"wav": np.zeros(400, np.float32)}, "missing_sample_rate"),
        ({"wav": [0.0, 0.1], "sample_rate": 8000}, "bad_audio"),
        ({"wav": np.zeros((4000, 2), np.float32), "sample_rate": 8000}, "bad_audio"),
        ({"wav": np.zeros(0, np.float32), "sample_rate": 8000}, "empty_audio"),
        ({"wav": torch.tensor([0.1, torch.nan, 0.1]), "sample_rate": 8000}, "nan_audio"),
        ({"wav": {"array": np.full(4000, np.inf), "sampling_rate": 8000}}, "nan_audio"),
    ],
)
def test_a_bad_item_is_one_failure(item: dict[str, Any], reason: str) -> None:
    good = {"wav": np.zeros(4000, np.float32), "sample_rate": 8000}
    loader = uio.Loader(uio.from_iterable([item, good]).decode_audio().fbank(num_mel_bins=4))
    assert keys(loader) == ["000000001"]
    assert loader.stats().skipped == {reason: 1}


def test_features_that_are_no_numbers_are_one_failure(tmp_path: Path) -> None:
    bad = np.ones((9, 4), np.float32)
    bad[8, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    feats: list[Any] = [np.ones((9, 4)), bad, str(tmp_path / "bad.npy"), np.full((9, 4), -np.inf)]
    items = [{"feat": feat} for feat in feats]
    loader = uio.Loader(uio.from_iterable(items).batch(4).pad())
    assert next(iter(loader))["keys"] == ["000000000"]
    assert loader.stats().skipped == {"bad_features": 3}


@pytest.mark.parametrize("dtype", [np.int16, np.float64, np.float16])
def test_features_in_memory_become_float32(dtype: Any) -> None:
    items = [{"feat": np.ones((30, 4), dtype)}, {"feat": np.full((20, 4), 0.7)}]
    (batch,) = uio.Loader(uio.from_iterable(items).spec_aug(max_t=2, max_f=1).deltas(order=1).batch(2).pad())
    assert batch["feats"].dtype == torch.float32
    assert batch["feats"][1, :20, :4].max() == pytest.approx(0.7)
