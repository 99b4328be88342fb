"""Joining: up to the bound and in order, everything in a row, a bad part alone left out, nothing lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import Corpus
from helpers_bad import Given, audio, code_points, drained, keys, raw_items, run, shard, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.stages.utterances.concat import Concat, Joined, join_text


def parts_of(batches: list[Any]) -> list[list[str]]:
    return [key.split("+") for key in keys(batches)]


@pytest.fixture
def items(tmp_path: Path) -> list[dict[str, Any]]:
    """Ten utterances of 0.2 to 0.29 s."""
    return raw_items(tmp_path, 10)


# What is joined


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 60))
def test_neighbours_are_joined_up_to_the_bound_and_none_is_lost(lengths: list[int], most: int) -> None:
    node, ledger = started(Concat(max_frames=most), lengths)
    joined = list(drained(node))
    numbers = [[int(k) for k in sample.key.split("+")] for sample in joined]
    assert [n for group in numbers for n in group] == list(range(len(lengths)))
    for group, sample in zip(numbers, joined, strict=True):
        size = sum(lengths[n] for n in group)
        assert sample.plan.length == size
        assert len(group) == 1 or size <= most
        assert len(sample["feat"]) == size
        following = group[-1] + 1
        assert following == len(lengths) or size + lengths[following] > most, "the next one would have fitted"
    assert ledger.failures == 0


def test_everything_is_in_a_row(items: list[dict[str, Any]]) -> None:
    plain, _ = run(uio.from_raw_list(items).decode_audio().tokenize(code_points).fbank(8))
    graph = uio.from_raw_list(items).decode_audio().tokenize(code_points).fbank(8).concat(max_seconds=0.7)
    batches, loader = run(graph, failures="raise")
    assert parts_of(batches)[0] == ["R000", "R001", "R002"]
    by_key = {b["key"]: b for b in plain}
    for batch, group in zip(batches, parts_of(batches), strict=True):
        parts = [by_key[key] for key in group]
        assert batch["txt"] == "".join(p["txt"] for p in parts)
        assert batch["label"] == [x for p in parts for x in p["label"]]
        assert torch.equal(batch["wav"], torch.cat([p["wav"] for p in parts], 1))
        assert torch.equal(batch["feat"], torch.cat([p["feat"] for p in parts]))
        assert batch["sample_rate"] == 8000
        assert batch["wav"].shape[1] <= 0.7 * 8000
    assert loader.stats().utterances == len(batches)


STAGES: list[Callable[[uio.Pipeline], uio.Pipeline]] = [
    lambda g: g.tokenize(code_points).concat(max_seconds=0.8),
    lambda g: g.concat(max_seconds=0.8).tokenize(code_points),
    lambda g: g.concat(max_seconds=0.8).resample(16_000).tokenize(code_points).fbank(8),
    lambda g: g.resample(16_000).speed_perturb().concat(max_seconds=0.8).tokenize(code_points).fbank(8),
    lambda g: g.fbank(8).tokenize(code_points).concat(max_frames=80).spec_aug(),
    lambda g: g.concat(max_seconds=0.4).concat(max_seconds=0.9).tokenize(code_points),
    lambda g: g.concat(max_seconds=0.6).speed_perturb().random_crop(max_seconds=0.5).tokenize(code_points),
]


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("order", [lambda g: g, lambda g: g.shuffle(3), lambda g: g.sort(3)])
def test_stands_before_and_behind_every_stage(
    items: list[dict[str, Any]], stages: Any, order: Callable[[uio.Pipeline], uio.Pipeline]
) -> None:
    graph = order(stages(uio.from_raw_list(items).decode_audio())).dynamic_batch(400).pad()
    batches, loader = run(graph, failures="raise")
    assert sorted(k for group in parts_of(batches) for k in group) == [i["key"] for i in items]
    for batch in batches:
        assert (batch["target"] >= 0).sum() == batch["target_lengths"].sum() == 2 * sum(map(len, parts_of([batch])))
    assert loader.stats().failures == 0


@pytest.mark.parametrize("duration", [False, True])
@pytest.mark.parametrize("seconds", [0.25, 0.5, 1.3])
def test_plan_is_never_below_what_comes_out(items: list[dict[str, Any]], duration: bool, seconds: float) -> None:
    """Lengths known by ``duration`` alone too, and mixed with lengths by the header."""
    if duration:
        items = [{**x, "duration": (1600 + 80 * i) / 8000} if i % 2 else x for i, x in enumerate(items)]
    plans = {}

    def look(sample: uio.Sample) -> bool:
        plans[sample.key] = sample.plan.length
        return True

    graph = uio.from_raw_list(items).decode_audio().speed_perturb([0.9, 1.0, 1.1]).concat(max_seconds=seconds)
    batches, loader = run(graph.resample(16_000).fbank(8).filter(look))
    assert loader.stats().failures == 0
    assert len(plans) == len(batches)
    for batch in batches:
        assert len(batch["feat"]) <= plans[batch["key"]] <= len(batch["feat"]) + 2 * batch["key"].count("+") + 2


def test_precomputed_features_are_joined(feature_corpus: Corpus) -> None:
    plain = {b["key"]: b["feat"] for b in run(uio.from_shard_list(feature_corpus.list))[0]}
    batches, _ = run(uio.from_shard_list(feature_corpus.list).concat(max_frames=500), failures="raise")
    assert [k for group in parts_of(batches) for k in group] == list(feature_corpus.keys)
    assert 2 < len(batches) < len(plain)
    for batch, group in zip(batches, parts_of(batches), strict=True):
        assert torch.equal(batch["feat"], torch.cat([plain[k] for k in group]))
    with pytest.raises(uio.PipelineError, match="give max_frames instead"):
        run(uio.from_shard_list(feature_corpus.list).concat(max_seconds=5))


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["hello", "world"], "hello world"),
        (["你好", "世界"], "你好世界"),
        (["你好", "hello", "there"], "你好hello there"),
        (["안녕", "하세요"], "안녕 하세요"),
        (["今日は、", "天気"], "今日は、天気"),
        (["", "a", "", "b"], "a b"),
    ],
)
def test_texts_are_joined_as_their_scripts_are_written(texts: list[str], joined: str) -> None:
    assert join_text(texts) == joined


def test_what_all_parts_agree_on_stays(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 4, corpus="x")
    for i, item in enumerate(items):
        item["speaker"] = ["a", "a", "b", "a"][i]
        item["duration"] = 0.3
    batches, _ = run(uio.from_raw_list(items).decode_audio().concat(max_seconds=0.9), failures="raise")
    assert [b.get("speaker") for b in batches] == ["a", None]
    assert [b["corpus"] for b in batches] == ["x", "x"]
    assert all("duration" not in b for b in batches)


# What it costs


def test_labels_are_looked_at_without_decoding(items: list[dict[str, Any]], tmp_path: Path) -> None:
    seen: list[int] = []

    def few(sample: uio.Sample) -> bool:
        seen.append(len(sample["label"]))
        assert isinstance(sample, Joined)
        return not any(hasattr(part.fields["wav"], "shape") for part in sample.parts)

    batches, loader = run(
        uio.from_raw_list(items).decode_audio().tokenize(code_points).concat(max_seconds=0.6).filter(few)
    )
    assert seen == [4] * 5
    assert loader.stats().skipped == {}
    assert len(batches) == 5


def test_memory_of_joined_utterances_is_that_of_their_parts() -> None:
    lane = Lane(Ledger())

    def memory(stage: Concat | None) -> int:
        source: Any = Given([50] * 12, lane)
        from uio_pipes.core.lane import Site
        from uio_pipes.stages.order.shuffle import Sort

        node = stage.build(source, lane, Site("concat", 0)) if stage else source
        node = Sort(100).build(node, lane, Site("sort", 0))
        node.reset(None)
        node.next()
        return int(node.memory())

    plain, joined = memory(None), memory(Concat(max_frames=150))
    assert 0.6 * plain < joined < 1.1 * plain  # three parts of twelve have left, instead of one utterance


# What goes wrong


def damaged(tmp_path: Path, bad: bytes, at: int = 1) -> uio.Pipeline:
    parts = [(f"K{i}.{s}", d) for i in range(4) for s, d in (("txt", b"%d" % i), ("wav", audio(1600, i)))]
    parts[2 * at + 1] = (f"K{at}.wav", bad)
    return uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio()


UNDECODABLE = audio(1600, form="FLAC")[:700]  # a sound header, and half of the samples


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("tokens", ["before", "behind", "filtered"])
def test_only_the_bad_part_is_left_out(tmp_path: Path, at: int, tokens: str) -> None:
    graph = damaged(tmp_path, UNDECODABLE, at)
    graph = graph.tokenize(code_points) if tokens == "before" else graph
    graph = graph.concat(max_seconds=5)
    graph = graph if tokens == "before" else graph.tokenize(code_points)
    graph = graph.filter(lambda s: len(s["label"]) in (4, 7)) if tokens == "filtered" else graph
    (batch,), loader = run(graph)
    rest = [i for i in range(4) if i != at]
    assert batch["key"] == "+".join(f"K{i}" for i in rest)
    assert batch["txt"] == " ".join(map(str, rest))
    joined = [ord(str(i)) for i in rest] if tokens == "before" else code_points(batch["txt"])
    assert batch["label"] == joined
    assert batch["wav"].shape == (1, 3 * 1600)
    stats = loader.stats()
    assert (stats.utterances, stats.failures, sum(stats.skipped.values())) == (1, 1, 1)
    with pytest.raises(uio.DataError, match=f"K{at}"):
        run(graph, failures="raise")


def test_features_behind_it_are_made_of_what_is_left(tmp_path: Path) -> None:
    (batch,), loader = run(damaged(tmp_path, UNDECODABLE).concat(max_seconds=5).fbank(8).tokenize(code_points))
    assert (batch["key"], batch["wav"].shape[1], batch["txt"]) == ("K0+K2+K3", 3 * 1600, "0 2 3")
    assert len(batch["feat"]) == 58
    assert sum(loader.stats().skipped.values()) == 1


def test_all_parts_bad_is_as_many_failures_and_nothing_comes(tmp_path: Path) -> None:
    parts = [(f"K{i}.{s}", d) for i in range(3) for s, d in (("txt", b"t"), ("wav", UNDECODABLE))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().concat(max_seconds=5)
    batches, loader = run(graph)
    assert batches == []
    assert loader.stats().failures == sum(loader.stats().skipped.values()) == 3


def test_text_that_cannot_be_tokenized_leaves_out_its_part(items: list[dict[str, Any]]) -> None:
    def picky(text: str) -> list[int]:
        if text.endswith("4"):
            raise ValueError("no fours")
        return [1]

    graph = uio.from_raw_list(items).decode_audio().tokenize(picky).concat(max_seconds=5).filter(token_min_length=2)
    (batch,), loader = run(graph)
    assert batch["label"] == [1] * 9
    assert "R004" not in batch["key"]
    assert "字4" not in batch["txt"]
    assert loader.stats().skipped == {"tokenize_failed": 1}


def test_one_that_a_function_has_changed_is_left_out_as_a_whole_and_says_so(tmp_path: Path) -> None:
    def change(sample: uio.Sample) -> uio.Sample:
        sample["txt"] = sample["txt"] + "!"
        return sample

    graph = damaged(tmp_path, UNDECODABLE).concat(max_seconds=5).map(change)
    batches, loader = run(graph)
    assert batches == []
    assert loader.stats().failures == 1
    with pytest.raises(uio.DataError, match=r"all of K0\+K1\+K2\+K3 is left out: a function after concat"):
        run(graph, failures="raise")


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"rate": 16_000}, "mixed_sample_rates"),
        ({"channels": 2}, "mixed_channels"),
    ],
)
def test_what_cannot_be_joined_is_a_failure_that_says_so(tmp_path: Path, odd: dict[str, int], reason: str) -> None:
    graph = uio.Pipeline(damaged(tmp_path, audio(1600, **odd)).stages[:-1]).decode_audio(channel=None)
    (batch,), loader = run(graph.concat(max_seconds=5))
    assert batch["key"] == "K0+K2+K3"
    assert loader.stats().skipped == {reason: 1}
    (batch,), loader = run(graph.mono().resample(8000).concat(max_seconds=5), failures="raise")
    assert batch["key"] == "K0+K1+K2+K3"


def test_too_short_duration_of_a_part_fails_that_part(items: list[dict[str, Any]]) -> None:
    items[3]["duration"] = 0.1
    (batch,), loader = run(uio.from_raw_list(items).decode_audio().concat(max_seconds=5))
    assert "R003" not in batch["key"]
    assert loader.stats().skipped == {"length_mismatch": 1}


def test_flat_map_behind_makes_several_of_a_joined_one(items: list[dict[str, Any]]) -> None:
    graph = uio.from_raw_list(items).decode_audio().concat(max_seconds=0.6).flat_map(lambda s: [s, s]).speed_perturb()
    batches, _ = run(graph, failures="raise")
    assert len(batches) == 10
    assert batches[0]["key"] == batches[1]["key"] == "R000+R001"
    assert len({b["wav"].shape for b in batches}) > 5  # draws of their own
