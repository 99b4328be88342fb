"""Targets of diarisation: who speaks in each frame, against a reference in fractions; where frames are; what is odd."""

from fractions import Fraction
from itertools import combinations, pairwise
from math import ceil
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import counted, run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline

RATE = 16_000
MS = Fraction(1, 1000)
Times = list[tuple[int, int, str]]  # start and end in ms, speaker
EVENTS = st.lists(st.tuples(st.integers(-200, 1200), st.integers(0, 500), st.sampled_from("abcd")), max_size=12)


def timeline(times: Times, known: list[tuple[int, int]] | None = None) -> Timeline:
    events = [Event(start / 1000, end / 1000, "", who) for start, end, who in times]
    return Timeline.of(events, None if known is None else [(start / 1000, end / 1000) for start, end in known])


def utterance(line: Timeline | None, samples: int = RATE, rate: int = RATE) -> dict[str, Any]:
    item = {"key": "u", "wav": torch.ones(1, samples) / 8, "sample_rate": rate}
    return item if line is None else {**item, "timeline": line}


def made(line: Timeline | None, graph: Any = None, samples: int = RATE, rate: int = RATE, **options: Any) -> Any:
    source = uio.from_iterable([utterance(line, samples, rate)])
    (one,), _ = run((graph(source) if graph else source).activity(**options), failures="raise")
    return one


def reference(times: Times, first: Fraction, shift: Fraction, count: int, by: str) -> np.ndarray:
    """Frame by frame, in fractions of seconds: by the centre, or by the share of what is covered."""
    there = [(s * MS, e * MS, who) for s, e, who in sorted(times, key=itemgetter(0)) if s < e]
    low, high = first - shift / 2, first + shift * (count - Fraction(1, 2))
    there = [(s, e, who) for s, e, who in there if e > low and s < high]
    names = list(dict.fromkeys(who for *_, who in there))
    out = np.zeros((count, 4))
    for frame in range(count):
        centre = first + frame * shift
        for s, e, who in there:
            if by == "centre" and s <= centre < e:
                out[frame, names.index(who)] = 1
        for who in names if by == "share" else ():
            begin, end = centre - shift / 2, centre + shift / 2
            marks = sorted({begin, end, *(t for s, e, _ in there for t in (s, e) if begin < t < end)})
            covered = sum(
                b - a for a, b in pairwise(marks) if any(s <= a and b <= e and one == who for s, e, one in there)
            )
            out[frame, names.index(who)] = covered / shift
    return out


GRIDS: dict[str, tuple[Any, Fraction, Fraction]] = {  # centre of the first frame, and the shift, in seconds
    "fbank": (lambda p: p.fbank(8), Fraction(125, 10_000), 10 * MS),
    "longer windows": (lambda p: p.fbank(8, frame_length=50.0, frame_shift=20.0), 25 * MS, 20 * MS),
    "log mel": (lambda p: p.log_mel_spectrogram(num_mel_bins=8), Fraction(0), 10 * MS),
    "stack of 7": (lambda p: p.fbank(8).stack(7, 6), Fraction(125, 10_000), 60 * MS),
    "stack of 8": (lambda p: p.fbank(8).stack(8, 8), Fraction(175, 10_000), 80 * MS),
    "two stacks": (lambda p: p.mfcc(num_ceps=13).stack(3, 2).stack(4, 3), Fraction(225, 10_000), 60 * MS),
}


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.sampled_from(sorted(GRIDS)), st.sampled_from(["centre", "share"]), st.integers(1, 9))
def test_frames_are_those_of_the_features(events: Any, name: str, by: str, subsampling: int) -> None:
    graph, first, shift = GRIDS[name]
    times = [(start, start + length, who) for start, length, who in events]
    one = made(timeline(times), graph, by=by, subsampling=subsampling)
    count = ceil(len(one["feat"]) / subsampling)
    first += shift * Fraction(subsampling - 1, 2)
    expected = reference(times, first, shift * subsampling, count, by)
    np.testing.assert_allclose(one["activity"], expected, atol=0 if by == "centre" else 1e-6)


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.integers(1, 100), st.integers(1, 20_000))
def test_without_features_frames_are_those_asked_for(events: Any, shift: int, samples: int) -> None:
    times = [(start, start + length, who) for start, length, who in events]
    one = made(timeline(times), samples=samples, shift=shift / 1000)
    count = ceil(Fraction(samples, RATE) / (shift * MS))
    expected = reference(times, Fraction(shift, 2) * MS, shift * MS, count, "centre")
    assert one["activity"].shape == (count, 4)
    np.testing.assert_array_equal(one["activity"], expected)


