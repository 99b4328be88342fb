"""The kind of data at a path, and what inspect, verify and convert make of it."""

import json
from pathlib import Path

import corpus
import cuts_corpus
import numpy as np
import parquet_corpus
import pytest
import touchdataset
from nemo_data import plain, tarred

import uio_pipes as uio
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.convert import convert
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.verify import Verified, verify
from uio_pipes.tools.reports.inspect import inspect


def checked(path: object, wanted: WantedChecks | None = None) -> Verified:
    *_, report = verify([str(path)], wanted)
    return report


def test_a_raw_list_that_was_made_of_cuts_is_one(tmp_path: Path) -> None:
    cuts = cuts_corpus.cuts(tmp_path, 4)
    made = convert(str(cuts), str(tmp_path / "raw"), to="raw")
    assert '"supervisions"' in Path(made.data_list).read_text()
    assert recognize(str(cuts)).kind == "Lhotse's cuts"
    found = recognize(made.data_list)
    assert (found.kind, inspect(found.pipeline).utterances) == ("raw list", made.utterances)
    assert checked(made.data_list).findings == []


@pytest.mark.parametrize("name", ["audio_filename", "audio_file"])
def test_every_name_of_a_manifests_audio_is_known_also_behind_a_mark_of_order(tmp_path: Path, name: str) -> None:
    manifest = plain(tmp_path, 3)
    manifest.write_bytes(b"\xef\xbb\xbf" + manifest.read_bytes().replace(b"audio_filepath", name.encode()))
    found = recognize(str(manifest))
    assert found.kind == "NeMo manifest"
    assert inspect(found.pipeline).utterances == checked(manifest).utterances > 0


def test_manifests_are_named_as_nemo_does(tmp_path: Path) -> None:
    data = tarred(tmp_path, [2, 3])
    found = recognize(data.manifests)
    assert (found.kind, inspect(found.pipeline).utterances) == ("NeMo manifest", 7)
    assert (checked(data.manifests).utterances, checked(data.manifests).findings) == (7, [])


def test_the_first_line_may_be_damaged(tmp_path: Path) -> None:
    made = corpus.raw_list(tmp_path, 3)
    made.list.write_text("{broken\n" + made.list.read_text())
    assert recognize(str(made.list)).kind == "raw list"
    assert checked(made.list).reasons == {"bad_line": 1}


def test_lines_of_text_and_pairs_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.zh").write_bytes("今天1/2\n\n".encode() + b"\xff\n" + "明天\n".encode())
    (tmp_path / "a.en").write_text("today\nnothing\nbad\ntomorrow\n")
    pairs = json.dumps({"txt": str(tmp_path / "a.zh"), "target": str(tmp_path / "a.en")})
    for path, kind in ((str(tmp_path / "a.zh"), "lines of text"), (pairs, "text files side by side")):
        found = recognize(path)
        seen = inspect(found.pipeline)
        assert (found.kind, seen.utterances) == (kind, 2)
        assert (seen.failures, seen.left_out) == ({"bad_text": 1}, {"blank_line": 1})
        report = checked(path)
        assert (report.utterances, report.reasons) == (2, {"bad_text": 1})
        with pytest.raises(uio.ListError, match="no audio to convert"):
            convert(path, str(tmp_path / "out"))
        with pytest.raises(uio.ListError, match="leave --fields out"):
            recognize(path, fields={"txt": "a"})
    assert not (tmp_path / "out").exists()


def test_fields_of_other_names_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"doc": 1, "content": "a"}\n')
    parquet_corpus.write(tmp_path / "p.parquet", [{"sentence": "a", "speech": corpus.wav_bytes(0)}])
    whispered = [
        (samples, {k: v for k, v in f.items() if k != "txt"} | {"whisper": "a"})
        for samples, f in touchdataset.speech(1)
    ]
    touchdataset.write(tmp_path / "t", whispered)
    raw = corpus.raw_list(tmp_path / "r", 1).list
    raw.write_text(raw.read_text().replace('"wav"', '"path"').replace('"txt"', '"words"'))
    for name, fields in {
        "t.jsonl": {"txt": "content"},
        "p.parquet": {"txt": "sentence", "wav": "speech"},
        "t": {"txt": "whisper"},
        f"{tmp_path}/t audio+metainfo": {"txt": "whisper"},
        str(raw): {"wav": "path", "txt": "words"},
    }.items():
        path = name if name[0] == "/" else str(tmp_path / name)
        found = inspect(recognize(path, fields=fields).pipeline)
        assert (found.utterances, found.texts, found.failures) == (1, 1, {}), path
        report = checked(path, WantedChecks(decode=True, fields=fields))
        assert (report.utterances, report.findings) == (1, []), path
    done = convert(str(tmp_path / "p.parquet"), str(tmp_path / "out"), fields={"txt": "sentence", "wav": "speech"})
    assert done.utterances == 1


def test_a_line_of_a_touchdatasets_list_is_taken_itself(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "a", touchdataset.speech(3))
    touchdataset.write_pair(folder / "depth", [np.zeros(2, np.float32)] * 3)
    found = recognize(f"{folder} audio+depth+metainfo")
    seen = inspect(found.pipeline)
    assert (found.kind, seen.utterances, seen.fields["depth"]) == ("TouchDataset folder", 3, 3)
    report = checked(f"{folder} audio+depth+metainfo")
    assert (report.utterances, report.findings) == (3, [])
