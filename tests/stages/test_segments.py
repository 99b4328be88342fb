"""Segments cut out of recordings: exact bytes, merged runs, random pieces, and their distributions."""

import io
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import corpus
import fsspec
import numpy as np
import pytest
import soundfile
import torch
import touchdataset
from contract import Case, check_cuts, record
from helpers_bad import counted
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.io.local import LocalFile
from uio_pipes.stages.utterances.segment_runs import SegmentRun, merged, pieces, random_piece

RATE = 8000
TIMES = [(0.0, 0.5), (0.5, 0.9), (1.0, 1.25), (1.3, 2.0), (2.0, 2.75), (2.8, 2.9)]


def recordings(count: int, times: list[tuple[float, float]] | None = None) -> list[touchdataset.Utterance]:
    """Three seconds each, with segments."""
    made = touchdataset.speech(count, RATE, (3.0, 3.0))
    for _, fields in made:
        said = [{"start": a, "end": b, "txt": f"w{i}"} for i, (a, b) in enumerate(times or TIMES)]
        fields["info"] = {"url": "x", "segments": said}
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return touchdataset.write(tmp_path_factory.mktemp("segments"), recordings(6))


def test_all_segments_come_in_turn_with_the_samples_between_their_times(folder: Path) -> None:
    made, stats = counted(uio.from_indexed(folder).segments().decode_audio())
    assert stats.failures == 0
    audio = [samples for samples, _ in recordings(6)]
    expected = [(audio[n], a, b, f"w{i}") for n in range(6) for i, (a, b) in enumerate(TIMES)]
    for (samples, a, b, text), sample in zip(expected, made, strict=True):
        cut = samples[round(a * RATE) : round(b * RATE)].astype(np.float32) / 32768
        assert torch.equal(sample["wav"], torch.from_numpy(cut)[None])
        assert sample["txt"] == text
        assert sample["info"] == {"url": "x"}
    assert [s["key"] for s in made[:2]] == ["T0000-0000000-0000500", "T0000-0000500-0000900"]
    assert made[0]["speaker"] == "S0"


