"""What ``pad`` hands to a model: other paddings, masks, names, order, lengths and axes."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers_bad import code_points, raw_items, run
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.batches.rows import Outputs


def graph(folder: Path, count: int = 4) -> uio.Pipeline:
    items = raw_items(folder, count)
    for number, item in enumerate(items):
        item["txt"] = "abcd"[: 1 + number % 3]
    return uio.from_raw_list(items).decode_audio().tokenize(code_points).fbank(8).batch(count)


def batch_of(pipeline: uio.Pipeline) -> dict[str, Any]:
    (batch,), _ = run(pipeline, failures="raise")
    assert isinstance(batch, dict)
    return batch


def test_what_a_model_of_hugging_face_takes(tmp_path: Path) -> None:
    plain = batch_of(graph(tmp_path).pad(order="kept"))
    names = {"feats": "input_features", "feats_mask": "attention_mask", "target": "labels", "keys": None}
    named = graph(tmp_path).pad(
        order="kept", names=names, mask=True, value={"feats": -1.5, "target": -100}, lengths="int64", transpose=True
    )
    batch = batch_of(named)
    assert list(batch) == [
        "input_features", "feats_lengths", "labels", "target_lengths", "attention_mask", "target_mask",
    ]  # fmt: skip
    assert batch["feats_lengths"].dtype == batch["target_lengths"].dtype == torch.int64
    mask = batch["attention_mask"]
    assert mask.dtype == torch.bool
    assert mask.sum(1).tolist() == plain["feats_lengths"].tolist()
    features = batch["input_features"].transpose(1, 2)
    assert torch.equal(features[mask], plain["feats"][mask])
    assert (features[~mask] == -1.5).all()
    assert batch["input_features"].is_contiguous()
    assert torch.equal(batch["labels"], plain["target"].masked_fill(~batch["target_mask"], -100))


def test_rows_stay_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    longest, kept = (batch_of(graph(tmp_path).pad(order=order)) for order in ("longest", "kept"))
    assert longest["keys"] == ["R003", "R002", "R001", "R000"]
    assert kept["keys"] == ["R000", "R001", "R002", "R003"]
    for name, rows in longest.items():
        assert (rows[::-1] == kept[name]) if name == "keys" else torch.equal(rows.flip(0), kept[name])


def test_the_order_is_kept_when_one_fails_and_for_a_function(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 5)
    items[2]["wav"] = str(tmp_path / "missing.wav")
    batches, _ = run(uio.from_raw_list(items).decode_audio().batch(5).pad(order="kept"))
    assert [batch["keys"] for batch in batches] == [["R000", "R001", "R003", "R004"]]
    collated, _ = run(uio.from_raw_list(items).decode_audio().batch(5).pad(order="kept", collate=_keys))
    assert [batch["keys"] for batch in collated] == [["R000", "R001", "R003", "R004"]]


def _keys(samples: list[uio.Sample]) -> dict[str, Any]:
    return {"keys": [sample["key"] for sample in samples]}


def test_one_number_pads_features_alone(tmp_path: Path) -> None:
    batch = batch_of(graph(tmp_path).pad(value=7.0, pcm=True))
    assert (batch["feats"][-1, int(batch["feats_lengths"][-1]) :] == 7).all()
    assert (batch["pcm"][-1, int(batch["pcm_length"][-1]) :] == 0).all()
    assert set(batch["target"][batch["target"] < 0].tolist()) == {-1}


def test_fields_that_are_kept_have_masks_and_paddings_too(tmp_path: Path) -> None:
    coded = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().map(_with_codes).batch(3)
    batch = batch_of(coded.pad(keep=["codes"], mask=True, value={"codes": 9}))
    assert batch["codes_mask"].sum(1).tolist() == batch["codes_lengths"].tolist()
    assert (batch["codes"][~batch["codes_mask"]] == 9).all()
    with pytest.raises(uio.PipelineError, match=r"value of codes must be a whole number, .*, not 0.5"):
        batch_of(coded.pad(keep=["codes"], value={"codes": 0.5}))


def _with_codes(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "codes": list(range(1 + int(str(sample["key"])[1:])))}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "0"}, r"value must be a number for the features.*not '0'"),
        ({"value": {"feats": None}}, r"value must be a number"),
        ({"value": {"target": 0.5}}, r"value of target must be a whole number, .*, not 0.5; -100 is"),
        ({"value": {"feats": 0.5, "prompt_target": -0.1}}, r"value of prompt_target must be a whole number"),
        ({"names": ["feats"]}, r"names must be new names by the outputs.*input_features"),
        ({"names": {"feats": "x", "target": "x"}}, r"names must give each output a name of its own"),
        ({"order": "shortest"}, r"order must be one of \('longest', 'kept'\), not 'shortest'"),
        ({"lengths": "int16"}, r"lengths must be int32 or int64, not 'int16'; models of Hugging Face take int64"),
        ({"lengths": torch.int64}, r"lengths must be int32 or int64, not torch.int64"),
        (
            {"value": {"keys": 1}},
            r"value has 'keys', but what is padded is feats, .*; leave it out",
        ),
        ({"layout": "ragged", "mask": True}, "mask and transpose cannot be combined with layout='ragged'"),
        ({"collate": _keys, "mask": True}, r"collate makes the whole batch, so that mask would do nothing"),
    ],
    ids=lambda given: re.sub(r" at 0x\w+", "", str(given)),
)
def test_wrong_arguments(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(uio.PipelineError, match=said):
        uio.from_raw_list("a.list").decode_audio().batch(2).pad(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"names": {"feat": "input_features"}}, r"names has 'feat', but the batch has keys, .*did you mean 'feats'\?"),
        ({"value": {"pcm": 1.0}}, r"value has 'pcm', but the batch has keys, feats"),
        ({"names": {"feats": "target"}}, r"gives two outputs of keys, feats, .* the same name"),
    ],
    ids=lambda given: re.sub(r" at 0x\w+", "", str(given)),
)
def test_outputs_that_are_not_there(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(uio.PipelineError, match=said):
        batch_of(graph(tmp_path).pad(**wrong))


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), width=st.integers(1, 3))
def test_a_mask_is_true_for_as_many_as_the_length_says(lengths: list[int], width: int) -> None:
    feats = torch.zeros(len(lengths), max(lengths), width)
    batch = {"feats": feats, "feats_lengths": torch.tensor(lengths, dtype=torch.int32)}
    made = Outputs(mask=True, lengths="int64", transpose=True).of(batch, {"feats": "feats_lengths"})
    assert made["feats_mask"].sum(1).tolist() == lengths
    assert made["feats_mask"].long().diff(dim=1).le(0).all()
    assert made["feats"].shape == (len(lengths), width, max(lengths))
