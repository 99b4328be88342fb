"""The kind of data at a path, which column is which, and what inspect, verify and convert make of it; what no source
reads is never passed over."""

import json
import re
from pathlib import Path
from typing import Any

import corpus
import cuts_corpus
import datasets
import numpy as np
import parquet_corpus
import pytest
import touchdataset
from command import uio as command
from converting import convert
from nemo_data import plain, tarred

import uio_pipes as uio
from uio_pipes.sources.table.source import ListTable
from uio_pipes.sources.text import ListText
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.recognize import FORMATS, recognize
from uio_pipes.tools.data.verify import Verified, verify
from uio_pipes.tools.reports.inspect import inspect

COUNT = 3
TEXTS = [f"good day {word}" for word in ("one", "two", "three")]


@pytest.fixture
def audio(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{i}.wav" for i in range(COUNT)]
    for i, path in enumerate(paths):
        path.write_bytes(corpus.wav_bytes(i))
    return list(map(str, paths))


def test_the_page_has_a_row_for_each_format_in_its_own_words() -> None:
    page = (Path(__file__).parents[3] / "docs" / "your_data.md").read_text()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    for one in (*FORMATS, ListTable, ListText):
        assert rows.count(one.sentence) == 1, one.sentence


def checked(path: object, wanted: WantedChecks | None = None) -> Verified:
    *_, report = verify([str(path)], wanted)
    return report


def seen(pipeline: uio.Pipeline, name: str = "txt") -> list[Any]:
    return [sample.get(name) for sample in uio.Loader(pipeline)]


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
        contents = inspect(found.pipeline)
        assert (found.kind, contents.utterances) == (kind, 2)
        assert (contents.failures, contents.left_out) == ({"bad_text": 1}, {"blank_line": 1})
        report = checked(path)
        assert (report.utterances, report.reasons) == (2, {"bad_text": 1})
        with pytest.raises(uio.ListError, match="no audio: it is"):
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
    contents = inspect(found.pipeline)
    assert (found.kind, contents.utterances, contents.fields["depth"]) == ("TouchDataset folder", 3, 3)
    report = checked(f"{folder} audio+depth+metainfo")
    assert (report.utterances, report.findings) == (3, [])


# Tables: their name, header, and a row of number i; whether it takes uio.Table to say how they are written
TABLES = {
    "a.tsv": ("client_id\tpath\tsentence", "c{i}\t{wav}\t{txt}", False),
    "a.csv": ("id,path,text", "{i},{wav},{txt}", False),
    "b.csv": ("wav;transcript", "{wav};{txt}", True),
    "c.tsv": ("", "k{i}\t{wav}\t{txt}", True),
    "c.txt": ("", "k{i}\t{wav}\t{txt}", True),
    "d.lst": ("", "{wav},{txt}", True),
    "speakers.txt": ("", "{wav}|7{i}|{txt}", True),
    "e.csv": ("path,text,id,utt", "{wav},{txt},same,u{i}", False),
    "f.csv": ("file,start_time,duration,text,speaker", "{i},0.001,0.002,{txt},s", False),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_in_place_and_what_is_which_is_said(name: str, tmp_path: Path, audio: list[str]) -> None:
    header, row, described = TABLES[name]
    rows = [row.format(i=i, wav=wav, txt=txt) for i, (wav, txt) in enumerate(zip(audio, TEXTS, strict=True))]
    path = tmp_path / name
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    known = recognize(str(path))
    assert known.kind.startswith("table (")
    assert ("uio.Table(" in known.call) == described
    assert seen(known.pipeline.decode_audio()) == TEXTS
    assert seen(known.pipeline, "start") == [0.001 if name == "f.csv" else None] * COUNT
    assert seen(known.pipeline, "key")[1] == {"a.csv": "1", "e.csv": "u1", "f.csv": "1-00000001"}.get(name, "1")
    done = convert(str(path), str(tmp_path / "out"), to="shards")
    assert seen(uio.from_shard_list(done.data_list)) == TEXTS


def test_a_table_whose_names_tell_nothing_needs_fields(tmp_path: Path, audio: list[str]) -> None:
    folder = tmp_path / "sub"
    (folder / "in/a/box").mkdir(parents=True)
    for path in map(Path, audio):
        path.rename(folder / "in/a/box" / path.name)
    (folder / "a.tsv").write_text("clip\tsaid\n" + "".join(f"{i}\tt{i}\n" for i in range(COUNT)))
    for name in ("inspect", "verify"):
        done = command(name, folder / "a.tsv")
        assert (done.returncode, "nothing was checked" in done.stderr) == (2, name == "verify")
        told = done.stderr.replace("\n", " ")
        assert "a table with the columns clip, said, of which none seems to be the audio" in told
        assert "--fields wav=clips/{path},txt=sentence" in told
        done = command(name, folder / "a.tsv", "--fields", "wav=in/a/box/{clip}.wav,txt=said | s/t/T, no /", "--json")
        assert (done.returncode, json.loads(done.stdout)["utterances"]) == (0, COUNT), done.stderr


def test_a_table_with_audio_missing_is_found_wanting(tmp_path: Path, audio: list[str]) -> None:
    (tmp_path / "a.tsv").write_text("path\ttxt\n0.wav\ta\ngone.wav\tb\n")
    done = command("verify", tmp_path / "a.tsv")
    assert (done.returncode, "1 no_audio" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.parametrize("indent", [None, 1])
def test_rows_in_lists_of_a_json_and_annotations_are_tables(
    indent: int | None, tmp_path: Path, audio: list[str]
) -> None:
    segments = [[{"sid": f"{i}", "begin_time": 0, "end_time": 0.002, "text": f"t{i}"}] for i in range(COUNT)]
    audios = [{"path": wav, "segments": one} for wav, one in zip(audio, segments, strict=True)]
    (tmp_path / "a.json").write_text(json.dumps({"dataset": "x", "audios": audios}, indent=indent))
    (tmp_path / "a.stm").write_text("".join(f"{i} 1 s{i} 0.0 0.002 <x> t{i}\n" for i in range(COUNT)))
    for name in ("a.json", "a.stm"):
        found = recognize(str(tmp_path / name)).pipeline
        assert (seen(found), seen(found, "end")) == (["t0", "t1", "t2"], [0.002] * COUNT)
    whole = recognize(str(tmp_path / "a.json"), fields={"wav": "path"})  # not what is in its lists
    assert seen(whole.pipeline, "end") == [None] * COUNT
    (tmp_path / "b.stm").write_text("gone 1 s 0.0 0.002 <x> t\n")
    with pytest.raises(uio.ListError, match="recording, channel"):
        recognize(str(tmp_path / "b.stm"))


def test_lines_that_name_audio_are_no_text(tmp_path: Path, audio: list[str]) -> None:
    (tmp_path / "wav.list").write_text("".join(f"k{i} {wav}\n" for i, wav in enumerate(audio)))
    with pytest.raises(uio.ListError, match="name files in a form that no source reads"):
        recognize(str(tmp_path / "wav.list"))
    for text in ("see http://a.b/c\nno\n", "a,b\nc,d\n", "one\ttwo\nthree\tfour\n", "今天1/2\n", "see /a/b\n\nno\n"):
        (tmp_path / "text.txt").write_text(text)
        assert recognize(str(tmp_path / "text.txt")).kind == "lines of text"
    done = command("verify", tmp_path / "text.txt")
    assert (done.returncode, "of which only UTF-8 was checked" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("several", [False, True])
def test_a_folder_of_save_to_disk_is_told_what_reads_it(several: bool, tmp_path: Path, audio: list[str]) -> None:
    data = datasets.Dataset.from_dict({"wav": audio, "txt": TEXTS})
    (datasets.DatasetDict({"dev": data.select([0]), "train": data}) if several else data).save_to_disk(tmp_path / "d")
    with pytest.raises(uio.ListError, match=r"of datasets' save_to_disk: (.*) reads it in Python") as caught:
        recognize(str(tmp_path / "d"))
    (line,) = re.findall(r"save_to_disk: (.*) reads", str(caught.value))
    assert seen(eval(line, {"uio": uio, "datasets": datasets}).decode_audio()) == TEXTS


def test_an_scp_of_any_name_is_looked_at(tmp_path: Path, audio: list[str]) -> None:
    path = tmp_path / "train_wav.scp"
    path.write_text("".join(f"k{i} {wav}\n" for i, wav in enumerate(audio)))
    assert recognize(str(path)).kind == "Kaldi's scp"
    assert checked(path).findings == []
    path.write_text("a gone.wav\nb gone/too.wav\n")
    assert checked(path).reasons == {"missing_file": 2}
    (tmp_path / "feats.scp").write_text("a gone.ark:2\n")
    done = command("verify", tmp_path / "feats.scp")
    assert (done.returncode, "gone.ark" in done.stderr) == (2, True)