def test_of_a_wav_in_a_tar_only_the_segment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(RATE * 600, np.int16), RATE, format="WAV", subtype="PCM_16")
    (tmp_path / "a.tar").write_bytes(corpus._tar([("k.txt", b"x"), ("k.wav", buffer.getvalue())]))
    sizes: list[int] = []
    read = LocalFile.read_upto

    def spy(self: LocalFile, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(LocalFile, "read_upto", spy)
    graph = uio.from_shard_list(tmp_path / "a.tar").segments(of="recording", cut_seconds=(1, 1), pick="random")
    made, _ = counted(graph.decode_audio())
    assert made[0]["wav"].shape == (1, RATE)
    assert sum(sizes) < 40_000 + 2 * RATE


@pytest.mark.parametrize("seconds", [3, 200])
def test_far_recordings_are_cut(seconds: int, tmp_path: Path) -> None:
    """Long ones by segment: those above 4 MB are not fetched early as a whole."""
    made = touchdataset.speech(2, 16_000, (seconds, seconds))
    for _, fields in made:
        fields["info"] = {"segments": [{"start": a, "end": b, "txt": "x"} for a, b in TIMES]}
    folder = touchdataset.write(tmp_path / "d", made)
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/long{seconds}/{path.name}", path.read_bytes())
    near, _ = counted(uio.from_indexed(folder).segments().decode_audio())
    far, stats = counted(uio.from_indexed(f"memory://long{seconds}").segments().decode_audio())
    assert stats.failures == 0
    assert all(torch.equal(a["wav"], b["wav"]) for a, b in zip(near, far, strict=True))


def test_adjacent_segments_are_joined_up_to_the_bound(folder: Path) -> None:
    made, _ = counted(uio.from_indexed(folder).segments(merge_seconds=1.3).decode_audio())
    assert [(s["start"], s["end"], s["txt"]) for s in made[:3]] == [
        (0.0, 1.25, "w0 w1 w2"), (1.3, 2.0, "w3"), (2.0, 2.9, "w4 w5"),
    ]  # fmt: skip
    assert made[0]["wav"].shape == (1, 10_000)
    made, _ = counted(uio.from_indexed(folder).segments(merge_seconds=1.3, separator="|"))
    assert made[0]["txt"] == "w0|w1|w2"
    chinese = SegmentRun(0, 1, {"txt": "你好"}, {}), SegmentRun(1, 2, {"txt": "世界"}, {})
    assert merged(list(chinese), 5, 0, None)[0].texts["txt"] == "你好世界"


def test_joined_segments_keep_what_they_agree_on() -> None:
    runs = [
        SegmentRun(0, 1, {"txt": "a"}, {"speaker": "x", "n": 1, "key": "p"}),
        SegmentRun(1, 2, {"txt": "b"}, {"speaker": "x", "n": 2, "key": "q"}),
    ]
    assert merged(runs, 5, 0, " ") == [SegmentRun(0, 2, {"txt": "a b"}, {"speaker": "x"})]
    assert merged(runs, 1, 0, " ") == runs


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 20)), min_size=1, max_size=12), st.floats(0.1, 40), st.data()
)
def test_every_segment_is_in_one_run_within_the_bound(given: Any, most: float, data: st.DataObject) -> None:
    ordered = sorted((a, a + d, i) for i, (a, d) in enumerate(given))
    runs = [SegmentRun(start, end, {"txt": f"t{i}"}, {}) for start, end, i in ordered]
    first = data.draw(st.integers(0, len(runs) - 1))
    out = merged(runs, most, first, " ")
    assert " ".join(r.texts["txt"] for r in out) == " ".join(r.texts["txt"] for r in runs)
    assert any(r.texts["txt"].split()[0] == runs[first].texts["txt"] for r in out), "one run begins there"
    for run_ in out:
        assert run_.end - run_.start <= most or len(run_.texts["txt"].split()) == 1
    for a, b in itertools.pairwise(out):
        joinable = (
            max(a.end, runs[[r.texts["txt"] for r in runs].index(b.texts["txt"].split()[0])].end) - a.start <= most
        )
        assert not joinable or b.texts["txt"].split()[0] == runs[first].texts["txt"]


def test_a_random_first_one_changes_with_the_epoch(folder: Path) -> None:
    graph = uio.from_indexed(folder).segments(merge_seconds=1.3, random_first=True)
    loader = uio.Loader(graph)
    starts = [frozenset(s["start"] for s in loader) for _ in range(6)]
    assert len(set(starts)) > 2
    loader = uio.Loader(graph)
    for _ in range(3):
        said = " ".join(s["txt"] for s in loader).split()
        assert said == [f"w{i}" for i in range(6)] * 6, "each segment once, in turn"


@pytest.mark.parametrize("first", [False, True])
def test_one_at_random_is_each_with_equal_chances(first: bool, tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path, recordings(1200, [(0.1, 0.3), (0.3, 0.5), (0.9, 1.5), (1.6, 2.0)]))
    options = {"merge_seconds": 1.0, "random_first": True} if first else {}
    made, _ = counted(uio.from_indexed(folder).segments(pick="random", **options))
    assert len(made) == 1200
    texts = Counter(s["txt"] for s in made)
    assert set(texts) == ({"w0 w1", "w1", "w2", "w3"} if first else {"w0", "w1", "w2", "w3"})
    assert all(abs(n - 300) < 5 * 15 for n in texts.values()), texts