def test_ten_seconds_have_the_frames_of_known_models() -> None:
    """pyannote's 3.0 has 589 of 270 samples and a field of 991; Sortformer one for eight frames of 10 ms."""
    line = timeline([(0, 5000, "a")])
    pyannote = made(line, lambda p: p.fbank(8, 991 / 16, 270 / 16), samples=10 * RATE)["activity"]
    centres = (991 / 2 + 270 * np.arange(589)) / RATE
    assert np.array_equal(pyannote[:, 0], centres < 5)
    one = made(line, lambda p: p.fbank(80), samples=10 * RATE, subsampling=8)
    assert (len(one["feat"]), len(one["activity"])) == (998, 125)


def _ones(word: str) -> list[int]:
    return [1]


AFTER: dict[str, tuple[Any, float, float]] = {  # what comes before, the centre of the first frame, and the shift (s)
    "crop, stack": (lambda p, to: p.fbank(8).random_crop(max_frames=120).stack(4, 4), 0.0175, 0.04),
    "cache, stack": (lambda p, to: p.fbank(8).random_crop(max_frames=120).cache(to).stack(4, 4), 0.0175, 0.04),
    "concat, crop, stack": (
        lambda p, to: p.fbank(8).stack(4, 4).concat(max_seconds=9).random_crop(max_frames=60).stack(2, 2),
        0.0375, 0.08,
    ),
    "mixture": (lambda p, to: p.mixture((1, 1), pause=0.5).fbank(8).stack(3, 2), 0.0125, 0.02),
    "trim, stack": (lambda p, to: p.fbank(8).spec_trim(9).stack(3, 3), 0.0125, 0.03),
    "align": (lambda p, to: p.align(_ones, main="a"), 0.04, 0.08),
    "align, crop, delay": (lambda p, to: p.align(_ones, main="a").random_crop(max_frames=15).delay([1]), 0.04, 0.08),
    "concat, align, stack": (lambda p, to: p.concat(max_seconds=9).align(_ones).stack(1, 2), 0.04, 0.16),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER)
def test_the_grid_is_that_of_all_stages_before(name: str, tmp_path: Path) -> None:
    """Also of joined parts, of what a cache has, and where a crop moves the timeline before frames are joined."""
    graph, first, shift = AFTER[name]
    line = timeline([(500, 1000, "a"), (1400, 1600, "a")])
    items = [utterance(line, 2 * RATE) | {"key": key, "speaker": "a", "txt": key} for key in "abc"]
    for _ in range(2):  # a cache has it then
        samples, _ = run(graph(uio.from_iterable(items), tmp_path).activity(1), failures="raise")
        assert samples
        for one in samples:
            centres = (first + shift * np.arange(len(one["feat"]))).round(9)
            spans = [(round(event.start, 9), round(event.end, 9)) for event in one["timeline"].events]
            expected = [any(start <= at < end for start, end in spans) for at in centres]
            assert one["activity"][:, 0].bool().tolist() == expected
            assert any(expected)


def test_frames_are_a_whole_number_of_samples_apart() -> None:
    """At 11,025 Hz, Kaldi's shift is 110 samples, not 110.25."""
    items = [utterance(timeline([(5000, 5500, "a")]), 110_250, 11_025)]
    (one,), _ = run(uio.from_iterable(items).fbank(8).activity(1), failures="raise")
    centres = (275 / 2 + 110 * np.arange(len(one["feat"]))) / 11_025
    assert np.array_equal(one["activity"][:, 0], (centres >= 5) & (centres < 5.5))


