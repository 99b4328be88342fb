"""Filters: inclusive bounds, WeNet's defaults, by the plan alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_bad import Given, audio, code_points, keys, raw_items, run, shard

import uio_pipes as uio
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.stages.utterances.filter import Filter


def left(lengths: list[int], labels: list[int] | None = None, **bounds: Any) -> tuple[list[int], dict[str, int]]:
    """Lengths of those that stay, and why the others do not. ``labels``: number of labels of each."""
    ledger = Ledger()
    lane = Lane(ledger)
    graph: Any = Given(lengths, lane)
    if labels is not None:
        given = graph.next

        def labelled() -> Any:
            sample = given()
            sample.fields["label"] = [1] * labels[int(sample["key"])]
            return sample

        graph.next = labelled
    stage = Filter(**bounds)
    node = stage.build(graph, lane, Site("filter", 0))
    node.reset(None)
    return [len(sample["feat"]) for sample in node], ledger.skipped


def test_bounds_are_inclusive() -> None:
    assert left([9, 10, 20, 21], min_frames=10, max_frames=20) == ([10, 20], {"too_short": 1, "too_long": 1})


def test_wenet_s_defaults_for_frames() -> None:
    kept, skipped = left([9, 10, 10_240, 10_241])
    assert kept == [10, 10_240]
    assert skipped == {"too_short": 1, "too_long": 1}


def test_wenet_s_defaults_for_labels() -> None:
    kept, skipped = left([1000] * 4, labels=[0, 1, 200, 201])
    assert len(kept) == 2
    assert skipped == {"too_few_tokens": 1, "too_many_tokens": 1}


def test_wenet_s_defaults_for_the_ratio() -> None:
    assert left([2000, 2001, 10, 10], labels=[1, 1, 10, 11]) == ([2000, 10], {"bad_output_input_ratio": 2})


def test_ratio_bounds_are_inclusive() -> None:
    bounds = {"min_output_input_ratio": 0.1, "max_output_input_ratio": 0.5}
    assert left([100] * 4, labels=[9, 10, 50, 51], **bounds)[0] == [100, 100]


@pytest.mark.parametrize("samples", [799, 800, 1600, 1601])
def test_frames_are_seconds_times_100_where_no_features_are(tmp_path: Path, samples: int) -> None:
    path = shard(tmp_path / "x.tar", [("a.txt", b"t"), ("a.wav", audio(samples))])
    batches, _ = run(uio.from_shard_list(path).decode_audio().filter(min_frames=10, max_frames=20))
    assert len(batches) == (800 <= samples <= 1600)


def test_resampling_before_does_not_change_the_frames(tmp_path: Path) -> None:
    path = shard(tmp_path / "x.tar", [("a.txt", b"t"), ("a.wav", audio(1600))])
    graph = uio.from_shard_list(path).decode_audio().resample(16_000)
    assert len(run(graph.filter(min_frames=20, max_frames=20))[0]) == 1


def test_feature_frames_count_where_features_are(tmp_path: Path) -> None:
    path = shard(tmp_path / "x.tar", [("a.txt", b"t"), ("a.wav", audio(1600))])
    graph = uio.from_shard_list(path).decode_audio().fbank(20)
    assert len(run(graph.filter(min_frames=18, max_frames=18))[0]) == 1


def test_labels_are_not_looked_at_where_there_are_none(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio()
    assert len(run(graph.filter(token_min_length=5))[0]) == 3
    assert len(run(graph.tokenize(lambda t: [1]).filter(token_min_length=5))[0]) == 0


# What is left out costs nothing


def test_filtering_on_labels_decodes_nothing(tmp_path: Path) -> None:
    """The audio has a sound header and damaged content: decoding it would fail, and be counted."""
    damaged = bytearray(audio(4000, form="FLAC"))
    damaged[300:-300] = bytes(len(damaged) - 600)
    parts = []
    for i in range(4):
        parts += [(f"K{i}.txt", b"x" * i), (f"K{i}.flac", audio(4000, form="FLAC") if i == 2 else bytes(damaged))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().fbank(20).tokenize(code_points)
    kept = graph.filter(min_frames=1, token_min_length=2, token_max_length=2)
    batches, loader = run(kept.batch(4).pad())
    assert keys(batches) == ["K2"]
    assert loader.stats().skipped == {"too_few_tokens": 2, "too_many_tokens": 1}
    assert loader.stats().failures == 0
    batches, loader = run(graph.batch(4).pad())
    assert loader.stats().failures == 3, "the damage was none"


def test_a_function_that_looks_at_text_decodes_nothing(tmp_path: Path) -> None:
    items = [{"key": k, "wav": "/nowhere.wav", "txt": k} for k in "abc"]
    batches, loader = run(uio.from_raw_list(items).decode_audio().filter(lambda s: s["txt"] == "d"))
    assert (batches, loader.stats().skipped) == ([], {"filter": 3})


# Functions


@pytest.mark.parametrize("truth", [True, 1, "yes", np.bool_(True)])
def test_any_true_value_keeps(tmp_path: Path, truth: Any) -> None:
    assert len(run(uio.from_raw_list(raw_items(tmp_path, 2)).filter(lambda s: truth))[0]) == 2


@pytest.mark.parametrize("untruth", [False, None, 0, "", np.bool_(False)])
def test_any_false_value_leaves_out_under_filter(tmp_path: Path, untruth: Any) -> None:
    batches, loader = run(uio.from_raw_list(raw_items(tmp_path, 2)).filter(lambda s: untruth))
    assert (batches, loader.stats().skipped, loader.stats().failures) == ([], {"filter": 2}, 0)


def test_a_filter_on_length_without_length_says_what_is_missing() -> None:
    items = [{"key": "a", "feat": "a.npy", "txt": "t"}]
    graph = uio.from_raw_list(items).map(lambda s: {"key": s["key"], "txt": s["txt"]})
    with pytest.raises(uio.PipelineError, match="no length"):
        run(graph.filter(min_frames=1))


def test_bounds_on_frames_need_no_labels_and_no_audio_behind_a_map_that_may_write_anything(tmp_path: Path) -> None:
    touched: list[str] = []

    def mapped(sample: Any) -> Any:
        touched.append(sample["key"])
        return sample

    listed = uio.from_raw_list(raw_items(tmp_path, 3, samples=8000)).decode_audio().map(mapped, length="same")
    assert len(run(listed.filter())[0]) == 3
    touched.clear()
    assert run(listed.filter(min_frames=120))[1].stats().skipped == {"too_short": 3}
    assert not touched


def test_labels_behind_such_a_map_are_counted_where_a_tokenizer_stands_before(tmp_path: Path) -> None:
    listed = uio.from_raw_list(raw_items(tmp_path, 3, samples=8000)).decode_audio().tokenize(code_points)
    mapped = listed.map(lambda sample: {**sample, "label": []}, length="same")
    assert run(mapped.filter())[1].stats().skipped == {"too_few_tokens": 3}


# Shares


def chosen(graph: uio.Pipeline, **options: Any) -> list[str]:
    return [sample["key"] for sample in uio.Loader(graph, **options)]


def test_a_share_is_chosen_by_the_keys_alone() -> None:
    items = [{"key": f"utterance-{i}", "txt": "t"} for i in range(20_000)]
    everything = uio.from_iterable(items).sharding_filter()
    tenth = chosen(everything.filter(share=0.1))
    assert abs(len(tenth) / len(items) - 0.1) < 0.01
    assert set(chosen(everything.filter(share=0.05))) < set(tenth)
    rest = chosen(everything.filter(share=(0.1, 1)))
    assert sorted(tenth + rest) == sorted(item["key"] for item in items)
    other = set(chosen(everything.filter(share=0.1, salt="a")))
    assert abs(len(other & set(tenth)) / len(items) - 0.01) < 0.005
    assert sorted(chosen(everything.filter(share=0.1), lanes=4, seed=9)) == sorted(tenth)
    backwards = uio.from_iterable([{"key": item["key"], "txt": "other"} for item in reversed(items)])
    assert chosen(backwards.filter(share=0.1)) == tenth[::-1]


def test_a_share_stays_the_same_for_ever() -> None:
    items = [{"key": f"U{i}", "txt": "t"} for i in range(30)]
    assert chosen(uio.from_iterable(items).filter(share=0.2, salt="held out")) == ["U10", "U11", "U17", "U23", "U29"]
    loader = uio.Loader(uio.from_iterable(items).filter(share=0.2))
    list(loader)
    assert loader.stats().skipped["other_share"] + loader.stats().utterances == 30
