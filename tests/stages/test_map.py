"""Functions on utterances: immediate or deferred, reproducible, lazy; and on batches."""

from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import keys, raw_items, run

import uio_pipes as uio

Pair = namedtuple("Pair", "keys pcm")


def items_without_audio(count: int = 3) -> list[dict[str, str]]:
    return [{"key": str(i), "wav": "/nowhere.wav", "txt": f"t{i}"} for i in range(count)]


def test_a_function_on_text_decodes_nothing() -> None:
    def upper(sample: uio.Sample) -> uio.Sample:
        sample["txt"] = sample["txt"].upper()
        return sample

    texts: list[str] = []
    graph = uio.from_raw_list(items_without_audio()).decode_audio().fbank(20).map(upper)
    batches, loader = run(graph.filter(lambda s: texts.append(s["txt"])))
    assert (batches, loader.stats().failures) == ([], 0)
    assert texts == ["T0", "T1", "T2"]


def test_audio_that_a_function_touches_is_decoded_there(tmp_path: Path) -> None:
    def louder(sample: uio.Sample) -> uio.Sample:
        sample["wav"] = sample["wav"] * 2
        return sample

    items = raw_items(tmp_path, 3)
    plain = run(uio.from_raw_list(items).decode_audio())[0]
    loud = run(uio.from_raw_list(items).decode_audio().map(louder).batch(3).pad())[0][0]
    for sample in plain:
        at = loud["keys"].index(sample["key"])
        assert torch.equal(loud["pcm"][at, : sample["wav"].shape[1]], sample["wav"][0] * 2)


def test_an_immediate_function_may_change_the_length(tmp_path: Path) -> None:
    def doubled(sample: uio.Sample) -> uio.Sample:
        sample["wav"] = torch.cat([sample["wav"]] * 2, 1)
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().map(doubled).fbank(20)
    batches, _ = run(graph.dynamic_batch(1000).pad(), failures="raise")
    assert batches[0]["feats_lengths"].tolist() == [1 + (2 * n - 200) // 80 for n in (1760, 1680, 1600)]


def halved(sample: uio.Sample) -> uio.Sample:
    sample["wav"] = sample["wav"][:, ::2]
    return sample


def test_a_deferred_function_changes_the_plan_by_its_rule_and_runs_once(tmp_path: Path) -> None:
    plans: list[int] = []
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().map(halved, length=lambda n: -(-n // 2))
    graph = graph.filter(lambda s: plans.append(s.plan.samples) is None)
    (batch,), _ = run(graph.batch(3).pad(), failures="raise")
    assert plans == [800, 840, 880]
    assert batch["pcm_length"].tolist() == [880, 840, 800]


def test_a_deferred_function_runs_when_the_batch_is_made(tmp_path: Path) -> None:
    events: list[str] = []

    def note(sample: uio.Sample) -> uio.Sample:
        events.append("map " + sample["key"])
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio()
    for length, want in (
        (None, ["map R000", "R000", "map R001", "R001"]),
        ("same", ["R000", "R001", "map R000", "map R001"]),
    ):
        events.clear()
        seen = graph.map(note, length=length).filter(lambda s: events.append(s.key) is None)
        run(seen.batch(2).pad(), failures="raise")
        assert events[:2] == want[:2]
        assert sorted(events) == sorted(want), "when the batch is made the longest comes first"


def test_length_rule_is_in_frames_after_features(tmp_path: Path) -> None:
    def cut(sample: uio.Sample) -> uio.Sample:
        sample["feat"] = sample["feat"][:5]
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 4)).decode_audio().fbank(20).map(cut, length=lambda n: min(n, 5))
    batches, _ = run(graph.dynamic_batch(10).pad(), failures="raise")
    assert [b["feats"].shape for b in batches] == [(2, 5, 20)] * 2


def test_longer_than_the_rule_says_is_a_length_mismatch(tmp_path: Path) -> None:
    def doubled(sample: uio.Sample) -> uio.Sample:
        sample["wav"] = torch.cat([sample["wav"]] * 2, 1)
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().map(doubled, length="same").batch(2).pad()
    batches, loader = run(graph)
    assert (batches, loader.stats().skipped) == ([], {"length_mismatch": 2})
    with pytest.raises(uio.DataError, match="length rule"):
        run(graph, failures="raise")


@pytest.mark.parametrize("rule", [lambda n: None, lambda n: 1 / 0, lambda n: "x"])
def test_a_length_rule_that_fails_is_a_failure_with_its_message(tmp_path: Path, rule: Any) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().map(halved, length=rule).dynamic_batch(99).pad()
    batches, loader = run(graph)
    assert batches == []
    assert loader.stats().failures == 2


# New mappings


def test_a_new_mapping_takes_the_place_of_the_fields(tmp_path: Path) -> None:
    def only(sample: uio.Sample) -> dict[str, Any]:
        return {"key": sample["key"] + "x", "wav": sample["wav"], "sample_rate": sample["sample_rate"]}

    for length in (None, "same"):
        batches, _ = run(uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().map(only, length=length))
        assert [sorted(b) for b in batches] == [["key", "sample_rate", "wav"]] * 2
        assert keys(batches) == ["R000x", "R001x"]


@pytest.mark.parametrize("how", ["del", "pop"])
@pytest.mark.parametrize("field", ["txt", "wav", "label", "feat"])
def test_a_field_can_be_taken_out(tmp_path: Path, field: str, how: str) -> None:
    def drop(sample: uio.Sample) -> uio.Sample:
        if how == "del":
            del sample[field]
        else:
            assert sample.pop(field) is not None
        assert field not in sample
        assert field not in list(sample)
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 1)).decode_audio().tokenize(lambda t: [1]).fbank(20).map(drop)
    (batch,), _ = run(graph, failures="raise")
    assert field not in batch
    assert {"key", "txt", "wav", "label", "feat"} - set(batch) == {field}


