"""Overlapped speech: the sum of its parts at the times of its timeline, everybody once, and the right statistics."""

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import RATE, audio, counted, raw_items, run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline

Items = list[dict[str, Any]]


def spoken(count: int, speakers: int = 4, rate: int = RATE) -> Items:
    """Utterances of 0.1 to 0.6 s; their samples, and sums of up to eight of them, are exact in float32."""
    rng = np.random.default_rng(count)
    items = []
    for i in range(count):
        wav = torch.from_numpy(rng.integers(-4000, 4000, (1, int(rng.integers(800, 4800)))) / 32768).float()
        who = f"S{rng.integers(speakers)}"
        items.append({"key": f"U{i:03d}", "wav": wav, "sample_rate": rate, "speaker": who, "txt": f"text {i}"})
    return items


ITEMS = spoken(30)
BY_KEY = {item["key"]: item for item in ITEMS}
COUNTS = st.tuples(st.integers(1, 4), st.integers(0, 2)).map(lambda n: (n[0], n[0] + n[1]))
SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda n: tuple(sorted(n)))
MIXTURES = st.fixed_dictionaries({"speakers": COUNTS, "utterances": COUNTS, "window": st.integers(6, 40)}).flatmap(
    lambda kw: st.builds(dict, st.just(kw), pause=st.floats(0.01, 3)) | st.builds(dict, st.just(kw), overlap=SHARES)
)


def frames_spoken(timeline: Timeline, least: int = 1) -> int:
    """How many samples at least so many speakers speak."""
    total = round(max(event.end for event in timeline.events) * RATE)
    count = np.zeros(total, int)
    for event in timeline.events:
        count[round(event.start * RATE) : round(event.end * RATE)] += 1
    return int((count >= least).sum())


@settings(max_examples=20, deadline=None)
@given(MIXTURES, st.integers(0, 9))
def test_it_is_the_sum_of_its_parts_at_the_times_of_its_timeline(options: dict[str, Any], seed: int) -> None:
    plans: dict[str, int] = {}

    def look(sample: uio.Sample) -> bool:
        plans[sample.key] = sample.plan.samples
        return True

    graph = uio.from_iterable(ITEMS).shuffle(20).mixture(**options).filter(look)
    made, stats = counted(graph, seed=seed)
    parts = [key for one in made for key in one["key"].split("+")]
    assert len(parts) == len(set(parts)) == len(ITEMS) - stats.skipped.get("too_few_speakers", 0)
    for one in made:
        keys, events = one["key"].split("+"), {event.text: event for event in one["timeline"].events}
        expected = torch.zeros(1, one["wav"].shape[1])
        names = one["timeline"].speakers
        for key in keys:
            item, event = BY_KEY[key], events[BY_KEY[key]["txt"]]
            first = round(event.start * RATE)
            assert (event.start, event.speaker) == (first / RATE, item["speaker"])
            assert round(event.end * RATE, 6) == first + item["wav"].shape[1]
            expected[:, first : first + item["wav"].shape[1]] += item["wav"]
        assert torch.equal(one["wav"], expected)
        assert plans[one["key"]] == one["wav"].shape[1] == round(max(e.end for e in events.values()) * RATE)
        fewest, most = options["speakers"]
        assert fewest <= len(names) <= most
        for name in names:
            own = [event for event in one["timeline"].events if event.speaker == name]
            assert len(own) <= options["utterances"][1]
            assert all(a.end <= b.start + 1e-9 for a, b in pairwise(own)), "nobody overlaps with themselves"


def test_the_shorter_the_pauses_the_more_overlap() -> None:
    """As of EEND's recipe with the number of speakers and of utterances fixed."""
    ratios = []
    for pause in (0.02, 0.5, 2.0, 8.0):
        graph = uio.from_iterable(spoken(150)).mixture((3, 3), pause=pause, utterances=(5, 5))
        timelines = [one["timeline"] for one in run(graph)[0]]
        ratios.append(sum(frames_spoken(t, 2) for t in timelines) / sum(frames_spoken(t) for t in timelines))
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 0.6
    assert ratios[-1] < 0.1


