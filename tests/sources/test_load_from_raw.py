"""Raw lists: whole recordings, segments, precomputed features; and lines that are wrong."""

import io
import json
import logging
from fractions import Fraction
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import audio, keys, raw_items, raw_list, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uio_pipes as uio


def waves(items: list[dict[str, Any]], **options: Any) -> tuple[dict[str, Any], uio.Stats]:
    """Waveforms by key, and the counts."""
    batches, loader = run(uio.from_raw_list(items).decode_audio(), **options)
    return {b["key"]: b["wav"] for b in batches}, loader.stats()


def as_soundfile_reads(path: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
    data, _ = soundfile.read(path, start=start, stop=stop, dtype="float32", always_2d=True)
    return torch.from_numpy(data.T[:1].copy())


def test_all_fields_are_kept_and_the_audio_may_be_left_alone(tmp_path: Path) -> None:
    (item,) = raw_items(tmp_path, 1, speaker="S1", extra={"a": [1, 2]}, lang="zh")
    (batch,), _ = run(uio.from_raw_list([item]))
    assert {**item, **batch} == batch
    assert batch["wav"] == item["wav"]


@pytest.mark.parametrize(
    ("start", "end"), [(0.05, 0.15), (0, 0.1), (0.0001, 0.0999), (0.1, None), (None, 0.1), (0.10006, 0.15007)]
)
@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_segments_are_cut_to_the_sample(tmp_path: Path, start: float | None, end: float | None, form: str) -> None:
    path = tmp_path / f"long.{form.lower()}"
    path.write_bytes(audio(1601, form=form))
    item: dict[str, Any] = {"key": "a", "wav": str(path), "txt": "t"}
    item |= {} if start is None else {"start": start}
    item |= {} if end is None else {"end": end}
    got, _ = waves([item], failures="raise")
    first, last = round((start or 0) * 8000), 1601 if end is None else round(end * 8000)
    assert torch.equal(got["a"], as_soundfile_reads(str(path), first, last))


@pytest.mark.parametrize("missing", [{"start": None}, {"end": None}, {"start": None, "end": None}])
def test_null_is_as_good_as_no_bound(tmp_path: Path, missing: dict[str, None]) -> None:
    (item,) = raw_items(tmp_path, 1, **missing)
    got, stats = waves([item])
    assert stats.skipped == {}
    assert got["R000"].shape == (1, 1600)


def test_neighbouring_segments_make_up_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    path.write_bytes(audio(8000))
    cuts = [0, 0.1234, 0.33333, 0.5, 0.50105, 1.0]
    items = [{"key": str(i), "wav": str(path), "txt": "t", "start": cuts[i], "end": cuts[i + 1]} for i in range(5)]
    got, _ = waves(items, failures="raise")
    assert torch.equal(torch.cat(list(got.values()), 1), as_soundfile_reads(str(path)))


def test_web_audio_and_features_by_url() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/raw/x.wav", audio(1600, 3))
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    buffer = io.BytesIO()
    np.save(buffer, array)
    fs.pipe("/raw/x.npy", buffer.getvalue())
    url = "memory://raw/x.wav"
    got, _ = waves([{"key": "a", "wav": url, "txt": "t"}, {"key": "b", "wav": url, "txt": "t", "start": 0.1}])
    assert torch.equal(got["a"][:, 800:], got["b"])
    assert got["a"].shape == (1, 1600)
    (batch,), _ = run(uio.from_raw_list([{"key": "c", "feat": "memory://raw/x.npy", "txt": "t"}]).batch(1).pad())
    assert torch.equal(batch["feats"][0], torch.from_numpy(array))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int16"])
def test_features_from_npy(tmp_path: Path, dtype: str, order: Any) -> None:
    items = []
    for i, frames in enumerate((5, 9, 2)):
        array = np.asarray(np.random.default_rng(i).integers(-9, 9, (frames, 4)), dtype, order=order)
        np.save(tmp_path / f"{i}.npy", array)
        items.append({"key": str(i), "feat": str(tmp_path / f"{i}.npy"), "txt": "t"})
    (batch,), _ = run(uio.from_raw_list(items).sort(3).dynamic_batch(27).pad())
    assert batch["keys"] == ["1", "0", "2"]
    assert batch["feats"].dtype == (torch.int64 if dtype == "int16" else torch.float32)  # codes stay whole numbers
    assert batch["feats_lengths"].tolist() == [9, 5, 2]
    assert batch["feats"][1, :5].tolist() == np.load(tmp_path / "0.npy").tolist()


@pytest.mark.parametrize(
    "data", [b"", b"no npy", b"\x93NUMPY\x01\x00", np.arange(3.0), np.zeros((2, 2, 2)), np.array([["a"]]), "cut"]
)
def test_bad_features_are_a_failure_of_their_utterance(tmp_path: Path, data: Any) -> None:
    good, bad = tmp_path / "good.npy", tmp_path / "bad.npy"
    np.save(good, np.ones((5, 3), np.float32))
    if isinstance(data, np.ndarray):
        np.save(bad, data)
    else:
        bad.write_bytes(good.read_bytes()[:-8] if data == "cut" else data)
    items = [{"key": k, "feat": str(tmp_path / f"{k}.npy"), "txt": "t"} for k in ("good", "bad")]
    batches, loader = run(uio.from_raw_list(items).batch(2).pad())
    assert keys(batches) == ["good"]
    assert loader.stats().skipped == {"bad_features": 1}


def test_features_of_other_width_name_the_utterance(tmp_path: Path) -> None:
    items = []
    for key, bins in (("a", 4), ("b", 4), ("narrow", 1)):
        np.save(tmp_path / f"{key}.npy", np.ones((5, bins), np.float32))
        items.append({"key": key, "feat": str(tmp_path / f"{key}.npy"), "txt": "t"})
    with pytest.raises(uio.UioError, match="narrow"):
        run(uio.from_raw_list(items).batch(3).pad(), failures="raise")


# Durations


def planned_within(item: dict[str, Any], *stages: str, **options: Any) -> uio.Stats:
    pipeline = uio.from_raw_list([item]).decode_audio()
    if "resample" in stages:
        pipeline = pipeline.resample(16_000)
    if "fbank" in stages:
        pipeline = pipeline.fbank(num_mel_bins=10)
    return run(pipeline.batch(1).pad(), **options)[1].stats()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.integers(1000, 9000), rate=st.sampled_from([8000, 16000, 22050, 44100, 48000]), digits=st.integers(1, 17)
)
def test_a_true_duration_with_any_number_of_digits_is_long_enough(
    tmp_path: Path, samples: int, rate: int, digits: int
) -> None:
    """Rounded or cut at any digit, a correct duration is never `length_mismatch`."""
    path = tmp_path / "x.wav"
    path.write_bytes(audio(samples, rate=rate))
    exact = Fraction(samples, rate)
    for seconds in (round(samples / rate, digits), float(int(exact * 10**digits)) / 10**digits):
        stats = planned_within({"key": "a", "wav": str(path), "txt": "t", "duration": seconds})
        assert stats.skipped == {}, seconds


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100])
@pytest.mark.parametrize("stages", [("fbank",), ("resample", "fbank")])
def test_duration_is_long_enough_for_features_at_any_rate(tmp_path: Path, rate: int, stages: tuple[str, ...]) -> None:
    path = tmp_path / "x.wav"
    samples = rate * 8 + 7
    path.write_bytes(audio(samples, rate=rate))
    duration = round(samples / rate, 6)
    stats = planned_within({"key": "a", "wav": str(path), "txt": "t", "duration": duration}, *stages)
    assert stats.skipped == {}
    assert stats.utterances == 1


