"""Checks of TouchDatasets and Kaldi folders: everything is read, everything that is wrong is named."""

import json
from pathlib import Path

import command
import corpus
import kaldi_data
import numpy as np
import parquet_corpus
import pytest
import soundfile as sf
import touchdataset
from converting import convert
from corpora_small import made
from nemo_data import plain, write
from video_files import video

import uio_pipes as uio
from uio_pipes.base.errors import ListError
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.verify import Verified, verify
from uio_pipes.tools.reports.inspect import inspect

DECODE = WantedChecks(decode=True)


def checked(path: object, wanted: WantedChecks = DECODE, jobs: int = 1) -> Verified:
    *_, report = verify([str(path)], wanted, jobs=jobs)
    return report


def listed(root: Path, *folders: Path) -> Path:
    path = root / "data.list"
    path.write_text("".join(f"{folder} audio+metainfo\n" for folder in folders))
    return path


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_convert_wrote_is_sound(tmp_path: Path, jobs: int) -> None:
    convert(str(corpus.raw_list(tmp_path, 9).list), str(tmp_path / "out"), per_part=4)
    report = checked(tmp_path / "out/data.list", jobs=jobs)
    assert (report.items, report.utterances, report.findings) == (3, 9, [])
    assert checked(tmp_path / "out/data-00000", jobs=jobs).utterances == 4


def test_damaged_records_are_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    utterances = touchdataset.speech(5)
    utterances[1][1].pop("sample_rate")
    utterances[2] = (utterances[2][0], utterances[2][1] | {"start": 0.0, "end": 99.0})
    utterances[4][1]["key"] = "T0000"
    folder = touchdataset.write(tmp_path / "a", utterances)
    data = bytearray((folder / "metainfo.bin").read_bytes())
    data[data.index(b"T0003") - 2] = 0xFF
    (folder / "metainfo.bin").write_bytes(data)
    found = checked(listed(tmp_path, folder), WantedChecks())
    assert found.reasons == {"bad_line": 1, "bad_segment": 1, "duplicate_key": 1, "missing_sample_rate": 1}
    assert {e.key for e in found.findings if e.reason == "bad_segment"} == {"T0002"}
    assert f"{folder}/metainfo, utterance 2" in {e.url for e in found.findings}
    assert checked(folder, WantedChecks(rate=16_000)).reasons["wrong_rate"] == 2


def test_samples_that_are_no_numbers_are_found_by_decoding(tmp_path: Path) -> None:
    utterances = [(samples.astype(np.float32) / 32768, fields) for samples, fields in touchdataset.speech(3)]
    utterances[1][0][5] = np.nan
    path = listed(tmp_path, touchdataset.write(tmp_path / "a", utterances))
    assert checked(path, WantedChecks()).reasons == {}
    assert [(e.reason, e.key) for e in checked(path).findings] == [("nan_audio", "T0001")]


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("form", ["nemo", "raw"])
def test_durations_are_compared_with_the_audio(tmp_path: Path, form: str, decode: bool) -> None:
    path = plain(tmp_path, 5) if form == "nemo" else corpus.raw_list(tmp_path, 7).list
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row, duration in zip(rows, (0.1, -1, "x", 1e12), strict=False):
        for name in ("offset", "start", "end"):
            row.pop(name, None)
        row |= {"duration": duration, "id": f"d{duration}"}
    write(path, rows)
    found = checked(path, WantedChecks(decode=decode))
    assert (found.utterances, found.reasons) == (7, {"bad_duration": 3, "length_mismatch": 1})
    assert "`duration` says 0.1" in str(found.findings[0])
    delivered = uio.Loader((uio.from_nemo if form == "nemo" else uio.from_raw_list)(path).decode_audio().batch(1))
    assert sum(1 for _ in delivered) == 3
    assert delivered.stats().skipped == found.reasons, "and training says the same"


def test_durations_of_audio_whose_length_shows_only_in_decoding(tmp_path: Path) -> None:
    made = corpus.raw_list(tmp_path, 1)
    row = {"key": "a", "txt": "a"}
    path = tmp_path / "a.mp3"
    sf.write(path, np.zeros(16000), 16000, format="MP3")
    write(made.list, [row | {"wav": str(path), "duration": 0.1}])
    assert checked(made.list, WantedChecks()).reasons == {}
    assert checked(made.list).reasons == {"length_mismatch": 1}
    for duration, reasons in ((1.1, {}), (2, {}), (3, {"length_mismatch": 1})):  # 2 may stand for anything above 1
        write(made.list, [row | {"wav": str(path), "duration": duration}])
        assert checked(made.list).reasons == reasons, "cut off between two frames, nothing else shows it"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_that_cannot_be_opened_does_not_hide_the_others(tmp_path: Path, jobs: int) -> None:
    good, cut = (touchdataset.write(tmp_path / name, touchdataset.speech(3)) for name in ("good", "cut"))
    (cut / "audio.bin").write_bytes(b"12")
    report = checked(listed(tmp_path, good, cut, tmp_path / "gone", good), jobs=jobs)
    assert (report.utterances, report.reasons) == (3, {"bad_index": 2, "duplicate_shard": 1})
    assert [e.url for e in report.findings if e.reason == "bad_index"] == [str(cut), str(tmp_path / "gone")]


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_kaldi_folder(tmp_path: Path, segments: bool, jobs: int) -> None:
    made = kaldi_data.recordings(tmp_path, 6, segments=segments)
    report = checked(tmp_path, jobs=jobs)
    assert (report.items, report.utterances, report.findings) == (1, len(made.keys), [])
    (tmp_path / "R000.wav").write_bytes(b"RIFF")
    (tmp_path / "R001.wav").unlink()
    scp = (tmp_path / "wav.scp").read_text().splitlines(keepends=True)
    (tmp_path / "wav.scp").write_text("".join(scp[:-1]))
    report = checked(tmp_path, jobs=jobs)
    each = 2 if segments else 1
    assert report.reasons == {"bad_audio": each, "missing_file": each, "missing_recording": each}
    assert {e.key for e in report.findings if e.reason == "missing_recording"} == set(made.keys[-each:])