SPEAKING = st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None)
@given(SPEAKING, st.integers(1, 3))
def test_classes_are_those_of_pyannote(speaking: list[list[bool]], most: int) -> None:
    """Its mapping has a row for each set of up to so many speakers, and the class is the argmax of the product."""
    mapping = []
    for size in range(most + 1):
        for one in combinations(range(3), size):
            mapping.append([float(speaker in one) for speaker in range(3)])
    times = [(20 * t, 20 * t + 20, "abc"[s]) for t, row in enumerate(speaking) for s in range(3) if row[s]]
    one = made(timeline(times), samples=len(speaking) * 320, shift=0.02, speakers=["a", "b", "c"], powerset=most)
    multilabel = torch.tensor(speaking, dtype=torch.float32)
    assert torch.equal(one["activity"], multilabel)
    classes = np.argmax(multilabel.numpy() @ np.array(mapping).T, axis=1)
    assert one["powerset"].tolist() == classes.tolist()
    assert one["powerset"].dtype == torch.int64


def test_seven_classes_of_three_speakers() -> None:
    times = [(0, 10, "a"), (20, 30, "b"), (40, 50, "c"), (60, 70, "a"), (60, 70, "b"), (80, 90, "a"), (80, 90, "c")]
    times += [(100, 110, "b"), (100, 110, "c"), (120, 130, "a"), (120, 130, "b"), (120, 130, "c")]
    one = made(timeline(times), samples=2080, shift=0.01, speakers=3, powerset=2)
    assert one["powerset"][::2].tolist() == [1, 2, 3, 4, 5, 6, 4]
    assert set(one["powerset"][1::2].tolist()) == {0}


@pytest.mark.parametrize("by", ["centre", "share"])
def test_what_is_not_annotated_is_marked(by: str) -> None:
    line = timeline([(0, 1000, "a")], [(600, 900), (100, 305)])
    known = made(line, shift=0.01, by=by)["known"]
    assert [int(i) for i in known.diff().nonzero()] == [9, 29, 59, 89]
    assert known.sum() == 20 + 30
    assert made(timeline([]), shift=0.01)["known"].all()
    assert not made(timeline([(0, 1000, "a")], []), shift=0.01)["known"].any()


def test_columns_are_ordered_by_first_start_or_as_listed() -> None:
    line = timeline([(400, 500, "a"), (100, 200, "b"), (100, 300, "c"), (-90, -5, "d")])
    assert made(line, shift=0.1)["activity"].argmax(0).tolist() == [1, 1, 4, 0]
    named = made(line, shift=0.1, speakers=["a", "x", "c", "b"])["activity"]
    assert named.argmax(0).tolist() == [4, 0, 1, 1]
    assert not named[:, 1].any()


def test_more_speakers_fail_or_are_dropped_and_noted() -> None:
    lines = [timeline([(100 * i, 100 * i + 90, who) for i, who in enumerate(names)]) for names in ("abc", "ba", "")]
    items = [{**utterance(line), "key": f"u{i}"} for i, line in enumerate(lines)]
    source = uio.from_iterable(items)
    kept, stats = counted(source.activity(2, shift=0.1), failures=uio.Failures(max_setting_share=1))
    assert [one["key"] for one in kept] == ["u1", "u2"]
    assert stats.skipped == {"too_many_speakers": 1}
    with pytest.raises(
        uio.DataError, match=r"has 3 speakers, among them 'c', but activity has 2 columns: raise speakers"
    ):
        run(source.activity(2, shift=0.1), failures="raise")
    kept, stats = counted(source.activity(2, shift=0.1, extra="drop"))
    assert [one["activity"].sum().item() for one in kept] == [2, 2, 0]
    assert (stats.skipped, stats.failures, stats.utterances) == ({"dropped_speakers": 1}, 0, 3)
    (_, kept, _), stats = counted(source.activity(["a"], shift=0.1, extra="drop"))
    assert kept["activity"][:, 0].nonzero().flatten().tolist() == [1]
    assert stats.skipped == {"dropped_speakers": 2}


def test_batches_have_it_with_masks() -> None:
    items = [{**utterance(timeline([(0, 50 * i, "a")], [(0, 300)]), 4000 + 800 * i), "key": f"u{i}"} for i in range(6)]
    graph = uio.from_iterable(items).fbank(8).activity(2, powerset=2, subsampling=2).bucket_batch([40], max_frames=150)
    batches, _ = run(graph.pad(keep=["activity", "known", "powerset"], mask=True, order="kept"), failures="raise")
    assert len(batches) > 1
    for batch in batches:
        lengths = (batch["feats_lengths"] + 1) // 2
        assert torch.equal(batch["activity_lengths"], lengths)
        assert batch["activity"].shape == (len(lengths), lengths.max(), 2)
        assert torch.equal(batch["activity_mask"].sum(1), lengths)
        assert (batch["known"] <= batch["activity_mask"]).all(), "0 in padding"
        assert (batch["powerset"] == -1).sum() == (~batch["activity_mask"]).sum()
        assert torch.equal(
            batch["powerset"][batch["activity_mask"]], batch["activity"][batch["activity_mask"]][:, 0].long()
        )