def test_a_sample_is_a_mapping_of_all_it_will_have(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(sample: uio.Sample) -> uio.Sample:
        seen.update(names=sorted(sample), size=len(sample), has="feat" in sample, lacks="nothing" in sample)
        seen.update(get=sample.get("nothing", 5), whole=dict(sample))
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 1)).decode_audio().tokenize(lambda t: [1]).fbank(20).map(look)
    run(graph, failures="raise")
    assert seen["names"] == ["feat", "key", "label", "sample_rate", "tokens", "txt", "wav"]
    assert (seen["size"], seen["has"], seen["lacks"], seen["get"]) == (7, True, False, 5)
    assert seen["whole"]["feat"].shape[1] == 20


def test_what_is_written_before_decoding_is_what_is_decoded(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 2)

    def other(sample: uio.Sample) -> uio.Sample:
        sample["wav"] = items[1]["wav"]
        return sample

    batches, _ = run(uio.from_raw_list(items).map(other).decode_audio())
    assert [b["wav"].shape[1] for b in batches] == [1680, 1680]


def test_text_written_after_tokenize_does_not_change_labels_but_before_does(tmp_path: Path) -> None:
    def to_b(sample: uio.Sample) -> uio.Sample:
        sample["txt"] = "b"
        return sample

    source = uio.from_raw_list(raw_items(tmp_path, 1, txt="a"))
    after = run(source.tokenize(lambda t: [ord(t)]).map(to_b))[0][0]
    before = run(source.map(to_b).tokenize(lambda t: [ord(t)]))[0][0]
    assert (after["txt"], after["label"]) == ("b", [97])
    assert (before["txt"], before["label"]) == ("b", [98])


# Randomness


def drawn(sample: uio.Sample, rng: np.random.Generator) -> uio.Sample:
    sample["draw"] = int(rng.integers(10**9))
    return sample


def draws(items: list[dict[str, Any]], length: Any = None, epoch: int = 0, **options: Any) -> dict[str, int]:
    loader = uio.Loader(uio.from_raw_list(items).decode_audio().map(drawn, length=length), **options)
    loader.set_epoch(epoch)
    return {b["key"]: b["draw"] for b in loader}


@pytest.mark.parametrize("length", [None, "same"])
def test_rng_is_the_utterance_s_own_on_any_number_of_workers(tmp_path: Path, length: Any) -> None:
    items = raw_items(tmp_path, 8)
    first = draws(items, length)
    assert len(set(first.values())) == 8
    assert draws(items, length, lanes=3) == first
    assert draws(items, length, num_workers=2) == first
    assert {k: first[k] for k in ("R000", "R001")} == draws(items[:2], length)
    assert not set(draws(items, length, seed=1).values()) & set(first.values())
    assert not set(draws(items, length, epoch=1).values()) & set(first.values())


def test_two_functions_draw_apart_and_deferred_ones_as_immediate_ones(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    assert draws(items) == draws(items, "same")

    def again(sample: uio.Sample, rng: np.random.Generator) -> uio.Sample:
        sample["other"] = int(rng.integers(10**9))
        return sample

    batches, _ = run(uio.from_raw_list(items).map(drawn).map(again))
    assert all(b["draw"] != b["other"] for b in batches)


def test_partials_methods_and_callable_objects(tmp_path: Path) -> None:
    class Adder:
        def __init__(self, text: str) -> None:
            self.text = text

        def __call__(self, sample: uio.Sample) -> uio.Sample:
            sample["txt"] += self.text
            return sample

        def add(self, sample: uio.Sample, rng: Any) -> uio.Sample:
            assert rng.random() < 1
            return self(sample)

    def append(text: str, sample: uio.Sample) -> uio.Sample:
        sample["txt"] += text
        return sample

    graph = uio.from_raw_list(raw_items(tmp_path, 1)).map(Adder("a")).map(Adder("b").add).map(partial(append, "c"))
    assert run(graph, failures="raise")[0][0]["txt"] == "字0abc"


# After batching


def test_a_function_after_pad_gets_the_batch(tmp_path: Path) -> None:
    def count(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "count": len(batch["keys"])}

    batches, _ = run(uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio().batch(2).pad().map(count))
    assert [b["count"] for b in batches] == [2, 2, 1]


def test_a_function_after_batch_gets_the_list(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio().batch(2).map(lambda samples: samples[::-1])
    assert keys(run(graph)[0]) == ["R001", "R000", "R003", "R002", "R004"]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        lambda batch: Pair(batch["keys"], batch["pcm"]),
        lambda batch: {**batch, "pcm": batch["pcm"].to(torch.bfloat16)},
        lambda batch: {**batch, "pcm": batch["pcm"].clone().requires_grad_()},
        lambda batch: {**batch, "list": [batch["pcm"], "text", None, 1]},
        lambda batch: {**batch, "list": ["text", batch["pcm"]]},
        lambda batch: (batch["keys"], batch["pcm"]),
        lambda batch: batch["pcm"],
    ],
    ids=["namedtuple", "bfloat16", "requires_grad", "tensor first", "text first", "tuple", "tensor"],
)
def test_whatever_a_batch_is_made_into_comes_through_a_worker(tmp_path: Path, change: Any, workers: int) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().batch(1).pad()
    want = [change(batch) for batch in run(graph)[0]]
    got, _ = run(graph.map(change), num_workers=workers)
    assert len(got) == 2
    for a, b in zip(want, got, strict=True):
        assert type(a) is type(b)
        assert same(a, b)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
