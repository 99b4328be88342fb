"""Data that no source reads: named as what they are, with a line of Python that does read them; never passed over."""

import json
import re
from pathlib import Path
from typing import Any

import datasets
import parquet_corpus
import pytest
from command import uio as command
from corpus import wav_bytes

import uio_pipes as uio
from uio_pipes.tools.data.recognize import recognize

COUNT = 3


@pytest.fixture
def audio(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{i}.wav" for i in range(COUNT)]
    for i, path in enumerate(paths):
        path.write_bytes(wav_bytes(i))
    return list(map(str, paths))


def utterances(line: str, **names: Any) -> list[dict[str, Any]]:
    """What the line of Python in a message reads."""
    graph = eval(line, {"uio": uio, **names})
    return list(uio.Loader(graph.decode_audio()))


def told(path: Path) -> str:
    """The message that all commands give, each with another exit status than success."""
    with pytest.raises(uio.ListError) as caught:
        recognize(str(path))
    for name in ("inspect", "verify"):
        done = command(name, path)
        assert (done.returncode, "nothing is wrong" in done.stdout) == (2, False), done.stdout
        assert ("nothing was checked" in done.stderr) == (name == "verify")
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.tsv", "client_id\tpath\tsentence", "c{i}\t{wav}\tt{i}"),
        ("a.csv", "id,path,text", "{i},{wav},t{i}"),
        ("b.csv", "wav;transcript", "{wav};t{i}"),
        ("c.tsv", "", "k{i}\t{wav}\tt{i}"),
        ("c.txt", "", "k{i}\t{wav}\tt{i}"),
        ("d.lst", "", "{wav},t{i}"),
        ("vits.txt", "", "{wav}|t{i}"),
        ("speakers.txt", "", "{wav}|{i}|t{i}"),
    ],
)
def test_a_table_is_read_and_the_commands_say_what_is_which(
    name: str, header: str, row: str, tmp_path: Path, audio: list[str]
) -> None:
    rows = [row.format(i=i, wav=wav) for i, wav in enumerate(audio)]
    path = tmp_path / name
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    known = recognize(str(path))
    assert known.kind.startswith("table (")
    assert "txt=" in known.kind
    assert ("uio.Table(" in known.call) == (name in ("b.csv", "c.tsv", "c.txt", "d.lst", "vits.txt", "speakers.txt")), (
        "if the name tells not enough"
    )
    assert [s["txt"] for s in uio.Loader(known.pipeline.decode_audio())] == [f"t{i}" for i in range(COUNT)]
    for command_name in ("inspect", "verify"):
        done = command(command_name, path, "--json")
        assert (done.returncode, json.loads(done.stdout)["utterances"]) == (0, COUNT), done.stderr
    done = command("convert", path, tmp_path / "out", "--to", "shards")
    assert done.returncode == 0, done.stderr
    assert [s["txt"] for s in uio.Loader(uio.from_shard_list(tmp_path / "out" / "data.list"))] == ["t0", "t1", "t2"]


def test_a_table_whose_names_tell_nothing_needs_fields(tmp_path: Path, audio: list[str]) -> None:
    (tmp_path / "in/a/box").mkdir(parents=True)
    for path in map(Path, audio):
        path.rename(tmp_path / "in/a/box" / path.name)
    (tmp_path / "a.tsv").write_text("clip\tsaid\n" + "".join(f"{i}\tt{i}\n" for i in range(COUNT)))
    message = told(tmp_path / "a.tsv")
    assert "a table with the columns clip, said, of which none seems to be the audio" in message
    assert "--fields wav=clips/{path},txt=sentence" in message
    for name in ("inspect", "verify"):
        done = command(name, tmp_path / "a.tsv", "--fields", "wav=in/a/box/{clip}.wav,txt=said | s/t/T, no /", "--json")
        assert (done.returncode, json.loads(done.stdout)["utterances"]) == (0, COUNT), done.stderr