def test_cached_features_keep_their_grid(tmp_path: Path) -> None:
    line = timeline([(100, 600, "a")])
    plain = made(line, lambda p: p.fbank(8).stack(7, 6))["activity"]
    for fields in (None, ["feat"]):
        for _ in range(2):
            assert torch.equal(made(line, lambda p: p.fbank(8).stack(7, 6).cache(tmp_path, fields))["activity"], plain)  # noqa: B023


# What is odd


def test_an_empty_timeline_is_silence() -> None:
    for times in ([], [(300, 300, "a"), (500, 400, "b")], [(-50, 0, "a"), (5000, 6000, "b")]):
        for by in ("centre", "share"):
            one = made(timeline(times), shift=0.1, by=by, powerset=2)
            assert one["activity"].shape == (10, 4)
            assert not one["activity"].any()
            assert not one["powerset"].any()


@pytest.mark.parametrize("bad", [(float("nan"), 1.0), (0.0, float("inf"))])
def test_times_that_are_no_numbers_are_counted(bad: tuple[float, float]) -> None:
    items = [utterance(Timeline.of([Event(*bad, "", "a")])), {**utterance(timeline([(0, 9, "a")])), "key": "sound"}]
    kept, stats = counted(uio.from_iterable(items).activity(shift=0.1))
    assert [one["key"] for one in kept] == ["sound"]
    assert stats.skipped == {"bad_timeline": 1}


def test_an_utterance_without_timeline_is_counted() -> None:
    items = [{**utterance(timeline([])), "key": "sound"}, utterance(None)]
    _, stats = counted(uio.from_iterable(items).activity(shift=0.1), failures=uio.Failures(max_setting_share=1))
    assert stats.skipped == {"missing_field": 1}


def test_the_grid_must_be_known_and_told_once() -> None:
    line = timeline([])
    with pytest.raises(uio.PipelineError, match="leave out shift"):
        made(line, lambda p: p.fbank(8), shift=0.01)
    features = uio.from_iterable([{"key": "u", "feat": torch.zeros(30, 4), "timeline": timeline([(95, 200, "a")])}])
    with pytest.raises(uio.PipelineError, match=r"give shift=0\.01"):
        run(features.activity())
    (one,), _ = run(features.activity(shift=0.01, subsampling=3), failures="raise")
    assert one["activity"][:, 0].nonzero().flatten().tolist() == [3, 4, 5, 6]


def test_what_changes_the_length_comes_before() -> None:
    audio = uio.from_iterable([utterance(timeline([]))])
    for late in (
        lambda: audio.fbank(8).activity().stack(),
        lambda: audio.fbank(8).activity().spec_trim(),
        lambda: audio.activity(shift=0.1).speed_perturb(),
        lambda: audio.activity(shift=0.1).random_crop(max_seconds=0.5),
    ):
        with pytest.raises(
            uio.PipelineError, match="changes the length, which frames of activity would not follow; put"
        ):
            late()
    (batch,), _ = run(audio.activity(shift=0.1).fbank(8).spec_aug().batch(1).pad(keep=["activity"]), failures="raise")
    assert batch["activity"].shape == (1, 10, 4)


@pytest.mark.parametrize("by", ["centre", "share"])
def test_a_crop_takes_its_frames_along(by: str) -> None:
    line = timeline([(300, 1700, "a"), (1000, 1200, "b"), (2500, 2600, "c")])
    whole = made(line, lambda p: p.fbank(8), samples=3 * RATE, by=by)
    cut = made(line, lambda p: p.fbank(8).random_crop(max_frames=50), samples=3 * RATE, by=by)
    rows = [whole["activity"][first : first + 50] for first in range(len(whole["feat"]) - 49)]
    spoken = lambda rows: sorted(tuple(column) for column in rows.T.tolist() if any(column))  # noqa: E731
    assert spoken(cut["activity"]) in [spoken(one) for one in rows]
