"""Rows of tokens: nothing lost, nothing twice, nothing above the budget, and every boundary where it belongs."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from corpus import Corpus
from hypothesis import given, settings
from hypothesis import strategies as st
from tones import Tones

import uio_pipes as uio
from uio_pipes.run.planning import plan_lanes


def tokens_of(number: int, count: int) -> list[int]:
    return [1000 * number + i for i in range(1, count + 1)]


def texts(counts: list[int]) -> uio.Pipeline:
    """Utterances of so many tokens, each with tokens of its own."""
    return uio.from_iterable([{"key": f"U{i}", "label": tokens_of(i, count)} for i, count in enumerate(counts)])


def parts_of(batch: dict[str, Any]) -> list[list[int]]:
    """The tokens between the boundaries, without those of padding; and whether all other fields agree with them."""
    tokens, segments = batch["tokens"].flatten().tolist(), batch["segment_ids"].flatten().tolist()
    positions, labels = batch["position_ids"].flatten().tolist(), batch["labels"].flatten().tolist()
    bounds, width = batch["cu_seqlens"].tolist(), batch["tokens"].shape[1]
    assert batch["cu_seqlens"].dtype == torch.int32
    assert (bounds[0], bounds[-1], bounds) == (0, len(tokens), sorted(set(bounds)))
    assert {row * width for row in range(len(batch["tokens"]))} <= set(bounds), "no segment goes over the end of a row"
    assert batch["max_seqlen"] == max(int(one) for one in np.diff(bounds))
    parts, number = [], 0
    for first, end in pairwise(bounds):
        number = 1 if first % width == 0 else number + 1
        if segments[first] == 0:
            assert set(segments[first:end]) == {0} == set(tokens[first:end]) == set(positions[first:end])
            assert set(labels[first:end]) == {-100}
            assert end % width == 0, "padding is at the end of a row"
            continue
        assert set(segments[first:end]) == {number}
        assert positions[first:end] == list(range(end - first))
        assert labels[first:end] == tokens[first:end]
        parts.append(tokens[first:end])
    return parts


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.integers(40, 90),
    st.integers(1, 3),
    st.integers(1, 30),
)
def test_each_utterance_is_once_and_whole_in_a_row(counts: list[int], most: int, rows: int, window: int) -> None:
    found = []
    for batch in uio.Loader(texts(counts).pack(most, rows=rows, window=window)):
        assert batch["tokens"].shape[1] == most
        assert 1 <= len(batch["tokens"]) <= rows
        parts = parts_of(batch)
        numbers = [part[0] // 1000 for part in parts]
        assert batch["keys"] == [f"U{number}" for number in numbers]
        assert parts == [tokens_of(number, counts[number]) for number in numbers]
        found += numbers
    assert sorted(found) == list(range(len(counts)))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=40),
    st.integers(20, 60),
    st.integers(1, 12),
    st.sampled_from([None, "drop", "split", "alone"]),
)
def test_what_is_too_long_is_counted(counts: list[int], most: int, window: int, overflow: str | None) -> None:
    if overflow in (None, "drop") and min(counts) > most:
        counts = [*counts, 1]
    graph = texts(counts).shuffle(5).pack(most, rows=2, window=window, overflow=overflow)
    loader = uio.Loader(graph, failures=uio.Failures(max_failures=1000, max_consecutive_failures=1000))
    batches = list(loader)
    parts = [part for batch in batches for part in parts_of(batch)]
    long = [count for count in counts if count > most]
    if overflow == "split":
        assert sorted(token for part in parts for token in part) == sorted(
            token for i, count in enumerate(counts) for token in tokens_of(i, count)
        )
        assert max(map(len, parts)) <= most
    elif overflow == "alone":
        assert sorted(map(len, parts)) == sorted(counts)
        assert sorted(batch["tokens"].shape[1] for batch in batches if batch["tokens"].shape[1] > most) == sorted(long)
    else:
        assert sorted(map(len, parts)) == sorted(count for count in counts if count <= most)
    reason = {None: "over_budget", "drop": "overflow"}.get(overflow)
    assert loader.stats().skipped == ({reason: len(long)} if reason and long else {})


def speech(count: int, seed: int = 1) -> list[int]:
    """Numbers of tokens as speech has them: 1 to 20 s, 12.5 for the audio and some for the text in each second."""
    draw = random.Random(seed)
    seconds = [min(20.0, max(1.0, draw.lognormvariate(1.6, 0.6))) for _ in range(count)]
    return [round(12.5 * one) + round(3.5 * one) + 3 for one in seconds]


@pytest.mark.parametrize(("window", "least"), [(2_000, 0.98), (20_000, 0.99)])
def test_rows_are_full(window: int, least: float) -> None:
    (plan,) = plan_lanes(texts(speech(25_000)).pack(2_048, window=window), 1, 0, 0)
    assert sum(plan.counts) == 25_000
    full = plan.frames[:-1]
    assert sum(full) / (2_048 * len(full)) >= least


def _frames(lengths: uio.Lengths) -> int:
    return lengths.frames // 4 + lengths.tokens


def test_audio_has_places_before_the_tokens_and_comes_as_one_tensor() -> None:
    graph = uio.from_iterable(Tones()).take(12).map(_labelled).fbank(8)
    samples = {sample["key"]: sample for sample in uio.Loader(graph)}
    seen = []
    for batch in uio.Loader(graph.pack(300, rows=2, window=5, length=_frames, pad=7, keep=["codes", "snr", "txt"])):
        feats, lengths, places = batch["feats"], batch["feats_lengths"].tolist(), batch["feats_places"].tolist()
        assert len(feats) == sum(lengths)
        tokens, labels = batch["tokens"].flatten(), batch["labels"].flatten()
        first = codes = 0
        for i, key in enumerate(batch["keys"]):
            sample, (place, count) = samples[key], places[i]
            assert torch.equal(feats[first : first + lengths[i]], sample["feat"])
            assert count == lengths[i] // 4
            assert set(tokens[place : place + count].tolist()) <= {7}
            assert set(labels[place : place + count].tolist()) <= {-100}
            after = slice(place + count, place + count + len(sample["label"]))
            assert tokens[after].tolist() == sample["label"]
            assert place in batch["cu_seqlens"].tolist()
            rows = int(batch["codes_lengths"][i])
            assert batch["codes"][codes : codes + rows].tolist() == sample["codes"].tolist()
            assert (batch["snr"][i], batch["txt"][i]) == (sample["snr"], sample["txt"])
            first, codes = first + lengths[i], codes + rows
        seen += batch["keys"]
    assert sorted(seen) == sorted(samples)


def _labelled(sample: uio.Sample) -> uio.Sample:
    number = int("".join(filter(str.isdigit, sample["key"])))
    sample["label"] = tokens_of(number, 3 + number % 5)
    sample["codes"], sample["snr"], sample["txt"] = np.full((2 + number % 3, 4), number), 0.5 * number, str(number)
    return sample


def test_labels_of_its_own_and_what_they_must_be() -> None:
    graph = uio.from_iterable([{"key": "a", "label": [1, 2, 3], "labels": [-100, 2, 3]}])
    (batch,) = uio.Loader(graph.pack(5))
    assert batch["labels"].tolist() == [[-100, 2, 3, -100, -100]]
    graph = uio.from_iterable([{"key": "a", "label": [1, 2, 3], "labels": [2, 3]}, {"key": "b", "label": [1]}])
    loader = uio.Loader(graph.pack(5))
    (batch,) = loader
    assert batch["keys"] == ["b"]
    assert loader.stats().skipped == {"length_mismatch": 1}


def test_the_layout_of_touchnet() -> None:
    (batch,) = uio.Loader(texts([3, 2]).pack(8, layout="touchnet", pad=9, ignore=-1))
    assert list(batch) == ["keys", "input_ids", "labels", "position_ids", "sentence_lens"]
    assert batch["input_ids"].tolist() == [[1, 2, 3, 1001, 1002, 9, 9, 9]]
    assert batch["labels"].tolist() == [[1, 2, 3, 1001, 1002, -1, -1, -1]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 0, 0]]
    assert batch["sentence_lens"].tolist() == [[3, 3, 3, 2, 2, 0, 0, 0]]


def test_audio_cannot_be_split(caplog: pytest.LogCaptureFixture) -> None:
    graph = uio.from_iterable(Tones()).take(12).map(_labelled).fbank(8)
    loader = uio.Loader(graph.pack(7, length=_frames, overflow="split"))
    fit = [key for batch in loader for key in batch["keys"]]
    assert loader.stats().skipped == {"over_budget": 12 - len(fit)}
    assert 0 < len(fit) < 12
    assert "only tokens can be split" in caplog.text


def _seconds(lengths: uio.Lengths) -> int:
    return int(lengths.seconds * 100) + lengths.tokens


def test_what_features_do_not_tell_is_as_planned() -> None:
    graph = uio.from_iterable(Tones()).take(6).map(_labelled).fbank(8)
    samples = {sample["key"]: sample for sample in uio.Loader(uio.from_iterable(Tones()).take(6))}
    for batch in uio.Loader(graph.pack(300, length=_seconds)):
        for key, (_, count) in zip(batch["keys"], batch["feats_places"].tolist(), strict=True):
            assert count == int(samples[key]["wav"].shape[-1] / samples[key]["sample_rate"] * 100)


def test_statistics_and_simulation_count_places() -> None:
    graph = texts([30] * 5).pack(40, rows=2)
    loader = uio.Loader(graph)
    assert [tuple(batch["tokens"].shape) for batch in loader] == [(2, 40), (2, 40), (1, 40)]
    stats = loader.stats()
    assert (stats.tokens, stats.padded_tokens, stats.padding_ratio) == (150, 200, 0.25)
    assert (stats.frames, stats.padded, stats.hours) == (0, 0, 0)
    (plan,) = plan_lanes(graph, 1, 0, 0)
    assert [*plan.padded] == [80, 80, 40]


def test_audio_that_is_not_decoded_is_left_out(plain_corpus: Corpus) -> None:
    for batch in uio.Loader(uio.from_shard_list(plain_corpus.list).tokenize(_letters).pack(96)):
        assert "pcm" not in batch
        assert len(parts_of(batch)) == len(batch["keys"])


@pytest.mark.parametrize("label", [["a"], 3, [1, None], [[1, 2]], [0.5]])
def test_labels_that_are_none_are_counted(label: Any) -> None:
    graph = uio.from_iterable([{"key": "a", "label": [1], "labels": label}, {"key": "b", "label": [1]}])
    loader = uio.Loader(graph.pack(4))
    (batch,) = loader
    assert (batch["keys"], loader.stats().skipped) == (["b"], {"bad_label": 1})


def test_a_short_one_does_not_wait_for_all_that_are_too_long() -> None:
    batches = list(uio.Loader(texts([2, *[9] * 30]).pack(4, window=5, overflow="alone")))
    assert batches[0]["keys"] == ["U0"]
    assert [batch["keys"] for batch in batches[1:]] == [[f"U{i}"] for i in range(1, 31)]


def test_audio_of_another_rate_and_features_of_another_width() -> None:
    tones = [
        {"key": str(i), "wav": np.zeros(800, np.float32), "sample_rate": r} for i, r in enumerate([8000, 8000, 16000])
    ]
    loader = uio.Loader(uio.from_iterable([tone | {"label": [1]} for tone in tones]).pack(9))
    (batch,) = loader
    assert (sorted(batch["keys"]), loader.stats().skipped) == (["0", "1"], {"mixed_rates": 1})
    assert batch["pcm_lengths"].tolist() == [800, 800]
    widths = [{"key": str(i), "feat": np.zeros((9, 4 + i), np.float32), "label": [1]} for i in range(2)]
    with pytest.raises(uio.PipelineError, match="features of 4 and 5 bins cannot share a batch"):
        list(uio.Loader(uio.from_iterable(widths).pack(9)))
    stereo = {"key": "a", "wav": np.zeros((2, 800), np.float32), "sample_rate": 8000, "label": [1]}
    with pytest.raises(uio.PipelineError, match=r"a has 2 channels; choose one, or put \.mono\(\) before"):
        list(uio.Loader(uio.from_iterable([stereo]).pack(9)))
    with pytest.raises(uio.PipelineError, match="a has audio without features, but others in its batch have features"):
        list(uio.Loader(uio.from_iterable([stereo, widths[0]]).pack(9)))
    with pytest.raises(uio.PipelineError, match="keep must not name fields"):
        texts([1]).pack(9, keep=["tokens"])


def test_streams_come_one_after_the_other() -> None:
    graph = uio.from_iterable(Tones()).take(6).map(_labelled).map(_prompted).fbank(8, of="prompt")
    graph = graph.tokenize(_letters, of="question")
    samples = {sample["key"]: sample for sample in uio.Loader(graph)}
    for batch in uio.Loader(graph.pack(20, length="tokens")):
        rows = [samples[key]["prompt_feat"] for key in batch["keys"]]
        assert torch.equal(batch["prompt_feats"], torch.cat(rows))
        assert batch["prompt_feats_lengths"].tolist() == [len(row) for row in rows]
        assert batch["question_target"].tolist() == [x for key in batch["keys"] for x in _letters(f"q{key}")]


def _prompted(sample: uio.Sample) -> uio.Sample:
    sample["prompt"], sample["prompt_sample_rate"] = sample["wav"], sample["sample_rate"]
    sample["question"] = f"q{sample['key']}"
    return sample


def _letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]