LOW, HIGH = 200, 700


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 400), st.integers(0, 500), st.integers(0, 2**63))
def test_pieces_cover_the_run_within_their_bounds(total: int, low: int, more: int, seed: int) -> None:
    run_ = SegmentRun(1.5, 1.5 + total / 1000, {"txt": "x"}, {})
    high = low + more
    cuts = list(pieces(run_, low, high, Draws(seed)))
    lengths = [round((c.end - c.start) * 1000) for c in cuts]
    assert all(low <= n <= high for n in lengths)
    at = 1.5
    for cut in cuts:
        assert cut.start == pytest.approx(at, abs=1e-9)
        at = cut.end
    left = total - sum(lengths)
    assert left == 0 or left < low
    if high >= 2 * low and total >= low:
        assert left == 0, "all of it, wherever two pieces fit for each one"
    assert all(c.texts["txt"] == ("x" if len(cuts) == 1 and left == 0 else "") for c in cuts)


def test_random_pieces_have_the_asked_lengths_and_places() -> None:
    run_ = SegmentRun(0.0, 2.0, {"txt": "x"}, {})
    made = [random_piece(run_, LOW, HIGH, Draws(seed * 7919)) for seed in range(4000)]
    lengths = np.array([(p.end - p.start) * 1000 for p in made if p])
    places = np.array([p.start * 1000 / (2000 - n) for p, n in zip(made, lengths, strict=True) if p])
    assert lengths.min() >= LOW - 0.5
    assert lengths.max() <= HIGH + 0.5
    assert abs(lengths.mean() - 450) < 10
    assert abs(lengths.std() - 501 / 12**0.5) < 6
    assert abs(places.mean() - 0.5) < 0.02
    assert abs(places.std() - 12**-0.5) < 0.01
    assert random_piece(SegmentRun(0, 0.19, {"txt": "x"}, {}), LOW, HIGH, Draws(1)) is None


@pytest.mark.parametrize("pick", ["all", "random"])
def test_pieces_of_a_recording_tell_no_text(pick: str, folder: Path) -> None:
    graph = uio.from_indexed(folder).segments(of="recording", pick=pick, cut_seconds=(0.4, 1.0)).decode_audio()
    made, stats = counted(graph)
    assert stats.failures == 0
    assert {s["txt"] for s in made} == {""}
    assert all(0.4 * RATE - 1 <= s["wav"].shape[1] <= RATE + 1 for s in made)
    if pick == "all":
        whole = torch.cat([s["wav"] for s in made if s["key"].startswith("T0003-")], 1)
        assert torch.equal(whole, torch.from_numpy(recordings(4)[3][0].astype(np.float32) / 32768)[None])
    else:
        assert len(made) == 6


def test_runs_shorter_than_the_minimum_are_counted(folder: Path) -> None:
    made, stats = counted(uio.from_indexed(folder).segments(cut_seconds=(0.45, 0.6)))
    assert stats.skipped == {"too_short": 3 * 6}
    assert all(0.4499 < s["end"] - s["start"] < 0.6001 for s in made)
    assert {s["txt"] for s in made if s["end"] - s["start"] == 0.5} == {"w0"}, "all of a run keeps its text"


def test_the_plan_is_exact(folder: Path) -> None:
    graph = uio.from_indexed(folder).segments(merge_seconds=1.3, random_first=True).decode_audio()
    frames = graph.batch(1)
    made, _ = counted(frames)
    lane = uio.Loader(graph)
    assert [b[0]["wav"].shape[1] for b in made] == [s["wav"].shape[1] for s in lane]
    node = frames.build(Lane(Ledger()))
    node.reset(None)
    for (sample,) in made:
        planned = node.next()[0].plan.samples
        assert planned == sample["wav"].shape[1]


