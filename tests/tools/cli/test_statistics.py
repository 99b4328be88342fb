"""``uio cmvn``, ``uio dict`` and ``uio spm``: of raw lists, shards and Kaldi folders the same."""

import json
from pathlib import Path

import cuts_corpus
import nemo_data
import parquet_corpus
import pytest
import touchdataset
from command import uio, write_list

import uio_pipes
from uio_pipes.dsp.features import read_cmvn

COUNT = 40
TEXTS = ["今天 天气", "OK 好", "{NOISE}好", "公园散步"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw list and shards of it."""
    folder = tmp_path_factory.mktemp("statistics")
    raw_list = write_list(folder / "corpus", COUNT)
    lines = [json.loads(line) | {"txt": TEXTS[i % 4]} for i, line in enumerate(raw_list.read_text().splitlines())]
    (folder / "raw.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert uio("pack", folder / "raw.list", folder / "shards", "--per-shard", 9).returncode == 0
    return folder


def test_cmvn_of_a_raw_list_and_of_its_shards_are_the_same_and_those_of_the_pipeline(
    corpus: Path, tmp_path: Path
) -> None:
    raw = uio("cmvn", corpus / "raw.list", tmp_path / "raw", "--json", "--jobs", 1)
    assert (raw.returncode, json.loads(raw.stdout)["utterances"]) == (0, COUNT), raw.stderr
    shard = uio("cmvn", corpus / "shards/shards.list", tmp_path / "shard", "--jobs", 2)
    assert shard.returncode == 0, shard.stderr
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("raw", "shard"))
    assert a["frame_num"] == b["frame_num"] == json.loads(raw.stdout)["frames"]
    assert a["mean_stat"] == pytest.approx(b["mean_stat"], rel=1e-9)
    features = uio_pipes.from_raw_list(corpus / "raw.list").decode_audio().fbank(num_mel_bins=80).global_cmvn(
        str(tmp_path / "raw"))  # fmt: skip
    batch = next(iter(uio_pipes.Loader(features.batch(COUNT).pad())))
    mean = batch["feats"].sum((0, 1)) / batch["feats_lengths"].sum()
    assert mean.abs().max() < 1.0, "padding aside, normalized features are around 0"


def test_dictionary_and_statistics_of_every_kind_of_data(tmp_path: Path) -> None:
    nemo = nemo_data.plain(tmp_path / "nemo", 4)
    made = [
        (nemo, uio_pipes.from_nemo(nemo)),
        (cuts := cuts_corpus.cuts(tmp_path, 4), uio_pipes.from_lhotse_cuts(cuts)),
        (rows := parquet_corpus.write(tmp_path / "a.parquet", parquet_corpus.rows(4)), uio_pipes.from_parquet(rows)),
        (touch := touchdataset.write(tmp_path / "touch", touchdataset.speech(4)), uio_pipes.from_indexed(touch)),
    ]
    for path, pipeline in made:
        done = uio("dict", path, tmp_path / "words", "--json")
        texts = [sample["txt"] for sample in uio_pipes.Loader(pipeline)]
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tokens"] == len(set("".join(texts).replace(" ", ""))) + 3 + any(
            " " in t for t in texts
        )
        done = uio("cmvn", path, tmp_path / "sums", "--json", "--jobs", 1)
        assert (done.returncode, json.loads(done.stdout)["utterances"]) == (0, len(texts)), done.stderr


def test_cmvn_takes_the_features_of_a_yaml(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "dataset_conf:\n  feats_type: mfcc\n  mfcc_conf: {num_mel_bins: 40, num_ceps: 13}\n"
    )
    done = uio("cmvn", corpus / "raw.list", tmp_path / "out", "--conf", tmp_path / "a.yaml", "--json")
    assert (done.returncode, json.loads(done.stdout)["bins"]) == (0, 13), done.stderr
    assert len(read_cmvn(tmp_path / "out").mean) == 13
    (tmp_path / "b.yaml").write_text("dataset_conf:\n  fbank_conf: {num_mel_bin: 40}\n")
    done = uio("cmvn", corpus / "raw.list", tmp_path / "out", "--conf", tmp_path / "b.yaml")
    assert (done.returncode, "num_mel_bins" in done.stderr) == (2, True), done.stderr


def test_a_dictionary_has_what_the_tokenizer_makes_of_the_texts(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("{NOISE}\n")
    for source, name in ((corpus / "raw.list", "raw"), (corpus / "shards/shards.list", "shard")):
        done = uio("dict", source, tmp_path / name, "--non-lang-syms", tmp_path / "symbols", "--json")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "raw").read_text() == (tmp_path / "shard").read_text()
    lines = (tmp_path / "raw").read_text().splitlines()
    assert lines[:3] == ["<blank> 0", "<unk> 1", "<sos/eos> 2"]
    assert [line.split()[1] for line in lines] == [str(i) for i in range(len(lines))]
    tokenizer = uio_pipes.CharTokenizer(tmp_path / "raw", tmp_path / "symbols")
    assert all(1 not in tokenizer.tokenize(text)[1] for text in TEXTS)
    assert {"▁", "{NOISE}"} <= {line.split()[0] for line in lines}


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_spm_has_the_labels_of_its_table(corpus: Path, tmp_path: Path, model: str) -> None:
    done = uio("spm", corpus / "raw.list", tmp_path, "--vocab-size", 20, "--model", model, "--json")
    assert (done.returncode, json.loads(done.stdout)["tokens"]) == (0, 20), done.stderr
    table = dict(line.split() for line in (tmp_path / "lang_char.txt").read_text().splitlines())
    tokenizer = uio_pipes.SentencePieceTokenizer(tmp_path / "spm.model")
    tokens, labels = tokenizer.tokenize("今天天气")
    assert [int(table[token]) for token in tokens] == list(labels)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["spm", "raw.list", "out", "--vocab-size", "9000"], "no model of 9000 pieces"),
        (["dict", "raw.lst", "out"], "is raw.list meant?"),
        (["dict", "raw.list", "s3://bucket/dict"], "on this machine"),
        (["dict", "away.list", "out"], "1 missing_file; the first: away.tar: no such file"),
        (["spm", "away.list", "out", "--vocab-size", "20"], "1 missing_file; the first: away.tar: no such file"),
        (["cmvn", "empty.list", "out"], "empty"),
        (["cmvn", "raw.list", "out", "--conf", "none.yaml"], "none.yaml: No such file"),
        (["cmvn", "gone.list", "out"], "could be read"),
        (["cmvn", "a.txt", "out"], "has no audio: it is lines of text"),
        (["cmvn", "wavs.list", "out"], "no shards"),
        (["dict", "wavs.list", "out"], "no shards"),
        (["cmvn", "folder", "out"], "is a folder"),
    ],
)
def test_a_mistake_is_one_line_that_helps(corpus: Path, arguments: list[str], says: str) -> None:
    (corpus / "empty.list").write_text("# nothing\n")
    (corpus / "away.list").write_text("away.tar\n")
    (corpus / "wavs.list").write_text("noise/1.wav\n" * 9)
    (corpus / "a.txt").write_text("today\n")
    (corpus / "folder").mkdir(exist_ok=True)
    (corpus / "gone.list").write_text('{"key": "a", "wav": "gone.wav", "txt": "b"}\n')
    done = uio(*arguments, cwd=corpus)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, done.stdout, len(errors)) == (2, "", 1), done.stderr
    assert says in errors[0]
    assert "Traceback" not in done.stderr


def test_what_cannot_be_read_is_counted(corpus: Path, tmp_path: Path) -> None:
    raw_list = tmp_path / "raw.list"
    raw_list.write_text(
        (corpus / "raw.list").read_text() + '{"key": "a", "wav": "gone.wav", "txt": "b"}\n{"key": "b"\n'
    )
    done = uio("cmvn", raw_list, tmp_path / "cmvn", "--json", "--jobs", 1)
    assert (done.returncode, json.loads(done.stdout)["failures"]) == (1, 2), done.stderr
    done = uio("dict", raw_list, tmp_path / "dict", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["failures"], report["reasons"]) == (1, 1, {"bad_line": 1}), done.stderr
    assert f"{raw_list}, line {COUNT + 2}" in report["failed"][0]["detail"]
    assert f"{raw_list}, line {COUNT + 2}" in uio("dict", raw_list, tmp_path / "dict").stderr


@pytest.mark.parametrize(
    "tables",
    [
        {"wav.scp": "a sox nowhere.mp3 -t wav - |\nb sox nowhere.mp3 -t wav - |\n"},
        {"wav.scp": "a gone.wav\n"},
        {"wav.scp": "r gone.wav\n", "segments": "a r 0 1\n"},
        {"feats.scp": "a gone.ark:2\nb gone.ark:9\n"},
    ],
    ids=["pipes", "missing", "segments", "features"],
)
def test_texts_of_a_kaldi_folder_need_no_audio(tmp_path: Path, tables: dict[str, str]) -> None:
    for name, text in (tables | {"text": "a 今天\nb 很热\n"}).items():
        (tmp_path / name).write_text(text)
    done = uio("dict", tmp_path, tmp_path / "dict")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in (tmp_path / "dict").read_text().splitlines()][3:] == sorted("今天很热")
    done = uio("spm", tmp_path, tmp_path / "spm", "--vocab-size", 8, "--json")
    assert (done.returncode, json.loads(done.stdout)["failures"]) == (0, 0), done.stderr


def test_a_text_of_a_kaldi_folder_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a \xff\nb B\n")
    done = uio("dict", tmp_path, tmp_path / "dict")
    assert (done.returncode, "1 bad_text" in done.stdout, "text, line 1, member 'a'" in done.stderr) == (1, True, True)


def test_texts_of_a_touchdataset(corpus: Path, tmp_path: Path) -> None:
    assert uio("convert", corpus / "raw.list", tmp_path / "out").returncode == 0
    uio("dict", corpus / "raw.list", tmp_path / "raw")
    for source in ("data.list", "data-00000"):
        done = uio("dict", tmp_path / "out" / source, tmp_path / "dict")
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "dict").read_text() == (tmp_path / "raw").read_text()


def test_texts_of_a_raw_list_need_no_audio(tmp_path: Path) -> None:
    (tmp_path / "raw.list").write_text(
        '{"key": "a", "wav": "gone.wav", "txt": "今"}\n{"key": "b", "txt": 1, "feat": "b.npy"}\n'
        '{"key": "c", "wav": "gone.wav"}\n'
    )
    done = uio("dict", tmp_path / "raw.list", tmp_path / "dict", "--json")
    assert (done.returncode, json.loads(done.stdout)["reasons"]) == (1, {"missing_text": 1}), done.stderr
    assert [line.split()[0] for line in (tmp_path / "dict").read_text().splitlines()][3:] == ["1", "今"]
