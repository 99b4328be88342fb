"""``uio start``: for data of any kind it writes a training script that runs, and reads every utterance."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import command
import corpora_small
import corpus
import cuts_corpus
import helpers_bad
import kaldi_data
import nemo_data
import numpy as np
import parquet_corpus
import pytest
import soundfile
import touchdataset

import uio_pipes as uio
from uio_pipes.tools.data.finding.find import find_data
from uio_pipes.tools.data.recognize import Recognized, recognize
from uio_pipes.tools.data.start import begin


def of_several_kinds(root: Path) -> Path:
    """A raw list of audio of two rates, one of them with two channels."""
    lines = []
    for number, (rate, channels) in enumerate([(8_000, 1), (16_000, 2)] * 6):
        path = root / f"{number}.flac"
        soundfile.write(path, np.full((rate // 2, channels), 0.1), rate)
        lines.append(json.dumps({"key": str(number), "wav": str(path), "txt": "good day"}))
    (root / "several.list").write_text("\n".join(lines))
    return root / "several.list"


def texts(root: Path) -> Path:
    (root / "lines.txt").write_text("".join(f"line {number}\n" for number in range(60)))
    return root / "lines.txt"


def silent(root: Path) -> Path:
    (root / "silent.list").write_text(json.dumps({"key": "a", "wav": str(root / "a.wav")}) + "\n")
    (root / "a.wav").write_bytes(corpus.wav_bytes(1))
    return root / "silent.list"


def of_other_names(root: Path) -> Path:
    rows = [{"uid": row["id"], "clip": row["audio"], "sentence": row["text"]} for row in parquet_corpus.rows(7)]
    return parquet_corpus.write(root / "a.parquet", rows)


def of_hub(root: Path) -> Path:
    """A clone of a data set of the Hub, with two splits and a text of another name."""
    rows = [
        {"sentence" if name == "text" else name: own for name, own in row.items()} for row in parquet_corpus.rows(7)
    ]
    for split, some in (("train", rows), ("test", rows[:2])):
        parquet_corpus.write(root / "hub" / "data" / f"{split}-0.parquet", some)
    return root / "hub"


def foreign_lines(root: Path) -> Path:
    lines = [{"audio_path": f"wavs/{number}.wav", "sentence": "good day"} for number in range(6)]
    wavs(root)
    (root / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root / "x.jsonl"


def two_names(root: Path) -> Path:
    """Speakers as ids, nested audio, and texts under two names."""
    wavs(root)
    lines = [{"id": "S1", "rec": {"path": f"wavs/{number}.wav"}, ("text", "trn")[number % 2]: "good day"}
             for number in range(6)]  # fmt: skip
    lines = [line | {"trn": ["good day"]} if "trn" in line else line for line in lines]
    (root / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root / "x.jsonl"


def ljspeech(root: Path) -> Path:
    wavs(root)
    (root / "metadata.csv").write_text("".join(f'{n}|Good, day|Good, "day\n' for n in range(6)))
    return root / "metadata.csv"


def samples(root: Path) -> Path:
    row = {"samples": [0.1] * 1600, "sampling_rate": 8_000, "sentence": "good day"}
    return parquet_corpus.write(root / "a.parquet", [row] * 6)


def wavs(root: Path) -> Path:
    (root / "wavs").mkdir()
    for number in range(6):
        (root / "wavs" / f"{number}.wav").write_bytes(corpus.wav_bytes(number))
        (root / "wavs" / f"{number}.txt").write_text("good day\n")
    return root / "wavs"


def shards_in(root: Path, suffix: str, text: bytes) -> Path:
    for number in range(2):
        each = [((f"{number}{i}.wav", corpus.wav_bytes(i)), (f"{number}{i}.{suffix}", text)) for i in range(5)]
        (root / "shards").mkdir(exist_ok=True)
        helpers_bad.shard(root / "shards" / f"{number}.tar", [member for pair in each for member in pair])
    return root / "shards"


def kaldi(root: Path) -> Path:
    kaldi_data.recordings(root / "kaldi")
    return root / "kaldi"


def transcript(root: Path) -> Path:
    (kaldi(root) / "text").rename(root / "kaldi" / "transcript")
    return root / "kaldi"


def named(root: Path) -> str:
    making = corpora_small.made("emilia", root / "Emilia", downloaded=True)
    return f"emilia:{making.folder}"


def libri(root: Path) -> Path:
    return corpora_small.made("librispeech", root / "LibriSpeech", downloaded=False).folder


DATA: dict[str, tuple[Callable[[Path], object], int, tuple[str, ...]]] = {
    "shards": (lambda root: corpus.shards(root, [5, 6, 7]).list, 18, ("uio.from_shard_list(", ".tokenize(")),
    "raw list": (lambda root: corpus.raw_list(root, 9).list, 9, ("uio.from_raw_list(", ".decode_audio()  # wav: 9")),
    "several": (of_several_kinds, 12, (".mono()", ".resample(16_000)  # 8,000 Hz: 6, 16,000 Hz: 6")),
    "features": (lambda root: corpus.feature_shards(root, [5, 6]).list, 11, ("uio.from_shard_list(", ".tokenize(")),
    "cuts": (lambda root: cuts_corpus.cuts(root, 4), 4, ("uio.from_lhotse_cuts(",)),
    "nemo": (lambda root: nemo_data.plain(root, 6), 8, ("uio.from_nemo(",)),
    "tarred nemo": (lambda root: nemo_data.tarred(root, [2, 3]).manifests, 7, ("uio.from_nemo(", "audio_0.tar")),
    "parquet": (lambda root: parquet_corpus.write(root / "a.parquet", parquet_corpus.rows(7)), 7, ("from_parquet(",)),
    "indexed": (lambda root: touchdataset.write(root / "d", touchdataset.speech(5)), 5, ("uio.from_indexed(",)),
    "columns of other names": (of_other_names, 7, ('"wav": "clip"', ".decode_audio()")),
    "texts": (texts, 60, ("uio.from_text(", ".batch(2)  # texts", 'batch["target"].shape')),
    "no texts": (silent, 1, ("text=None",)),
    "clone of the Hub": (of_hub, 7, ("data/train-0.parquet", "sentence taken as txt")),
    "foreign lines": (
        foreign_lines,
        6,
        ('"txt": "sentence"', "# raw list, audio_path | stem taken as key, audio_path taken"),
    ),
    "two names": (two_names, 6, ('"key": "rec.path | stem"', '"txt": "text or trn.0"')),
    "LJSpeech": (ljspeech, 6, ('separator="|"', '"wav": "wavs/{1}.wav"')),
    "samples": (samples, 6, ('"sample_rate": "sampling_rate"',)),
    "Kaldi's transcript": (transcript, 12, ("kaldi/transcript",)),
    "folder of audio": (wavs, 6, ('from_raw_list("train.list"', "6 of 6 recordings have a text by the .txt of the")),
    "folder of shards": (lambda root: shards_in(root, "transcript", b"good day"), 10, ("transcript taken as txt",)),
    "texts in JSON": (lambda root: shards_in(root, "json", b'{"m": {"text": "t"}}'), 10, ('{"txt": "json:m.text"}',)),
    "Kaldi": (kaldi, 12, ("uio.from_kaldi(",)),
    "corpus": (named, 12, ('"emilia"',)),
    "folder of a corpus": (libri, 6, ('"librispeech"',)),
}


DAILY = (
    "shards",
    "features",
    "parquet",
    "columns of other names",
    "texts",
    "no texts",
    "several",
    "folder of audio",
    "corpus",
)


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.slow) for name in DATA]
)
def test_the_script_runs_and_reads_everything(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, count, code = DATA[name]
    data = str(make(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = command.uio("start", data, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    script = Path("train.py").read_text()
    assert [part for part in code if part not in script] == [], script
    assert (name != "no texts") == Path("tokens.txt").exists()
    told = command.programs("train.py")
    assert f"with {count} utterance" in told, told
    assert "epoch 1, batch" in told
    assert "failure" not in told
    assert [line for line in script.splitlines() if len(line) > 86 and str(tmp_path) not in line] == []


def test_of_few_data_an_epoch_has_some_batches_and_no_label_is_unknown(tmp_path: Path) -> None:
    made = begin(recognize(str(corpus.shards(tmp_path, [40, 40]).list)), str(tmp_path / "tokens.txt"))
    assert made.tokens[:4] == ["<blank>", "<unk>", "<sos/eos>", "0"]
    assert "文" in made.tokens
    (tmp_path / "tokens.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(made.tokens)))
    loader = uio.Loader(described(made.script))
    labels = [label for batch in loader for label in batch["target"].flatten().tolist()]
    assert 1 not in labels
    assert 12 < loader.stats().batches < 60


def test_what_else_is_in_a_folder_is_said(tmp_path: Path) -> None:
    """A folder is no corpus because its name is like that of one's; of two folders with lists, one is named."""
    corpus.raw_list(tmp_path / "data", 3).list.rename(tmp_path / "data" / "data.list")
    (tmp_path / "data" / "kaldi").mkdir()
    (tmp_path / "data" / "kaldi" / "text").write_text("a b\n")
    assert find_data(str(tmp_path)).path == str(tmp_path / "data" / "data.list")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "data.list").write_text("{}\n")
    found = find_data(str(tmp_path))
    assert found.notes == [f"{tmp_path}/data/data.list is read, and not more"]
    for name in ("data", "more"):
        (tmp_path / name / "data.list").unlink()
    parquet_corpus.write(tmp_path / "a.parquet", [{"text": "good day"}] * 3)
    done = command.uio("start", tmp_path, cwd=tmp_path)
    assert "a.parquet is read, and not data" in done.stdout
    assert "no audio was found in it (--fields wav=NAME" in done.stdout


