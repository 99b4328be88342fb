"""``speaker``: names to numbers."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers_bad import members, raw_items, run, shard, shard_list

import uio_pipes as uio

TABLE = {"S0002": 1, "S0003": 2, "7": 3}


def numbers(root: Path, names: list[Any], table: Any) -> list[int]:
    items = [{**item, "speaker": name} for item, name in zip(raw_items(root, len(names)), names, strict=True)]
    samples, _ = run(uio.from_raw_list(items).speaker(table), failures="raise")
    return [sample["speaker"] for sample in samples]


def test_names_become_numbers_and_unknown_ones_0(tmp_path: Path) -> None:
    (tmp_path / "spk.txt").write_text("S0002 1\nS0003 2\n7 3\n")
    for table in (TABLE, tmp_path / "spk.txt", str(tmp_path / "spk.txt")):
        assert numbers(tmp_path, ["S0003", "nobody", "S0002", 7], table) == [2, 0, 1, 3]


def test_a_member_of_the_shard_gives_the_name(tmp_path: Path) -> None:
    parts = [*members(1), ("K000.speaker", b"S0003\n")]
    listed = shard_list(tmp_path / "shards.list", [shard(tmp_path / "a.tar", parts)])
    (sample,), _ = run(uio.from_shard_list(listed).speaker(TABLE), failures="raise")
    assert sample["speaker"] == 2


def test_batch_has_the_numbers_as_a_tensor(tmp_path: Path) -> None:
    items = [{**item, "speaker": "S0003"} for item in raw_items(tmp_path, 2)]
    (batch,), _ = run(uio.from_raw_list(items).decode_audio().speaker(TABLE).batch(2).pad())
    assert batch["speaker"].dtype == torch.int32
    assert batch["speaker"].tolist() == [2, 2]


def test_an_utterance_without_a_speaker_is_a_failure(tmp_path: Path) -> None:
    samples, loader = run(uio.from_raw_list(raw_items(tmp_path, 2)).speaker(TABLE))
    assert (samples, loader.stats().skipped) == ([], {"missing_speaker": 2})


def test_another_table_is_another_graph_and_it_prints_short() -> None:
    def graph(table: dict[str, int]) -> uio.Pipeline:
        return uio.from_raw_list("x").speaker(table)

    assert graph(TABLE).fingerprint() == graph(dict(reversed(TABLE.items()))).fingerprint()
    assert graph(TABLE).fingerprint() != graph({**TABLE, "S0002": 9}).fingerprint()
    assert "speaker(3 speakers" in str(graph(TABLE))
    assert pickle.loads(pickle.dumps(graph(TABLE))).fingerprint() == graph(TABLE).fingerprint()


def test_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(uio.ListError, match=r"none\.txt"):
        uio.Loader(
            uio.from_raw_list([{"key": "a", "wav": "a.wav", "txt": ""}]).speaker(tmp_path / "none.txt")
        ).state_dict()
