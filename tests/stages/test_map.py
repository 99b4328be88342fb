"""Functions on utterances, immediate or deferred, and on batches; nodes of the user's own."""

import contextlib
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import keys, raw_items, run, texts
from torchdata.nodes import BaseNode

import uio_pipes as uio

Pair = namedtuple("Pair", "keys pcm")


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


def test_a_function_after_batch_gets_the_list_and_after_pad_the_batch(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio().batch(2)
    assert keys(run(graph.map(lambda samples: samples[::-1]))[0]) == ["R001", "R000", "R003", "R002", "R004"]
    counts, _ = run(graph.pad().map(lambda batch: {**batch, "count": len(batch["keys"])}))
    assert [b["count"] for b in counts] == [2, 2, 1]


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


# Nodes of the user's own: of this package or of torchdata


class Every(uio.Node):
    """Passes on every ``n``-th."""

    state_fields = ("seen",)

    def __init__(self, source: BaseNode[Any], n: int = 2, *, first: int = 0) -> None:
        super().__init__(source)
        self.n, self.first = n, first

    def start(self) -> None:
        self.seen = self.first

    def next(self) -> Any:
        while True:
            item = self.source.next()
            self.seen += 1
            if self.seen % self.n == 0:
                return item


class Keys(uio.Node):
    """Gives something that is no utterance."""

    def next(self) -> Any:
        return self.source.next().key


class Pairs(BaseNode[Any]):
    """Of torchdata's kind: makes lists of two, and hands out its live state."""

    def __init__(self, source: BaseNode[Any]) -> None:
        super().__init__()
        self.source, self.state = source, {"made": 0}

    def reset(self, initial_state: Any = None) -> None:
        super().reset(initial_state)
        self.source.reset(initial_state["source"] if initial_state else None)
        self.state["made"] = initial_state["made"] if initial_state else 0

    def next(self) -> Any:
        pair = [self.source.next()]
        with contextlib.suppress(StopIteration):
            pair.append(self.source.next())
        self.state["made"] += 1
        return pair

    def get_state(self) -> Any:
        self.state["source"] = self.source.state_dict()
        return self.state


class BadState(Every):
    def get_state(self) -> dict[str, Any]:
        return {"what": {1, 2}}


def test_arguments_reach_the_node(tmp_path: Path) -> None:
    source = uio.from_raw_list(raw_items(tmp_path, 7))
    assert keys(run(source.through(Every))[0]) == ["R001", "R003", "R005"]
    assert keys(run(source.through(Every, 3, first=2))[0]) == ["R000", "R003", "R006"]


def test_a_state_that_cannot_be_saved_is_told(tmp_path: Path) -> None:
    with pytest.raises(uio.UioError, match=r"ints, strings, lists.*through"):
        run(uio.from_raw_list(raw_items(tmp_path, 3)).through(BadState))


def test_a_source_that_ends_in_a_node_of_the_users_is_mixed_with_others() -> None:
    graph = uio.mix({"own": texts("a", 8).through(Every), "other": texts("b", 5)}).shuffle(3)
    assert graph.stages[0].gives == "sample"
    whole = keys(uio.Loader(graph))
    assert sorted(whole) == ["a1", "a3", "a5", "a7", "b0", "b1", "b2", "b3", "b4"]
    loader = uio.Loader(graph)
    begun = [sample["key"] for _, sample in zip(range(4), loader, strict=False)]
    resumed = uio.Loader(graph)
    resumed.load_state_dict(loader.state_dict())
    assert begun + keys(resumed) == whole


def test_where_all_sources_end_in_nodes_of_the_users_anything_may_come_out() -> None:
    mixed = uio.interleave([texts("a", 4).through(Pairs), texts("b", 4).through(Pairs)])
    assert mixed._kind == "any"
    assert [[sample["key"] for sample in pair] for pair in uio.Loader(mixed)] == [
        ["a0", "a1"], ["b0", "b1"], ["a2", "a3"], ["b2", "b3"],
    ]  # fmt: skip


@pytest.mark.parametrize("node", [Keys, Pairs])
def test_a_node_that_gives_no_utterances_among_sources_that_do_is_named(node: type[BaseNode[Any]]) -> None:
    graph = uio.mix({"own": texts("a", 8).through(node), "other": texts("b", 5)}).shuffle(3)
    with pytest.raises(uio.PipelineError, match=r"at the end of own must give samples as the other sources do, not a"):
        list(uio.Loader(graph))


def test_a_buffer_behind_a_node_that_gives_no_utterances_says_so() -> None:
    with pytest.raises(
        uio.PipelineError,
        match=r"sort takes utterances, not a str: check what the \.through\(…\) node before it returns",
    ):
        list(uio.Loader(texts("a", 8).through(Keys).sort(3)))