def test_a_table_with_audio_missing_is_found_wanting(tmp_path: Path, audio: list[str]) -> None:
    (tmp_path / "a.tsv").write_text("path\ttxt\n0.wav\ta\ngone.wav\tb\n")
    done = command("verify", tmp_path / "a.tsv")
    assert (done.returncode, "1 no_audio" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.parametrize("ends", ["end", "duration", ""])
@pytest.mark.parametrize("begins", ["start", "start_time", ""])
def test_a_table_of_segments_is_read_as_such(begins: str, ends: str, tmp_path: Path, audio: list[str]) -> None:
    """A start without an end, or an end without a start, is none."""
    names = ["file", begins or "other", ends or "more", "text", "speaker"]
    rows = [[audio[0], f"0.00{i}", f"0.00{i + 1}", f"t{i}", "s"] for i in range(1, 1 + COUNT)]
    (tmp_path / "a.csv").write_text("\n".join(map(",".join, [names, *rows])) + "\n")
    got = list(uio.Loader(recognize(str(tmp_path / "a.csv")).pipeline))
    starts = [0.001, 0.002, 0.003] if begins and ends else [None] * COUNT
    assert [sample.get("start") for sample in got] == starts
    assert [sample.get("speaker") for sample in got] == ["s"] * COUNT


@pytest.mark.parametrize("other", ["more", "utt"])
def test_a_column_whose_values_repeat_is_no_key(other: str, tmp_path: Path, audio: list[str]) -> None:
    rows = "".join(f"{wav},t{i},{i // 2},u{i}\n" for i, wav in enumerate(audio))
    (tmp_path / "a.csv").write_text(f"path,text,id,{other}\n{rows}")
    keys = [sample["key"] for sample in uio.Loader(recognize(str(tmp_path / "a.csv")).pipeline)]
    assert keys == [f"u{i}" if other == "utt" else f"{i}" for i in range(COUNT)]


def annotated(form: str, audio: list[str]) -> str:
    if form == "stm":
        return "".join(f"{i} 1 s{i} 0.0 0.002 <x> t{i}\n" for i in range(COUNT))
    segments = [[{"sid": f"{i}", "begin_time": 0, "end_time": 0.002, "text": f"t{i}"}] for i in range(COUNT)]
    audios = [{"path": wav, "segments": one} for wav, one in zip(audio, segments, strict=True)]
    return json.dumps({"dataset": "x", "audios": audios}, indent=1 if form == "indented" else None)


@pytest.mark.parametrize(("form", "key", "wav"), [
    ("stm", "recording", "{recording}.wav"), ("json", "sid", "path"), ("indented", "sid", "path"),
])  # fmt: skip
def test_rows_that_name_their_columns_are_no_text(
    form: str, key: str, wav: str, tmp_path: Path, audio: list[str]
) -> None:
    """What the message says to write is taken, and then they are a table."""
    path = tmp_path / ("a.stm" if form == "stm" else "a.json")
    path.write_text(annotated(form, audio))
    with pytest.raises(uio.ListError, match=r"audios\.segments" if form != "stm" else "recording, channel") as caught:
        recognize(str(path))
    (line,) = re.findall(r"--fields '(.*?)'", str(caught.value))
    fields = dict(pair.split("=", 1) for pair in line.split(",")) | {"wav": wav, "key": key}
    assert fields.items() >= {"txt": "text", "start": "start" if form == "stm" else "begin_time"}.items()
    if form == "json":  # whole recordings
        whole = recognize(str(path), fields={"wav": "path"})
        assert [s["key"] for s in uio.Loader(whole.pipeline)] == [str(i) for i in range(COUNT)]
    found = recognize(str(path), fields=fields)
    assert [(s["key"], s["txt"], s["end"]) for s in uio.Loader(found.pipeline)] == [
        (str(i), f"t{i}", 0.002) for i in range(COUNT)
    ]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_has_other_names_is_packed_by_them(form: str, tmp_path: Path, audio: list[str]) -> None:
    rows = [{"utt": str(i), "speech": audio[i], "words": f"t{i}"} for i in range(COUNT)]
    path = tmp_path / f"a.{form}"
    if form == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        parquet_corpus.write(path, [{**row, "speech": Path(row["speech"]).read_bytes()} for row in rows])
    done = command("pack", path, tmp_path / "out", "--fields", "key=utt,wav=speech,txt=words", "--jobs", 1)
    assert done.returncode == 0, done.stderr
    packed = uio.Loader(uio.from_shard_list(tmp_path / "out/shards.list"))
    assert [(s["key"], s["txt"]) for s in packed] == [(str(i), f"t{i}") for i in range(COUNT)]


def test_lines_that_name_audio_are_no_text(tmp_path: Path, audio: list[str]) -> None:
    (tmp_path / "wav.list").write_text("".join(f"k{i} {wav}\n" for i, wav in enumerate(audio)))
    assert "name files in a form that no source reads" in told(tmp_path / "wav.list")
    for text in (
        "see http://a.b/c\nnothing\n",
        "a,b\nc,d\n",
        "one\ttwo\nthree\tfour\n",
        "今天1/2\n",
        "see /a/b\n\nno\n",
    ):
        (tmp_path / "text.txt").write_text(text)
        assert recognize(str(tmp_path / "text.txt")).kind == "lines of text"
    done = command("verify", tmp_path / "text.txt")
    assert (done.returncode, "of which only UTF-8 was checked" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("text", ["text", "sentence"])
def test_json_lines_that_name_audio_otherwise(text: str, tmp_path: Path, audio: list[str]) -> None:
    lines = [{"id": i, "path": wav, text: f"t{i}"} for i, wav in enumerate(audio)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    message = told(tmp_path / "a.jsonl")
    assert 'fields={"key": "id"}; name wav and txt likewise' in message
    fields = {"key": "id", "wav": "path", "txt": text}
    got = uio.Loader(uio.from_raw_list(tmp_path / "a.jsonl", fields=fields).decode_audio())
    assert [(s["key"], s["txt"]) for s in got] == [(str(i), f"t{i}") for i in range(COUNT)]
    names = ",".join(map("=".join, fields.items()))
    for name in ("inspect", "verify"):
        done = command(name, tmp_path / "a.jsonl", "--fields", names)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("column", ["speech", "file"])
def test_a_folder_of_save_to_disk(column: str, several: bool, tmp_path: Path, audio: list[str]) -> None:
    """A column of audio under any name, or one of paths, which has no type of its own."""
    data = datasets.Dataset.from_dict({column: audio, "sentence": [f"t{i}" for i in range(COUNT)]})
    data = data.cast_column(column, datasets.Audio()) if column == "speech" else data
    whole = datasets.DatasetDict({"dev": data.select([0]), "train": data}) if several else data
    whole.save_to_disk(tmp_path / "data")
    message = told(tmp_path / "data")
    assert "save_to_disk" in message
    got = utterances(message[message.index("uio.") : message.index(" reads it")], datasets=datasets)
    assert [s["txt"] for s in got] == [f"t{i}" for i in range(COUNT)]


def test_a_folder_of_save_to_disk_of_which_no_column_is_known_shows_its_columns(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"one": ["a"], "two": ["b"]}).save_to_disk(tmp_path / "data")
    message = told(tmp_path / "data")
    assert "reads it in Python, once fields= says which of one, two is wav" in message


def test_an_scp_of_any_name_is_looked_at(tmp_path: Path, audio: list[str]) -> None:
    for name in ("train_wav.scp", "wav.scp"):
        path = tmp_path / name
        path.write_text("".join(f"k{i} {wav}\n" for i, wav in enumerate(audio)))
        assert recognize(str(path)).kind == "Kaldi's scp"
        assert (command("verify", path).returncode, command("inspect", path).returncode) == (0, 0)
        path.write_text("a gone.wav\nb gone/too.wav\n")
        done = command("verify", path)
        assert (done.returncode, "2 missing_file" in done.stdout) == (1, True), done.stdout + done.stderr
    (tmp_path / "feats.scp").write_text("a gone.ark:2\n")
    done = command("verify", tmp_path / "feats.scp")
    assert (done.returncode, "gone.ark" in done.stderr) == (2, True)