def test_duration_below_the_truth_is_a_length_mismatch_naming_it(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(audio(8000))
    said = r"has 1\.000 s, at most 0\.600 s were planned: `duration`, 0\.5 in its entry, is too short"
    with pytest.raises(uio.DataError, match=said) as error:
        planned_within({"key": "a", "wav": str(path), "txt": "t", "duration": 0.5}, failures="raise")
    assert error.value.reason == "length_mismatch"
    assert error.value.member == "a"


@pytest.mark.parametrize("duration", ["long", None, "nan", "inf", [1], {}])
def test_duration_that_is_no_number_of_seconds(tmp_path: Path, duration: Any) -> None:
    items = raw_items(tmp_path, 2)
    items[0]["duration"] = duration
    got, stats = waves(items)
    assert list(got) in (["R001"], ["R000", "R001"])
    assert stats.skipped == ({"bad_duration": 1} if len(got) == 1 else {})


# Wrong lines

BAD_LINES: list[tuple[str, Any]] = [
    ("bad_line", '{"key": "x", "wav": "x.wav", "txt": "cut o'),
    ("bad_line", '{"key": "x" "wav": "x.wav"}'),
    ("bad_line", '"wav": "x.wav", "txt": "torn"}'),
    ("bad_text", '{"key": "x", "wav": "x.wav", "txt": "\\ud800"}'),
    ("missing_text", '{"key": "x", "wav": "x.wav", "txt": true}'),
    ("missing_key", {"wav": "x.wav", "txt": "t"}),
    ("missing_key", {"key": "", "wav": "x.wav", "txt": "t"}),
    ("missing_audio", {"key": "x", "wav": None, "txt": "t"}),
    ("missing_file", {"key": "x", "wav": "x.wav", "txt": "t"}),
    ("missing_file", {"key": "x", "wav": "x.wav", "txt": "t", "duration": 0.2}),
    ("missing_file", {"key": "x", "wav": "x.wav", "txt": "t", "start": 0.01, "end": 0.1}),
    ("missing_text", {"key": "x", "wav": "x.wav", "txt": None}),
    ("bad_segment", {"key": "x", "wav": "x.wav", "txt": "t", "start": "zero", "end": "1"}),
    ("bad_segment", {"key": "x", "wav": "x.wav", "txt": "t", "start": 2, "end": 1}),
    ("bad_segment", {"key": "x", "wav": "x.wav", "txt": "t", "start": 1, "end": 1}),
    ("bad_segment", {"key": "x", "wav": "x.wav", "txt": "t", "start": -1, "end": 1}),
    ("bad_segment", {"key": "x", "wav": "x.wav", "txt": "t", "start": True, "end": 2}),
]


@pytest.mark.parametrize(("reason", "line"), BAD_LINES)
def test_wrong_line_is_skipped_counted_and_named(
    tmp_path: Path, reason: str, line: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good = raw_items(tmp_path, 3)
    path = raw_list(tmp_path / "x.list", [good[0], "# comment", line, good[1], good[2]])
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        batches, loader = run(uio.from_raw_list(path).decode_audio())
    assert keys(batches) == ["R000", "R001", "R002"]
    assert (loader.stats().failures, loader.stats().skipped) == (1, {reason: 1})
    assert f"{path}, line 3" in caplog.text
    assert f"[{reason}]" in caplog.text


def test_empty_text_is_a_text(tmp_path: Path) -> None:
    got, _ = waves(raw_items(tmp_path, 1, txt=""), failures="raise")
    assert len(got) == 1


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize(
    "segment",
    [
        {"start": 0.3},
        {"start": 0.1, "end": 0.9},
        {"start": 5, "end": 6},
        {"start": NAN},
        {"end": NAN},
        {"end": INF},
    ],
)
def test_segment_outside_its_recording_or_of_no_numbers_is_a_bad_segment(
    tmp_path: Path, segment: dict[str, float], planned: bool
) -> None:
    items = raw_items(tmp_path, 2)
    items[0] |= segment
    graph = uio.from_raw_list(items).decode_audio()
    batches, loader = run(graph.sort(2).dynamic_batch(1000).pad() if planned else graph)
    assert (keys(batches), loader.stats().failures) == (["R001"], 1)
    assert set(loader.stats().skipped) <= {"bad_segment", *(["too_short"] if planned else [])}


def test_segment_may_end_a_rounding_error_after_its_recording(tmp_path: Path) -> None:
    got, _ = waves(raw_items(tmp_path, 1, start=0.1, end=0.205), failures="raise")
    assert got["R000"].shape == (1, 800)


def test_as_json_in_a_list_of_strings(tmp_path: Path) -> None:
    lines = [json.dumps(item) for item in raw_items(tmp_path, 2)]
    assert keys(run(uio.from_raw_list(lines))[0]) == ["R000", "R001"]
