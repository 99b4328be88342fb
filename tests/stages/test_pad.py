"""Padded batches: WeNet's keys, types and padding, longest first; or what else a model takes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from contract import digest
from corpus import Corpus
from helpers_bad import code_points, raw_items, run
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.batches.rows import Outputs


def batch_of(graph: uio.Pipeline, **options: Any) -> dict[str, Any]:
    (batch,), _ = run(graph.batch(100).pad(**options), failures="raise")
    assert isinstance(batch, dict)
    return batch


def test_features_and_labels(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 4)).decode_audio().tokenize(code_points).fbank(20)
    plain = {b["key"]: b for b in run(graph)[0]}
    batch = batch_of(graph)
    assert list(batch) == ["keys", "feats", "feats_lengths", "target", "target_lengths"]
    assert batch["keys"] == ["R003", "R002", "R001", "R000"]
    assert batch["feats"].dtype == torch.float32
    assert batch["feats"].shape == (4, 21, 20)
    assert batch["target"].dtype == torch.int64
    assert batch["feats_lengths"].dtype == batch["target_lengths"].dtype == torch.int32
    assert batch["feats_lengths"].tolist() == [21, 20, 19, 18]
    for i, key in enumerate(batch["keys"]):
        length = batch["feats_lengths"][i]
        assert torch.equal(batch["feats"][i, :length], plain[key]["feat"])
        assert torch.equal(batch["feats"][i, length:], torch.zeros(21 - length, 20))


def test_targets_are_padded_with_minus_1(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    for item, text in zip(items, ["", "abc", "z"], strict=True):
        item["txt"] = text
    batch = batch_of(uio.from_raw_list(items).decode_audio().tokenize(code_points))
    assert batch["keys"] == ["R002", "R001", "R000"]
    assert batch["target"].tolist() == [[ord("z"), -1, -1], [97, 98, 99], [-1, -1, -1]]
    assert batch["target_lengths"].tolist() == [1, 3, 0]


def test_waveforms_without_features(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    plain = {b["key"]: b["wav"] for b in run(uio.from_raw_list(items).decode_audio())[0]}
    batch = batch_of(uio.from_raw_list(items).decode_audio())
    assert list(batch) == ["keys", "pcm", "pcm_length"]
    assert (batch["pcm"].dtype, batch["pcm"].shape) == (torch.float32, (3, 1760))
    assert (batch["pcm_length"].dtype, batch["pcm_length"].tolist()) == (torch.int32, [1760, 1680, 1600])
    assert torch.equal(batch["pcm"][2, :1600], plain["R000"][0])
    assert not batch["pcm"][2, 1600:].any()


def _stereo(tmp_path: Path, count: int) -> list[dict[str, str]]:
    items = []
    for i in range(count):
        samples = np.random.default_rng(i).integers(-(1 << 15), 1 << 15, (1600 + 37 * i, 2), np.int16)
        soundfile.write(tmp_path / f"{i}.wav", samples, 8000)
        items.append({"key": str(i), "wav": str(tmp_path / f"{i}.wav"), "txt": "a"})
    return items


@pytest.mark.parametrize("channel", [0, 1])
def test_pcm_that_goes_straight_to_its_row_has_the_same_bits_and_functions_still_see_floats(
    channel: int, tmp_path: Path
) -> None:
    graph = uio.from_raw_list(_stereo(tmp_path, 5)).decode_audio(channel)
    seen: list[torch.Tensor] = []

    def look(sample: uio.Sample) -> uio.Sample:
        seen.append(sample["wav"])
        return sample

    straight, looked, later = (batch_of(one) for one in (graph, graph.map(look), graph.map(look, length="same")))
    assert [(one.dtype, one.shape[0]) for one in seen] == [(torch.float32, 1)] * 10
    assert torch.equal(straight["pcm"], looked["pcm"])
    assert torch.equal(straight["pcm"], later["pcm"])
    whole = soundfile.read(tmp_path / "4.wav", dtype="float32")[0][:, channel]
    assert torch.equal(straight["pcm"][0], torch.from_numpy(whole.copy()))


def test_features_of_pcm_as_it_is_stored_have_the_bits_of_those_of_floats(tmp_path: Path) -> None:
    graph = uio.from_raw_list(_stereo(tmp_path, 3)).decode_audio()
    (straight,), _ = run(graph.fbank(20, dither=1.0).batch(3).pad(pcm=True))
    (floats,), _ = run(graph.map(lambda sample: sample, length="same").fbank(20, dither=1.0).batch(3).pad(pcm=True))
    assert torch.equal(straight["feats"], floats["feats"])
    assert torch.equal(straight["pcm"], floats["pcm"])


def test_equal_lengths_keep_their_order(tmp_path: Path) -> None:
    items = [{**item, "key": f"{i}"} for i, item in enumerate(raw_items(tmp_path, 1) * 5)]
    assert batch_of(uio.from_raw_list(items).decode_audio())["keys"] == list("01234")


def test_speakers_languages_and_tasks(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3, lang="zh", task="transcribe")
    for i, item in enumerate(items):
        item["speaker"] = 7 * i
    batch = batch_of(uio.from_raw_list(items).decode_audio())
    assert (batch["speaker"].dtype, batch["speaker"].tolist()) == (torch.int32, [14, 7, 0])
    assert (batch["langs"], batch["tasks"]) == (["zh"] * 3, ["transcribe"] * 3)


@pytest.mark.parametrize("keep", [(), ["speaker"]])
def test_speakers_arrive_as_what_they_are(tmp_path: Path, keep: list[str]) -> None:
    items = [{**item, "spk": name} for item, name in zip(raw_items(tmp_path, 2), ("S1", "S2"), strict=True)]
    graph = uio.from_raw_list(items, fields={"speaker": "spk"}).decode_audio().batch(2)
    (batch,), _ = run(graph.pad(keep=keep))
    assert batch["speaker"] == ["S2", "S1"]
    (batch,), _ = run(graph.pad(keep=keep, names={"speaker": "who"}))
    assert batch["who"] == ["S2", "S1"]
    for item in items:
        item["spk"] = 7
    (batch,), _ = run(uio.from_raw_list(items, fields={"speaker": "spk"}).decode_audio().batch(2).pad(keep=keep))
    assert (batch["speaker"].dtype, batch["speaker"].tolist()) == (torch.int32, [7, 7])
    del items[0]["spk"]
    (batch,), _ = run(uio.from_raw_list(items, fields={"speaker": "spk or ''"}).decode_audio().batch(2).pad(keep=keep))
    assert batch["speaker"] == [7, ""]
    (batch,), _ = run(uio.from_raw_list(items).map(_spk).decode_audio().batch(2).pad(keep=keep))
    assert batch.get("speaker") == ([7, None] if keep else None)


def _spk(sample: uio.Sample) -> uio.Sample:
    if "spk" in sample:
        sample["speaker"] = sample["spk"]
    return sample


def test_text_only_makes_targets(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).map(lambda s: {"key": s["key"], "txt": s["txt"]})
    batch = batch_of(graph.tokenize(code_points))
    assert list(batch) == ["keys", "target", "target_lengths"]


def test_a_key_is_text_whatever_it_was(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).map(lambda s: {**s, "key": 5}).decode_audio()
    assert batch_of(graph)["keys"] == ["5", "5"]


FEAT, WAV = {"feat": torch.ones(3, 4)}, {"wav": torch.ones(800), "sample_rate": 8000}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (WAV, {"label": [1]}, "a has a wav, b has none|b has a label, a has none"),
        ({"label": [1]}, {"label": [2], **WAV}, "b has a wav, a has none"),
        ({**FEAT, "label": [1]}, FEAT, "a has a label, b has none"),
        (FEAT, {"feat": torch.ones(2, 5)}, "a has a feat of 4 bins, b one of 5"),
        ({"label": [1]}, {"label": 3}, "a has a label, b has one number there"),
        ({"label": "x"}, {"label": [1]}, "label of a is not a list of integers"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_share_a_batch_is_named(
    first: dict[str, Any], second: dict[str, Any], told: str, workers: int
) -> None:
    items = [{"key": "a", **first}, {"key": "b", **second}]
    with pytest.raises(uio.PipelineError, match=told):
        list(uio.Loader(uio.from_iterable(items).batch(2).pad(), num_workers=workers))


def test_an_utterance_without_a_key_is_told(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(str(feature_corpus.list)).map(lambda sample: {"feat": sample["feat"]}, length="same")
    with pytest.raises(uio.PipelineError, match="an utterance has no key; the function given to"):
        list(uio.Loader(graph.batch(2).pad()))


class Twice(uio.Node):
    """Everything again."""

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.again: Any = None

    def next(self) -> Any:
        item, self.again = self.again, None
        if item is None:
            item = self.again = self.source.next()
        return item


def test_a_node_of_the_users_may_give_a_sample_again(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(str(feature_corpus.list))
    once = list(uio.Loader(graph.batch(3).pad()))
    batches = list(uio.Loader(graph.batch(3).through(Twice).pad()))
    assert [batch["keys"] for batch in batches] == [batch["keys"] for batch in once for _ in range(2)]
    assert all(
        torch.equal(one["feats"], other["feats"]) for one, other in zip(batches[::2], batches[1::2], strict=True)
    )
    assert [batch["keys"][0] for batch in uio.Loader(graph.through(Twice).batch(2).pad())] == [
        key for batch in uio.Loader(graph.batch(1).pad()) for key in batch["keys"]
    ]


def test_an_utterance_whose_features_are_none_is_left_out(feature_corpus: Corpus) -> None:
    def spoil(sample: uio.Sample) -> uio.Sample:
        if sample["key"] == next(iter(feature_corpus.keys)):
            sample["feat"] = sample["feat"].tolist()
        return sample

    loader = uio.Loader(uio.from_shard_list(str(feature_corpus.list)).map(spoil, length="same").batch(4).pad())
    assert sum(len(batch["keys"]) for batch in loader) == len(feature_corpus.keys) - 1
    assert loader.stats().skipped == {"bad_features": 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_hand_over_the_same(tmp_path: Path, workers: int) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 9)).decode_audio().fbank(20).tokenize(code_points).batch(2).pad()
    for here, there in zip(run(graph, lanes=2)[0], run(graph, lanes=2, num_workers=workers)[0], strict=True):
        assert (list(here), digest(here)) == (list(there), digest(there))
        there["feats"].add_(1)  # the trainer may write to it


def test_waveforms_beside_features_on_request(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().fbank(num_mel_bins=8).batch(3)
    (bare,), _ = run(graph.pad())
    (both,), _ = run(graph.pad(pcm=True))
    (waves,), _ = run(uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().batch(3).pad())
    assert set(both) - set(bare) == {"pcm", "pcm_length"}
    assert torch.equal(both["feats"], bare["feats"])
    assert torch.equal(both["pcm"], waves["pcm"])
    assert both["pcm_length"].tolist() == waves["pcm_length"].tolist()


def test_waveforms_beside_features_have_to_be_there(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(feature_corpus.list).batch(3)
    assert "pcm" not in run(graph.pad(pcm=True))[0][0]


@pytest.mark.parametrize("make", [int, np.int64, np.array, torch.tensor], ids=["int", "int64", "array", "tensor"])
def test_a_label_that_is_one_number_is_a_class(make: Any) -> None:
    items = [
        {"key": str(i), "wav": torch.ones(1, 800 + i), "sample_rate": 8000, "label": make(i % 3)} for i in range(4)
    ]
    (batch,) = uio.Loader(uio.from_iterable(items).decode_audio().batch(4).pad())
    assert (batch["keys"], batch["label"].tolist()) == (["3", "2", "1", "0"], [0, 2, 1, 0])
    assert batch["label"].dtype == torch.int64
    assert "target" not in batch


# Other paddings, masks, names, orders, lengths and axes


def padded(folder: Path, **options: Any) -> dict[str, Any]:
    items = raw_items(folder, 4)
    for number, item in enumerate(items):
        item["txt"] = "abcd"[: 1 + number % 3]
    return batch_of(uio.from_raw_list(items).decode_audio().tokenize(code_points).fbank(8), **options)


def test_what_a_model_of_hugging_face_takes(tmp_path: Path) -> None:
    plain = padded(tmp_path, order="kept")
    names = {"feats": "input_features", "feats_mask": "attention_mask", "target": "labels", "keys": None}
    value = {"feats": -1.5, "target": -100}
    batch = padded(tmp_path, order="kept", names=names, mask=True, value=value, lengths="int64", transpose=True)
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
    longest, kept = (padded(tmp_path, order=order) for order in ("longest", "kept"))
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
    batch = padded(tmp_path, value=7.0, pcm=True)
    assert (batch["feats"][-1, int(batch["feats_lengths"][-1]) :] == 7).all()
    assert (batch["pcm"][-1, int(batch["pcm_length"][-1]) :] == 0).all()
    assert set(batch["target"][batch["target"] < 0].tolist()) == {-1}


def test_fields_that_are_kept_have_masks_and_paddings_too(tmp_path: Path) -> None:
    coded = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().map(_with_codes)
    batch = batch_of(coded, keep=["codes"], mask=True, value={"codes": 9})
    assert batch["codes_mask"].sum(1).tolist() == batch["codes_lengths"].tolist()
    assert (batch["codes"][~batch["codes_mask"]] == 9).all()
    with pytest.raises(uio.PipelineError, match=r"value of codes must be a whole number, .*, not 0.5"):
        batch_of(coded, keep=["codes"], value={"codes": 0.5})


def _with_codes(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "codes": list(range(1 + int(str(sample["key"])[1:])))}


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
        padded(tmp_path, **wrong)


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), width=st.integers(1, 3))
def test_a_mask_is_true_for_as_many_as_the_length_says(lengths: list[int], width: int) -> None:
    feats = torch.zeros(len(lengths), max(lengths), width)
    batch = {"feats": feats, "feats_lengths": torch.tensor(lengths, dtype=torch.int32)}
    made = Outputs(mask=True, lengths="int64", transpose=True).of(batch, {"feats": "feats_lengths"})
    assert made["feats_mask"].sum(1).tolist() == lengths
    assert made["feats_mask"].long().diff(dim=1).le(0).all()
    assert made["feats"].shape == (len(lengths), width, max(lengths))
