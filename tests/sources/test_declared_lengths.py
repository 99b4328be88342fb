"""Audio that is longer or shorter than its list says: ``tolerance`` and ``longer``, of every source alike."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from command import uio as uio_command
from contract import Case, check_cuts, record
from helpers_bad import tar

import uio_pipes as uio

RATE = 8000
LOSING = uio.Failures(max_setting_share=1, max_damage_share=1)
Begin = Callable[..., uio.Pipeline]
Told = dict[str, Any]  # what the list says


def speech(seconds: float) -> np.ndarray:
    return 0.1 * np.random.default_rng(3).standard_normal(round(seconds * RATE)).astype(np.float32)


def raw(folder: Path, told: Told) -> Begin:
    lines = [json.dumps({"key": f"u{i}", "wav": str(folder / "a.wav"), "txt": "t", **told}) for i in range(2)]
    (folder / "raw.list").write_text("\n".join(lines))
    return lambda **options: uio.from_raw_list(folder / "raw.list", **options)


def table(folder: Path, told: Told) -> Begin:
    rows = [{"key": f"u{i}", "wav": str(folder / "a.wav"), "txt": "t", **told} for i in range(2)]
    return lambda **options: uio.from_table(rows, **options)


def nemo(folder: Path, told: Told) -> Begin:
    rows = [{"id": f"u{i}", "audio_filepath": "a.wav", "text": "t", **told} for i in range(2)]
    (folder / "manifest.json").write_text("\n".join(map(json.dumps, rows)))
    return lambda **options: uio.from_nemo(folder / "manifest.json", **options)


def cuts(folder: Path, told: Told) -> Begin:
    sources = [{"type": "file", "channels": [0], "source": str(folder / "a.wav")}]
    made = {"id": "r", "sources": sources, "sampling_rate": RATE, "num_samples": round(told["whole"] * RATE)}
    cut = {"start": 0, "duration": told["whole"], "channel": 0, "recording": made, **told, "type": "MonoCut"}
    lines = [json.dumps({"id": f"u{i}", "supervisions": [], **cut}) for i in range(2)]
    (folder / "cuts.jsonl").write_text("\n".join(lines))
    return lambda **options: uio.from_lhotse_cuts(folder / "cuts.jsonl", **options)


def kaldi(folder: Path, told: Told) -> Begin:
    (folder / "wav.scp").write_text(f"rec {folder}/a.wav\n")
    (folder / "segments").write_text("".join(f"u{i} rec {told['start']} {told['end']}\n" for i in range(2)))
    (folder / "text").write_text("u0 t\nu1 t\n")
    return lambda **options: uio.from_kaldi(folder, **options)


def piped(folder: Path, told: Told) -> Begin:
    names = ["u0", "u1"] if "duration" in told else ["rec"]
    (folder / "wav.scp").write_text("".join(f"{name} cat {folder}/a.wav |\n" for name in names))
    if "duration" in told:
        (folder / "utt2dur").write_text("".join(f"{name} {told['duration']}\n" for name in names))
    else:
        (folder / "segments").write_text("".join(f"u{i} rec {told['start']} {told['end']}\n" for i in range(2)))
    (folder / "text").write_text("u0 t\nu1 t\n")
    return lambda **options: uio.from_kaldi(folder, allow_pipes=True, **options)


def parquet(folder: Path, told: Told) -> Begin:
    wav = (folder / "a.wav").read_bytes()
    rows = [{"key": f"u{i}", "audio": {"bytes": wav}, "txt": "t", **told} for i in range(2)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    return lambda **options: uio.from_parquet(folder / "a.parquet", **options)


def shards(folder: Path, told: Told) -> Begin:
    of_one = {"txt": b"t", "json": json.dumps(told).encode(), "wav": (folder / "a.wav").read_bytes()}
    (folder / "a.tar").write_bytes(tar([(f"u{i}.{name}", data) for i in range(2) for name, data in of_one.items()]))
    named = {name: f"json:{name}" for name in told}
    return lambda **options: uio.from_shard_list(folder / "a.tar", fields=named, **options)


# The audio has 2 s. What is said of it, the reason of the failure, and the seconds delivered with tolerance=0.5 (which
# Lhotse's recordings reach by mirroring) and with longer="trim".
CASES = [
    *(
        pytest.param(write, {"duration": 1.6}, "length_mismatch", 2.0, 1.7 + extra, id=f"{write.__name__}, too long")
        for write, extra in ((raw, 0), (table, 0.05), (nemo, 0), (parquet, 0), (shards, 0), (piped, 0))
    ),
    *(
        pytest.param(write, {**told}, "bad_segment", 1.5, 1.5, id=f"{write.__name__}, a segment")
        for write, told in (
            *((write, {"start": 0.5, "end": 2.4}) for write in (raw, table, kaldi, piped, parquet)),
            (nemo, {"offset": 0.5, "duration": 1.9}),
        )
    ),
    pytest.param(cuts, {"whole": 1.6}, "length_mismatch", 1.6, 1.6, id="cuts, too long"),
    pytest.param(cuts, {"whole": 2.4}, "length_mismatch", 2.4, 2.0, id="cuts, too short"),
    pytest.param(cuts, {"whole": 2.4, "start": 0.5, "duration": 1.9}, "bad_segment", 1.9, 1.5, id="cuts, a segment"),
]


def heard(pipeline: uio.Pipeline) -> tuple[list[float], list[Any], dict[str, int]]:
    loader = uio.Loader(pipeline.decode_audio(), failures=LOSING)
    samples = list[uio.Sample]()
    with suppress(uio.TooManyFailures):  # all of them fail
        samples = list(loader)
    seconds = [round(sample["wav"].shape[1] / RATE, 3) for sample in samples]
    return seconds, [sample.get("trimmed") for sample in samples], loader.stats().skipped


@pytest.mark.parametrize(("write", "told", "reason", "tolerated", "trimmed"), CASES)
def test_it_fails_or_is_tolerated_or_trimmed(
    write: Callable[[Path, Told], Begin], told: Told, reason: str, tolerated: float, trimmed: float, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), RATE)
    begin = write(tmp_path, told)
    assert heard(begin()) == ([], [], {reason: 2})
    assert heard(begin(tolerance=0.5)) == ([tolerated] * 2, [None] * 2, {})
    seconds, off, counted = heard(begin(longer="trim"))
    assert seconds == [pytest.approx(trimmed, abs=0.001)] * 2
    assert (min(off) > 0.2, counted) == (True, {"trimmed": 2})
    check_cuts(record(Case(begin(longer="trim").decode_audio())), range(3))


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "mp3"])
def test_formats_are_cut_alike(form: str, tmp_path: Path) -> None:
    """Of MP3 nothing but the list tells the length before it is decoded."""
    soundfile.write(tmp_path / f"a.{form}", speech(2.0), RATE)
    one = {"wav": str(tmp_path / f"a.{form}"), "txt": "t"}
    rows = [{**one, "key": "whole", "duration": 1.25}, {**one, "key": "part", "start": 1.0, "end": 2.75}]
    seconds, off, counted = heard(uio.from_raw_list(rows, tolerance=0, longer="trim"))
    assert seconds == [pytest.approx(1.26, abs=0.001), pytest.approx(1.0, abs=0.01)]
    assert off == [pytest.approx(0.74, abs=0.01), pytest.approx(0.75, abs=0.01)]
    assert counted == {"trimmed": 2}


def prompted(sample: uio.Sample) -> uio.Sample:
    sample["prompt"], sample["prompt_duration"] = sample["wav"], 1.5
    return sample


def test_each_is_counted_once_in_joined_cached_and_several_recordings(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), RATE)
    trimmed = raw(tmp_path, {"duration": 1.6})(longer="trim")
    assert heard(trimmed.map(prompted).decode_audio(of="prompt"))[2] == {"trimmed": 2}
    audio = trimmed.decode_audio()
    for pipeline in (audio.concat(max_seconds=9), *[audio.cache(tmp_path / "cache")] * 2):
        loader = uio.Loader(pipeline.fbank(num_mel_bins=8).batch(2).pad())
        assert [len(batch["keys"]) for batch in loader] == [1 if "concat" in str(pipeline) else 2]
        assert loader.stats().skipped == {"trimmed": 2}
    untrimmed = raw(tmp_path, {"duration": 1.6})(tolerance=0.5).decode_audio().cache(tmp_path / "cache")
    (batch,) = uio.Loader(untrimmed.batch(2).pad())
    assert batch["pcm"].shape[1] == 2 * RATE, "what was cached as trimmed is something else"


def test_segments_of_a_recording_may_end_after_it(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), RATE)
    begin = raw(tmp_path, {"segments": [{"start": 0.5, "end": 2.4, "txt": "t"}]})
    assert heard(begin().segments(field="segments"))[2] == {"bad_segment": 2, "missing_segments": 2}
    assert heard(begin(tolerance=0.5).segments(field="segments"))[:1] == ([1.5] * 2,)
    assert heard(begin(longer="trim").segments(field="segments"))[2] == {"trimmed": 2}


def test_a_column_of_that_name_is_none_of_ours(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), RATE)
    assert heard(raw(tmp_path, {"declared": [9, True], "duration": 1.6})())[2] == {"length_mismatch": 2}


def test_a_configuration_hands_it_to_its_sources(tmp_path: Path) -> None:
    one = {"type": "raw_list", "paths": "a.list", "resampled": False}
    config = {"sources": [one, {"type": "raw_list", "paths": "b.list", "longer": "fail"}], "resampled": True}
    shown = str(uio.from_config(config, longer="trim"))
    assert (shown.count("resampled()"), shown.count("declare(longer='trim')")) == (1, 1)


def test_commands_take_a_tolerance_and_follow_that_of_a_configuration(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), RATE)
    told = [{"start": 0.5, "end": 2.4}, {"duration": 1.6}, {"duration": 2.4}]
    lines = [json.dumps({"key": f"u{i}", "wav": "a.wav", "txt": "t", **one}) for i, one in enumerate(told)]
    (tmp_path / "raw.list").write_text("\n".join(lines))
    (tmp_path / "mix.yaml").write_text("sources: [{type: raw_list, paths: raw.list, longer: trim}]")

    def run(*arguments: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(uio_command(*arguments, "--json", cwd=tmp_path).stdout)
        return said

    wrong = {"bad_segment": 1, "length_mismatch": 2}
    found = [run("verify", "raw.list", "--tolerance", seconds)["reasons"] for seconds in ("0.2", "0.5")]
    assert [run("verify", "raw.list")["reasons"], *found] == [wrong, wrong, {}]

    for way, (source, *options) in enumerate(
        (
            ["raw.list"],
            ["raw.list", "--tolerance", "0.5"],
            ["mix.yaml"],
            ["raw.list", "--tolerance", "0.5", "--to", "indexed"],
        )
    ):
        done = run("pack", source, f"out{way}", *options)
        assert (done["utterances"], done["failed"]) == ((3, {}) if way else (2, {"bad_segment": 1})), (source, options)
        assert done["dropped"] == []
    cut = next(iter(uio.Loader(uio.from_shard_list(tmp_path / "out1/shards.list").decode_audio())))
    assert cut["wav"].shape[1] == 1.5 * RATE
    converted = run("convert", "raw.list", "converted", "--tolerance", "0.5")
    assert (converted["utterances"], converted["failed"]) == (3, {})