def test_pauses_are_exponential() -> None:
    graph = uio.from_iterable(spoken(800)).mixture((1, 1), pause=0.5, utterances=(8, 8))
    pauses: list[float] = []
    for one in run(graph)[0]:
        ends = [0.0, *(event.end for event in one["timeline"].events)]
        pauses += [event.start - end for event, end in zip(one["timeline"].events, ends, strict=False)]
    pauses.sort()
    assert abs(np.mean(pauses) - 0.5) < 0.05
    assert abs(np.std(pauses) - 0.5) < 0.07
    assert abs(pauses[len(pauses) // 2] - 0.5 * np.log(2)) < 0.05


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_turns_overlap_by_a_share_of_the_shorter_one(share: float) -> None:
    """LibriMix is 1, SparseLibriMix has several."""
    made, _ = run(uio.from_iterable(ITEMS).mixture((2, 2), overlap=(share, share)))
    for one in made:
        shorter = min(BY_KEY[key]["wav"].shape[1] for key in one["key"].split("+"))
        assert frames_spoken(one["timeline"], 2) == int(share * shorter)


def test_speakers_take_turns() -> None:
    made, _ = run(uio.from_iterable(ITEMS).mixture((3, 3), overlap=(0, 0), utterances=(3, 3)))
    assert len(made) > 1
    names = [event.speaker for event in made[0]["timeline"].events]
    assert names[:3] == names[3:6] == names[6:9]


def test_draws_are_those_of_seed_and_epoch() -> None:
    def starts(**options: Any) -> list[Any]:
        loader = uio.Loader(uio.from_iterable(ITEMS).mixture(pause=1.0), **options)
        return [[one["timeline"] for one in loader] for _ in range(2)]

    first, again, other = starts(seed=1), starts(seed=1), starts(seed=2)
    assert first == again
    assert first[0] != other[0] != first[1] != first[0]


def test_lanes_on_any_number_of_ranks_give_the_same_mixtures(tmp_path: Path) -> None:
    rows = raw_items(tmp_path, 40)
    graph = uio.from_raw_list([{**row, "speaker": f"S{i % 3}"} for i, row in enumerate(rows)], shuffle=True)
    graph = graph.decode_audio().speed_perturb().mixture((1, 3), pause=0.2, utterances=(1, 2), window=9)
    graph = graph.fbank(8).activity(3).batch(2).pad(keep=["activity"])
    found = []
    for world in (1, 2, 3):
        batches = []
        for rank in range(world):
            loader = uio.Loader(graph, lanes=6, rank=rank, world_size=world, uneven="join", failures="raise")
            batches += [
                (batch["keys"], batch["feats"].sum().item(), batch["activity"].sum().item()) for batch in loader
            ]
        found.append(sorted(batches))
    assert found[0] == found[1] == found[2]


def test_events_of_its_own_move_along() -> None:
    words = Timeline.of([Event(0.02, 0.05, "a"), Event(0.05, 0.09, "b", "other")])
    items = [{**item, "timeline": words} if i % 2 else item for i, item in enumerate(ITEMS)]
    made, _ = run(uio.from_iterable(items).mixture((2, 2), overlap=(0, 0)))
    for one in made:
        first = 0.0
        for key in one["key"].split("+"):
            item = BY_KEY[key]
            if int(key[1:]) % 2:
                expected = [(first + 0.02, "a", item["speaker"]), (first + 0.05, "b", "other")]
            else:
                expected = [(first, item["txt"], item["speaker"])]
            for start, text, speaker in expected:
                assert any(
                    abs(event.start - start) < 1e-9 and (event.text, event.speaker) == (text, speaker)
                    for event in one["timeline"].events
                )
            first += item["wav"].shape[1] / RATE


def test_events_of_a_part_end_at_its_edges() -> None:
    """As those of a recording that was cut, which reach over the edges of their part."""
    words = Timeline.of([Event(-0.5, 0.02), Event(0.03, 9.0)])
    made, _ = run(uio.from_iterable([{**item, "timeline": words} for item in ITEMS]).mixture((2, 2), overlap=(0, 0)))
    for one in made:
        begin = 0.0
        for key, events in zip(
            one["key"].split("+"), (one["timeline"].events[:2], one["timeline"].events[2:]), strict=False
        ):
            end = begin + BY_KEY[key]["wav"].shape[1] / RATE
            times = [event[:2] for event in events]
            assert np.allclose(times, [(begin, begin + 0.02), (begin + 0.03, end)], atol=1e-9)
            begin = end


@pytest.mark.parametrize("known", [(), ((0.0, 9.0),), ((0.01, 0.03), (0.05, 0.08))])
def test_what_is_annotated_of_all_parts_is_annotated_of_the_mixture(known: Any) -> None:
    """Where a part is heard that nobody has annotated there, nobody knows all who speak. Pauses are silence."""

    def marked(spans: Any, samples: int) -> np.ndarray:
        inside = np.full(samples, spans is None)
        for begin, end in spans or ():
            inside[round(begin * RATE) : round(end * RATE)] = True
        return inside

    items = [dict(item) for item in ITEMS]
    for item in items[::2]:
        item["timeline"] = Timeline((Event(0.0, item["wav"].shape[1] / RATE, item["txt"]),), known)
    made, _ = run(uio.from_iterable(items).mixture((2, 3), pause=0.1, utterances=(2, 2)))
    assert len(made) > 3
    for one in made:
        expected, starts = marked(None, one["wav"].shape[1]), {e.text: e.start for e in one["timeline"].events}
        for item in (BY_KEY[key] for key in one["key"].split("+")):
            own = marked(known if int(item["key"][1:]) % 2 == 0 else None, item["wav"].shape[1])
            first = round(starts[item["txt"]] * RATE)
            expected[first : first + len(own)] &= own
        assert np.array_equal(marked(one["timeline"].known, len(expected)), expected)


# What goes wrong


def test_a_part_that_fails_is_left_out_and_moves_no_other(tmp_path: Path) -> None:
    """Features come after it: they are made of what is left."""

    def graph() -> uio.Pipeline:
        mixed = uio.from_raw_list(rows).decode_audio().mixture((1, 3), pause=0.3, utterances=(2, 2))
        return mixed.fbank(8).activity(3)

    rows = [{**row, "speaker": f"S{i % 3}"} for i, row in enumerate(raw_items(tmp_path, 20))]
    for row in rows:
        Path(row["wav"]).write_bytes(audio(1600, form="FLAC"))
    whole = {event.text: event for one in run(graph())[0] for event in one["timeline"].events}
    assert len(whole) == 20
    for row in rows[4::10]:
        Path(row["wav"]).write_bytes(audio(1600, form="FLAC")[:700])  # a sound header, and half of the samples
    made, stats = counted(graph())
    kept = {event.text: event for one in made for event in one["timeline"].events}
    assert kept == {text: event for text, event in whole.items() if text not in ("字4", "字14")}
    assert all(one["activity"].sum() > 0 for one in made)
    assert {key for one in made for key in one["key"].split("+")} == {row["key"] for row in rows} - {"R004", "R014"}
    assert stats.failures == sum(stats.skipped.values()) == 2


def test_what_cannot_be_added_up_is_a_failure_that_says_so(tmp_path: Path) -> None:
    rows = [{**row, "speaker": f"S{i}"} for i, row in enumerate(raw_items(tmp_path, 4))]
    for number, odd, reason in ((1, {"rate": 16_000}, "mixed_sample_rates"), (2, {"channels": 2}, "mixed_channels")):
        path = tmp_path / f"{reason}.wav"
        path.write_bytes(audio(1600, **odd))
        odd_rows = [{**row, "wav": str(path)} if i == number else row for i, row in enumerate(rows)]
        graph = uio.from_raw_list(odd_rows).decode_audio(channel=None)
        (one,), stats = counted(graph.mixture((4, 4), pause=1.0))
        assert stats.skipped == {reason: 1}
        assert len(one["timeline"].events) == 3
        (one,), stats = counted(graph.mono().resample(8000).mixture((4, 4), pause=1.0))
        assert (len(one["timeline"].events), stats.skipped) == (4, {})


def test_lengths_known_by_duration_alone_bound_what_comes(tmp_path: Path) -> None:
    rows = [{**row, "speaker": f"S{i % 4}"} for i, row in enumerate(raw_items(tmp_path, 20))]
    rows = [{**row, "duration": (1600 + 80 * (i % 10)) / RATE} if i % 3 else row for i, row in enumerate(rows)]
    graph = uio.from_raw_list(rows).decode_audio().speed_perturb().mixture((2, 4), pause=0.1, utterances=(1, 3))
    made, _ = run(graph.resample(16_000).fbank(8).batch(1).pad(), failures="raise")
    assert sum(len(batch["keys"]) for batch in made) >= 3


def test_utterances_without_speaker_are_counted() -> None:
    items = [{n: v for n, v in item.items() if n != "speaker" or i % 3} for i, item in enumerate(ITEMS)]
    made, stats = counted(uio.from_iterable(items).mixture(pause=1.0), failures=uio.Failures(max_setting_share=1))
    assert stats.skipped == {"missing_speaker": 10}
    assert sum(len(one["timeline"].events) for one in made) == 20


def test_where_too_few_speakers_wait_utterances_are_left_out_and_counted() -> None:
    items = [{**item, "speaker": "A" if i >= 9 else f"S{i}"} for i, item in enumerate(ITEMS)]
    made, stats = counted(uio.from_iterable(items).mixture((3, 3), pause=1.0, window=10))
    parts = sum(len(one["timeline"].events) for one in made)
    assert all(len(one["timeline"].speakers) == 3 for one in made)
    assert stats.skipped == {"too_few_speakers": len(ITEMS) - parts}
    assert parts >= 9


def test_it_works_on_decoded_audio_with_speakers(tmp_path: Path) -> None:
    rows = [{**row, "speaker": f"S{i}"} for i, row in enumerate(raw_items(tmp_path, 4))]
    with pytest.raises(uio.PipelineError, match=r"not decoded; put .decode_audio\(\) before mixture"):
        run(uio.from_raw_list(rows).mixture(pause=1.0))
    with pytest.raises(uio.PipelineError, match="there are features; put it before them"):
        uio.from_raw_list(rows).decode_audio().fbank(8).mixture(pause=1.0)
    features = [{"key": f"{i}", "feat": torch.zeros(9, 4), "speaker": f"S{i}"} for i in range(3)]
    with pytest.raises(uio.PipelineError, match="not decoded"):
        run(uio.from_iterable(features).mixture(pause=1.0))


def test_every_number_of_speakers_comes() -> None:
    made, _ = run(uio.from_iterable(spoken(300, speakers=9)).mixture((1, 4), pause=1.0))
    counts = [len(one["timeline"].speakers) for one in made]
    assert all(counts.count(n) > len(counts) / 8 for n in (1, 2, 3, 4))
    pairs = {pair for one in made for pair in combinations(sorted(one["timeline"].speakers), 2)}
    assert len(pairs) > 30