def test_features_of_a_kaldi_folder(tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 4)
    assert checked(tmp_path).reasons == {}
    data = (tmp_path / "feats.ark").read_bytes()
    row = arrays["F002"][3].tobytes()
    (tmp_path / "feats.ark").write_bytes(data.replace(row, np.full(6, np.nan, np.float32).tobytes()))
    assert checked(tmp_path, WantedChecks()).reasons == {}
    assert [(e.reason, e.key) for e in checked(tmp_path).findings] == [("bad_features", "F002")]


def test_commands_run_only_where_allowed(tmp_path: Path) -> None:
    kaldi_data.recordings(tmp_path, 2)
    path = tmp_path / "R000.wav"
    (tmp_path / "wav.scp").write_text(f"R000 cat {path} |\nR001 cat {tmp_path}/gone |\n")
    with pytest.raises(ListError, match="--allow-pipes"):
        checked(tmp_path)
    *_, report = verify([str(tmp_path)], DECODE, allow_pipes=True)
    assert (report.utterances, report.reasons) == (2, {"pipe_failed": 1})


def test_copies_are_named_by_their_lines_and_rows(tmp_path: Path) -> None:
    row = json.loads(plain(tmp_path, 1).read_text().splitlines()[0])
    one, two = (
        write(tmp_path / f"{name}.json", [row | {"id": key} for key in keys])
        for name, keys in (("one", "ab"), ("two", "cb"))
    )
    one.write_text("# a comment\n" + one.read_text())
    (found,) = checked(tmp_path / "{one,two}.json", WantedChecks()).findings
    assert (found.url, found.offset) == (f"{two}, line 2", None)
    assert f"the same key is in {one}, line 3:" in found.message
    rows = [{"id": "a", "text": "a", "audio": corpus.wav_bytes(0)}] * 2
    path = parquet_corpus.write(tmp_path / "a.parquet", rows)
    (found,) = checked(path, WantedChecks()).findings
    assert (found.url, "row group 0, row 0:" in found.message) == (f"{path}, row group 0, row 1", True)


def test_lists_and_folders_together(tmp_path: Path) -> None:
    raw = corpus.raw_list(tmp_path / "raw", 3)
    folder = touchdataset.write(tmp_path / "touch", [(s, f | {"key": "R0001"}) for s, f in touchdataset.speech(1)])
    *_, report = verify([str(folder), str(raw.list)], DECODE)
    assert (report.items, report.utterances) == (4, 4)
    assert [(e.reason, e.key) for e in report.findings] == [("duplicate_key", "R0001")]


def test_videos_are_decoded_if_wanted(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "a", touchdataset.speech(3))
    sound = video(50, form="matroska")
    records = [np.frombuffer(data, np.uint8) for data in (sound, sound[: len(sound) // 2], b"no video")]
    touchdataset.write_pair(folder / "video", records)
    (tmp_path / "data.list").write_text(f"{folder} audio+video+metainfo\n")
    assert checked(tmp_path / "data.list", WantedChecks()).findings == []
    found = checked(tmp_path / "data.list").findings
    assert [(one.reason, one.key) for one in found] == [("truncated_video", "T0001"), ("bad_video", "T0002")]
    assert checked(listed(tmp_path, folder)).findings == [], "which does not name them"


def test_rows_whose_audio_is_in_none_of_several_streamed_archives_are_told(tmp_path: Path) -> None:
    made("voxpopuli", tmp_path / "en", downloaded=True)
    with open(tmp_path / "en/data/en/asr_train.tsv", "a") as table:
        table.write("gone\tGone.\tgone\t2800\ttrain\tmale\tTrue\tNone\n")
    source = f"voxpopuli,part=train:{tmp_path}/en"
    report = checked(source, jobs=2)
    assert report.utterances == 3
    assert [(found.reason, found.key, found.url[-21:]) for found in report.findings] == [
        ("no_audio", "gone", "asr_train.tsv, line 6")
    ]
    seen = inspect(recognize(source).pipeline)
    assert (seen.utterances, seen.failures, seen.left_out) == (3, {"no_audio": 1}, {"not_kept": 1})
    assert "there is no member 'gone' in any of 2 archives" in seen.reports[0]
    done = convert(source, str(tmp_path / "out"), to="shards", per_part=3)
    assert (done.utterances, done.failed) == (3, {"no_audio": 1})


def test_a_text_of_another_name_is_found_by_verify_inspect_and_dict(tmp_path: Path) -> None:
    """What no loader could train on is not said to be sound."""
    sf.write(tmp_path / "a.wav", np.zeros(800), 16_000)
    line = {"id": "a", "audio_filepath": "a.wav", "sentence": "good day"}
    (tmp_path / "x.list").write_text(json.dumps(line) + "\n")
    (found,) = checked(tmp_path / "x.list").findings
    assert found.reason == "missing_text"
    assert 'sentence taken as txt, but no loader guesses: write fields={"txt": "sentence"}; text=None' in found.message
    assert not checked(tmp_path / "x.list", WantedChecks(text="")).findings
    assert not checked(tmp_path / "x.list", WantedChecks(fields={"txt": "sentence"})).findings
    assert "sentence taken as txt" in command.uio("inspect", tmp_path / "x.list").stdout
    done = command.uio("dict", tmp_path / "x.list", tmp_path / "units.txt")
    assert "d" in (tmp_path / "units.txt").read_text().split(), done.stderr