def test_a_list_or_a_table_above_the_audio_is_read(tmp_path: Path) -> None:
    """Rows of a table for training go before those of a table of no split, and texts of files of their own."""
    foreign_lines(tmp_path)
    (tmp_path / "notes.tsv").write_text("who\twhen\nme\ttoday\n")
    (tmp_path / "train.tsv").write_text("path\tsentence\nwavs/0.wav\tgood morning\n")
    found = find_data(str(tmp_path))
    assert found.notes == ["1 of 1 row names a recording by column path of train.tsv"]
    assert [sample["txt"] for sample in uio.Loader(found.pipeline)] == ["good morning"]


@pytest.mark.parametrize("name", ["0.tar", "0.parquet"])
def test_of_several_parts_that_of_train_is_read_and_the_others_are_named(name: str, tmp_path: Path) -> None:
    for split in ("test", "train"):
        place = tmp_path / "data" / split
        place.mkdir(parents=True)
        if name == "0.parquet":
            parquet_corpus.write(place / name, parquet_corpus.rows(3))
        else:
            helpers_bad.shard(place / name, [("0.wav", corpus.wav_bytes(0)), ("0.txt", b"good day")])
    done = command.uio("start", "data", cwd=tmp_path)
    assert f"data: data/train/{name} is read, and not test" in done.stdout, done.stdout + done.stderr
    assert f'"data/train/{name}"' in (tmp_path / "train.py").read_text()