GRAPHS = {
    "all": {},
    "merged": {"merge_seconds": 1.3, "random_first": True},
    "random": {"merge_seconds": 0.8, "random_first": True, "pick": "random"},
    "cuts": {"of": "recording", "cut_seconds": (0.2, 0.5)},
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_a_run_stopped_in_the_middle_of_a_recording_goes_on_there(name: str, folder: Path) -> None:
    source = uio.from_indexed(folder, shuffle=True).segments(**GRAPHS[name])  # type: ignore[arg-type]
    buffered = record(Case(source.decode_audio().shuffle(5).sort(4).batch(2).pad(), {"lanes": 2, "snapshot_every": 3}))
    check_cuts(buffered, range(0, len(buffered.digests) + 1, 3))
    assert buffered.after != buffered.digests


BAD: dict[str, tuple[Any, str]] = {
    "no_number": ({"start": "zero", "end": 1, "txt": "x"}, "bad_segment"),
    "text_that_is_no_time": ({"start": "nan", "end": "1", "txt": "x"}, "bad_segment"),
    "backwards": ({"start": 1, "end": 0.5, "txt": "x"}, "bad_segment"),
    "negative": ({"start": -1, "end": 0.5, "txt": "x"}, "bad_segment"),
    "beyond": ({"start": 2, "end": 3.5, "txt": "x"}, "bad_segment"),
    "nan": ({"start": 0, "end": float("nan"), "txt": "x"}, "bad_segment"),
    "no_text": ({"start": 0, "end": 1}, "missing_text"),
    "no_object": ("x", "bad_segment"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_bad_segment_is_counted_and_the_others_stay(name: str, tmp_path: Path) -> None:
    bad, reason = BAD[name]
    made = recordings(2)
    made[0][1]["info"]["segments"].insert(1, bad)
    graph = uio.from_indexed(touchdataset.write(tmp_path, made)).segments()
    found, stats = counted(graph)
    assert stats.skipped == {reason: 1}
    assert len(found) == 12
    with pytest.raises(uio.DataError, match=r"T0000.*segment 1"):
        counted(graph, failures="raise")


@pytest.mark.parametrize("segments", [None, "x", [], [{"start": 3, "end": 1, "txt": ""}]], ids=str)
def test_a_recording_without_segments_is_counted(segments: Any, tmp_path: Path) -> None:
    made = recordings(2)
    made[0][1]["info"]["segments"] = segments
    found, stats = counted(uio.from_indexed(touchdataset.write(tmp_path, made)).segments())
    assert stats.skipped["missing_segments"] == 1
    assert len(found) == 6


def test_another_field_may_hold_them(tmp_path: Path) -> None:
    made = recordings(1)
    made[0][1]["parts"] = [{"start": 0.5, "end": 1, "txt": "p", "key": "own", "speaker": "Z"}]
    (found,), _ = counted(uio.from_indexed(touchdataset.write(tmp_path, made)).segments(field="parts"))
    assert (found["key"], found["speaker"], found["txt"]) == ("own", "Z", "p")
    assert "parts" not in found
    assert "segments" in found["info"]


def test_times_count_from_the_beginning_of_the_utterance(tmp_path: Path) -> None:
    made = recordings(1, [(0.0, 0.5), (0.5, 1.0)])
    made[0][1].update(start=1.0, end=2.0)
    found, _ = counted(uio.from_indexed(touchdataset.write(tmp_path, made)).segments().decode_audio())
    samples = made[0][0].astype(np.float32) / 32768
    assert torch.equal(torch.cat([s["wav"] for s in found], 1)[0], torch.from_numpy(samples[RATE : 2 * RATE]))
    made[0][1].update(start=2.5, end=2.9)
    _, stats = counted(uio.from_indexed(touchdataset.write(tmp_path, made)).segments())
    assert stats.skipped == {"bad_segment": 2, "missing_segments": 1}


def test_one_of_a_recording_has_a_known_length(folder: Path) -> None:
    assert len(uio.Loader(uio.from_indexed(folder).segments(pick="random").batch(4))) == 2
    assert len(uio.Loader(uio.from_indexed(folder).segments().batch(4))) == 9, "planned"


def test_it_must_stand_before_what_works_on_audio_or_text() -> None:
    for stage in (lambda p: p.decode_audio(), lambda p: p.normalize_text()):
        with pytest.raises(uio.PipelineError):
            stage(uio.from_indexed("x")).segments()


def test_features_are_counted(feature_corpus: corpus.Corpus) -> None:
    _, stats = counted(uio.from_shard_list(feature_corpus.list).segments())
    assert stats.skipped == {"has_features": 20}