def test_what_is_given_goes_before_what_is_guessed_and_does_not_undo_it(tmp_path: Path) -> None:
    rows = [{"uid": "a", "speech_data": corpus.wav_bytes(0), "normalized": "good day"}] * 3
    path = str(parquet_corpus.write(tmp_path / "a.parquet", rows))
    found = find_data(path, fields={"txt": "normalized"})
    assert 'fields={"wav": "speech_data", "txt": "normalized"}' in found.call
    assert "normalized" not in found.kind


def test_segments_under_other_names_are_read_as_such(tmp_path: Path) -> None:
    wavs(tmp_path)
    row = {"file": "wavs/0.wav", "start_time": 0, "end_time": 0.1, "text": "good day"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (sample,) = uio.Loader(find_data(str(tmp_path / "a.jsonl")).pipeline)
    assert (sample["start"], sample["end"]) == (0, 0.1)


def test_a_list_without_our_text_is_joined_by_what_seems_to_be_one(tmp_path: Path) -> None:
    wavs(tmp_path)
    lines = [{"key": f"k{n}", "wav": f"wavs/{n}.wav", "caption": "good day"} for n in (0, 1, 9)]
    (tmp_path / "a.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = command.uio("start", "a.list", cwd=tmp_path).stdout
    assert "a.list: 2 of 3 rows name a recording by column wav of a.list" in told
    bad = shards_in(tmp_path, "snd", b"good day") / "0.tar"
    assert "no utterance that can be read" not in command.uio("start", bad, "--out", "b.py", cwd=tmp_path).stderr


def test_members_of_other_names_are_told_as_options(tmp_path: Path) -> None:
    members = [(f"{n}.{name}", data) for n in range(4) for name, data in (("snd", corpus.wav_bytes(n)), ("lab", b"hi"))]
    helpers_bad.shard(tmp_path / "a.tar", members)
    done = command.uio("start", "a.tar", cwd=tmp_path)
    assert "write --fields wav=snd; name txt likewise" in done.stderr
    done = command.uio("start", "a.tar", "--fields", "wav=snd,txt=lab", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def described(script: str) -> uio.Pipeline:
    """The pipeline of a script, without its loop."""
    names: dict[str, uio.Pipeline] = {}
    exec(compile(ast.Module(ast.parse(script).body[:-1], []), "train.py", "exec"), names)
    return names["pipeline"]


def test_of_large_data_only_the_first_utterances_are_looked_at(tmp_path: Path) -> None:
    made = begin(recognize(str(corpus.raw_list(tmp_path, 9).list)), "tokens.txt", limit=4)
    assert "which saw the first 4 utterances" in made.script
    assert "of what was seen; all: uio dict" in made.script
    assert "max_frames=12_000" in made.script, "how many there are is not known"


def test_what_has_no_script_says_what_to_do(tmp_path: Path) -> None:
    made = corpus.shards(tmp_path, [2])
    with pytest.raises(uio.ListError, match=r"conversations.md has one"):
        begin(Recognized("a", "mixture", uio.from_shard_list(made.list)), "tokens.txt")
    bad = corpus.shards(tmp_path / "bad", [1], damage=["truncated"])
    with pytest.raises(uio.ListError, match=r"no utterance that can be read: .*\[truncated\]"):
        begin(recognize(str(bad.list)), "tokens.txt")


def test_what_is_not_here_is_told_how_to_be_named(tmp_path: Path) -> None:
    kaldi_data.recordings(tmp_path / "data" / "train")
    assert find_data(str(tmp_path / "data")).call.startswith("uio.from_kaldi(")
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"audio": "a.wav", "text": "t"}]).save_to_disk(tmp_path / "saved")
    (tmp_path / "empty").mkdir()
    told = {
        "librispeech": "name its folder, too, as in uio start librispeech:FOLDER (uio corpora librispeech says",
        "data/missing": "there is no ",
        "saved": "a folder of datasets' save_to_disk: uio.from_iterable(datasets.load_from_disk(",
        "empty": "empty is empty",
    }
    for given, line in told.items():
        path = given if given == "librispeech" else str(tmp_path / given)
        with pytest.raises(uio.ListError) as caught:
            find_data(path)
        assert line in str(caught.value), given


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    made = corpus.shards(tmp_path, [3])
    (tmp_path / "train.py").write_text("mine")
    done = command.uio("start", made.list, cwd=tmp_path)
    assert (done.returncode, "train.py is there already: remove it, or name another by --out" in done.stderr) == (
        2,
        True,
    )
    assert "there is no nope.list" in command.uio("start", "nope.list", cwd=tmp_path).stderr, "the input comes first"
    done = command.uio("start", made.list, "--out", "other.py", "--table", "other.txt", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"script": "other.py", "table": "other.txt", "tokens": 7}
    assert (tmp_path / "train.py").read_text() == "mine"
    for name in ("train.py", "tokens.txt"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "train.pt").write_text("of another script")
    done = command.uio("start", made.list, cwd=tmp_path)
    assert (done.returncode, "train.pt is there already: remove it" in done.stderr) == (2, True)
    (tmp_path / "third.list").write_text("mine")
    done = command.uio("start", wavs(tmp_path), "--out", "third.py", "--table", "third.txt", cwd=tmp_path)
    assert "third.list is there already" in done.stderr
    (tmp_path / "fourth.list").write_text(json.dumps({"key": "a", "wav": "wavs/0.wav", "txt": "t"}))
    done = command.uio("start", "fourth.list", "--out", "fourth.py", "--table", "fourth.txt", cwd=tmp_path)
    assert "audio files in" not in done.stderr, "a list of one's own, which is not written"
