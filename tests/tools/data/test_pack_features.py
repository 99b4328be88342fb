"""Packing features: those of Kaldi's arks, and those computed of audio, equal to what kaldiio and a pipeline give."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import kaldi_data
import kaldiio
import numpy as np
import pytest
import webdataset
from command import members, write_list
from command import uio as command
from kaldi_data import write

import uio_pipes as uio
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.io.local import LocalFile
from uio_pipes.sources.kaldi.ark import ArkMatrix, Pointer
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.pack import FeatureSettings, LengthGroup, OtherPacking, PackSettings, pack
from uio_pipes.tools.data.verify import verify

PLAIN = PackSettings(size=5)
FBANK = {"fbank_conf": {"num_mel_bins": 40, "dither": 1.0}, "resample_conf": {"resample_rate": 8000}, "spec_aug": True}
Arrays = dict[str, np.ndarray]


def read(pipeline: uio.Pipeline) -> Arrays:
    return {s["key"]: np.asarray(s["feat"]) for batch in uio.Loader(pipeline.batch(1)) for s in batch}


def stored(out: Path) -> Arrays:
    return {name[:-4]: np.load(io.BytesIO(data)) for name, data in members(out) if name.endswith(".npy")}


def same(found: Arrays, wanted: Arrays) -> bool:
    assert found.keys() == wanted.keys()
    return all(np.array_equal(found[key], wanted[key]) and found[key].dtype == wanted[key].dtype for key in wanted)


def failed(out: Path) -> dict[str, tuple[str, str]]:
    lines = map(json.loads, (out / "failed.jsonl").read_text().splitlines())
    return {line["key"]: (line["reason"], line["detail"]) for line in lines}


@pytest.mark.parametrize("method", [None, 1, 2, 3, 5])
def test_packed_features_are_those_that_kaldiio_reads(method: int | None, tmp_path: Path) -> None:
    kaldi_data.feats(tmp_path / "data", compression=method)
    wanted = {
        key: array.astype(np.float32) for key, array in kaldiio.load_scp(str(tmp_path / "data/feats.scp")).items()
    }
    done = pack(tmp_path / "data", tmp_path / "out", tmp_path / "shards.list", PLAIN)
    assert (done.utterances, len(done.shards), done.failed) == (12, 3, {})
    assert same(stored(tmp_path / "out"), wanted)
    assert same(read(uio.from_shard_list(tmp_path / "shards.list")), wanted)
    assert same(_of_webdataset(tmp_path / "out"), wanted)
    texts = {name[:-4]: data.decode() for name, data in members(tmp_path / "out") if name.endswith(".txt")}
    assert texts == {key: f"文{key}" for key in wanted}


def _of_webdataset(out: Path) -> Arrays:
    dataset: Any = webdataset.WebDataset(sorted(map(str, out.rglob("*.tar"))), shardshuffle=False)
    return {sample["__key__"]: sample["npy"] for sample in dataset.decode()}


def test_they_are_indexed_verified_and_listed_with_their_frames(tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path / "data")
    pack(tmp_path / "data", tmp_path / "out", tmp_path / "shards.list", PLAIN)
    entries = (read_manifest(str(tmp_path / "shards.list")) or {}).values()
    assert sum(entry.frames for entry in entries) == sum(map(len, arrays.values()))
    assert not index_lists([str(tmp_path / "shards.list")]).problems
    *_, report = verify([str(tmp_path / "shards.list")], WantedChecks(decode=True, crc=True))
    assert (report.utterances, report.findings) == (12, [])
    indexed = uio.from_tar_index(tmp_path / "shards.list")
    assert same(read(indexed), arrays)


def test_several_scps_and_texts_are_packed_as_one(tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path / "all")
    lines = dict(line.split() for line in (tmp_path / "all/feats.scp").read_text().splitlines())
    keys = list(arrays)
    for name, of in (("a", keys[:7]), ("b", keys[7:])):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "feats.scp", {key: lines[key] for key in of})
        write(tmp_path / name / "text", {key: f"字{key}" for key in of})
    once = pack(tmp_path / "all", tmp_path / "once", tmp_path / "once.list", PLAIN)
    folders = pack([tmp_path / "a", tmp_path / "b"], tmp_path / "two", tmp_path / "two.list", PLAIN)
    assert folders.utterances == once.utterances
    assert same(stored(tmp_path / "two"), arrays)
    texts = [str(tmp_path / "b/text"), str(tmp_path / "a/text")]  # in another order
    scps = [tmp_path / "a/feats.scp", tmp_path / "b/feats.scp"]
    pack(scps, tmp_path / "named", tmp_path / "named.list", PLAIN, texts=texts)
    assert list(members(tmp_path / "named")) == list(members(tmp_path / "two"))


def test_a_key_in_two_scps_is_refused_with_both_lines(tmp_path: Path) -> None:
    for name in "ab":
        kaldi_data.feats(tmp_path / name, 3)
    with pytest.raises(
        ListError, match=r"'F00(.)' appears in .*a/feats.scp, line (.), and in .*b/feats.scp, line \2 \(3 keys"
    ):
        pack([tmp_path / "a", tmp_path / "b"], tmp_path / "out", tmp_path / "list", PLAIN)
    (tmp_path / "b/feats.scp").write_text((tmp_path / "b/feats.scp").read_text().replace("F00", "G00"))
    with pytest.raises(ListError, match=r"appears in .*a/text, line (.), and in .*b/text, line \1 "):
        pack([tmp_path / "a", tmp_path / "b"], tmp_path / "out", tmp_path / "list", PLAIN)
    (tmp_path / "b/text").write_text("\n\nG001 two\nG001 three")
    with pytest.raises(ListError, match=r"'G001' appears in .*b/text twice, in lines 3 and 4"):
        pack([tmp_path / "b", tmp_path / "a"], tmp_path / "out", tmp_path / "list", PLAIN)


@pytest.mark.parametrize("table", [False, True], ids=["headers", "utt2num_frames"])
def test_length_groups_are_in_frames_of_the_features(table: bool, tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path / "data", 30)
    if table:
        write(tmp_path / "data/utt2num_frames", {key: str(len(array)) for key, array in arrays.items()})
    settings = replace(PLAIN, groups=(LengthGroup(25, 50), LengthGroup(50, 80)))
    done = pack(tmp_path / "data", tmp_path / "out", tmp_path / "shards.list", settings)
    for low, high in ((25, 50), (50, 80)):
        wanted = {key: array for key, array in arrays.items() if low <= len(array) < high}
        assert same(stored(tmp_path / f"out/{low}_{high}"), wanted)
    short, long = (sum(test(len(a)) for a in arrays.values()) for test in (lambda n: n < 25, lambda n: n >= 80))
    assert dict(done.left_out) == {"too_short": short, "too_long": long}
    assert same(read(uio.from_shard_list(f"{tmp_path}/out/{{25_50,50_80}}/*.tar")), stored(tmp_path / "out"))


@pytest.mark.parametrize("groups", [(), (LengthGroup(1, 1000),)], ids=["plain", "groups"])
def test_damage_to_an_ark_costs_the_utterances_that_it_hits(groups: tuple[LengthGroup, ...], tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 8)
    lines = dict(line.rsplit(":", 1) for line in (tmp_path / "feats.scp").read_text().splitlines())
    ark, at = tmp_path / "feats.ark", {line.split()[0]: int(offset) for line, offset in lines.items()}
    data = bytearray(ark.read_bytes())
    data[at["F001"] + 2] = ord("X")  # no such form
    data[at["F003"] + 6] ^= 4  # another number of rows
    data[at["F005"] + 15 : at["F005"] + 19] = np.float32(np.nan).tobytes()
    ark.write_bytes(data[: at["F007"] + 100])
    done = pack(tmp_path, tmp_path / "out", tmp_path / "list", replace(PLAIN, groups=groups))
    assert {key: reason for key, (reason, _) in failed(tmp_path / "out").items()} == {
        "F001": "bad_features", "F003": "bad_features", "F005": "bad_features", "F007": "truncated",
    }  # fmt: skip
    assert done.failed.total() == 4
    assert same(stored(tmp_path / "out"), {key: arrays[key] for key in ("F000", "F002", "F004", "F006")})
    assert f"{ark}, member 'F001'" in failed(tmp_path / "out")["F001"][1] or groups


@pytest.mark.parametrize("method", [None, 2, 3, 5])
def test_no_flipped_bit_of_a_header_gives_other_features(method: int | None, tmp_path: Path) -> None:
    """Neither of a matrix between others, nor of the last one; a bit of its values cannot be known."""
    arrays = kaldi_data.feats(tmp_path, 3, compression=method, bins=40)
    wanted = read(uio.from_kaldi(tmp_path))
    ark = tmp_path / "feats.ark"
    data, lines = ark.read_bytes(), (tmp_path / "feats.scp").read_text().splitlines()
    size, values = (15, range(0)) if method is None else (19, range(5, 13)) if method == 2 else (20, range(6, 14))
    for number in (1, 2):
        at = int(lines[number].rpartition(":")[2])
        for bit in (bit for bit in range(8 * size) if bit // 8 not in values):
            damaged = bytearray(data)
            damaged[at + bit // 8] ^= 1 << bit % 8
            ark.write_bytes(damaged)
            matrix = ArkMatrix(LocalFile(str(ark)), Pointer(str(ark), at))
            try:
                assert np.array_equal(matrix.load(), wanted[list(arrays)[number]]), bit
            except DataError as error:
                assert error.reason in ("bad_features", "truncated", "text_ark"), bit  # noqa: PT017


def test_another_number_of_frames_than_the_table_says_is_counted(tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 3)
    write(tmp_path / "utt2num_frames", {key: str(len(a) + (key == "F001")) for key, a in arrays.items()})
    pack(tmp_path, tmp_path / "out", tmp_path / "list", PLAIN)
    assert failed(tmp_path / "out")["F001"][0] == "length_mismatch"


def test_float16_rounds_and_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 3)
    arrays["F001"][0, 0] = 1e5
    kaldiio.save_ark(str(tmp_path / "feats.ark"), arrays, scp=str(tmp_path / "feats.scp"))
    settings = replace(PLAIN, features=FeatureSettings("float16"))
    pack(tmp_path, tmp_path / "out", tmp_path / "list", settings)
    assert same(stored(tmp_path / "out"), {key: arrays[key].astype(np.float16) for key in ("F000", "F002")})
    assert "100000 is too large for float16 (65504)" in failed(tmp_path / "out")["F001"][1]
    with pytest.raises(OtherPacking, match="--dtype 'float16' -> 'float32'"):
        pack(tmp_path, tmp_path / "out", tmp_path / "list", PLAIN)


def computed(pipeline: uio.Pipeline) -> Arrays:
    return read(pipeline.decode_audio().resample(8000).fbank(num_mel_bins=40))


@pytest.mark.parametrize("jobs", [1, 2])
def test_computed_features_are_those_of_the_pipeline(jobs: int, tmp_path: Path) -> None:
    raw = write_list(tmp_path, 30)
    settings = replace(PLAIN, size=10, features=FeatureSettings(conf=FBANK))
    done = pack(raw, tmp_path / "out", tmp_path / "shards.list", settings, jobs)
    assert (done.utterances, len(done.shards)) == (30, 3)
    assert [stage.split("(")[0] for stage in done.features] == ["decode_audio", "resample", "fbank"]
    assert same(stored(tmp_path / "out"), computed(uio.from_raw_list(raw)))
    assert done.frames == sum(map(len, stored(tmp_path / "out").values()))


@pytest.mark.parametrize("segments", [False, True], ids=["recordings", "segments"])
def test_features_of_a_kaldi_folder_are_those_of_the_pipeline(segments: bool, tmp_path: Path) -> None:
    """Also of wavs in an ark."""
    corpus = kaldi_data.recordings(tmp_path / "data", segments=segments)
    settings = replace(PLAIN, features=FeatureSettings(conf=FBANK))
    pack(corpus.folder, tmp_path / "out", tmp_path / "shards.list", settings)
    assert same(stored(tmp_path / "out"), computed(uio.from_kaldi(corpus.folder)))


@pytest.mark.parametrize("kind", ["mfcc", "log_mel_spectrogram"])
def test_other_features_than_filter_banks(kind: str, tmp_path: Path) -> None:
    raw = write_list(tmp_path, 5)
    conf = {"feats_type": kind, "mfcc_conf": {"num_ceps": 13}}
    pack(raw, tmp_path / "out", tmp_path / "list", replace(PLAIN, features=FeatureSettings(conf=conf)))
    decoded = uio.from_raw_list(raw).decode_audio()
    wanted = decoded.mfcc(num_ceps=13) if kind == "mfcc" else decoded.log_mel_spectrogram()
    assert same(stored(tmp_path / "out"), read(wanted))


def test_groups_of_computed_features_are_in_their_frames(tmp_path: Path) -> None:
    raw = write_list(tmp_path, 14)
    lines = [json.loads(line) for line in raw.read_text().splitlines()]
    raw.write_text("".join(json.dumps(line | {"start": 0.0, "end": 0.3 + 0.01 * (i % 7)}) + "\n"
                           for i, line in enumerate(lines)))  # fmt: skip
    conf = {"fbank_conf": {"frame_length": 50, "frame_shift": 20}}
    settings = replace(PLAIN, groups=(LengthGroup(1, 14), LengthGroup(14, 15)), features=FeatureSettings(conf=conf))
    done = pack(raw, tmp_path / "out", tmp_path / "list", settings)
    lengths = {key: len(array) for key, array in stored(tmp_path / "out").items()}
    assert set(lengths.values()) == {13, 14}
    assert done.utterances + done.left_out["too_long"] == 14
    for low, high in ((1, 14), (14, 15)):
        keys = stored(tmp_path / f"out/{low}_{high}").keys()
        assert all(low <= lengths[key] < high for key in keys)


def test_audio_that_gives_no_features_is_counted(tmp_path: Path) -> None:
    raw = write_list(tmp_path, 8)
    (tmp_path / "r1.wav").write_bytes((tmp_path / "r1.wav").read_bytes()[:3000])
    (tmp_path / "r2.wav").unlink()
    (tmp_path / "r3.wav").write_bytes(kaldi_data.corpus.wav_bytes(0, seconds=(0.01, 0.011)))
    settings = replace(PLAIN, features=FeatureSettings(conf={}))
    done = pack(raw, tmp_path / "out", tmp_path / "list", settings)
    assert dict(done.failed) == {"truncated_audio": 1, "missing_file": 1, "too_short": 1}
    assert done.utterances == 5
    with pytest.raises(OtherPacking, match="features"):
        pack(raw, tmp_path / "out", tmp_path / "list", replace(settings, features=FeatureSettings(conf=FBANK)))


YAML = "dataset_conf:\n  resample_conf: {resample_rate: 8000}\n  fbank_conf:\n    num_mel_bins: 40\n  spec_aug: true\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw list, features in two folders, and YAMLs."""
    root = tmp_path_factory.mktemp("corpus")
    write_list(root, 5)
    kaldi_data.feats(root / "a", 30)
    (root / "b").mkdir()
    lines = (root / "a/feats.scp").read_text().splitlines(keepends=True)
    (root / "a/feats.scp").write_text("".join(lines[:20]))
    (root / "b/feats.scp").write_text("".join(lines[20:]))
    (root / "fbank.yaml").write_text(YAML)
    (root / "wrong.yaml").write_text("fbank_conf: {num_mel_bin: 40}\n")
    (root / "worse.yaml").write_text("fbank_conf:\n  num_mel_bins: 1\n")
    (root / "broken.yaml").write_text("fbank_conf:\n  num_mel_bins: [\n")
    return root


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["raw.list", "out", "--features", "none.yaml"], "none.yaml: No such file"),
        (["raw.list", "out", "--features", "wrong.yaml"], "the nearest is fbank_conf.num_mel_bins"),
        (["raw.list", "out", "--features", "worse.yaml"], "worse.yaml: dataset_conf (fbank_conf.num_mel_bins"),
        (["raw.list", "out", "--features", "broken.yaml"], "line 3, column 1"),
        (["raw.list", "out", "--dtype", "float16"], "say by --features which features"),
        (["raw.list", "out", "--features", "fbank.yaml", "--resample", "8000"], "resample_conf.resample_rate in fbank"),
        (["raw.list", "out", "--features", "fbank.yaml", "--format", "flac"], "--format"),
        (["a", "out", "--to", "indexed"], "a TouchDataset holds audio"),
        (["a", "out", "--dtype", "float64"], "'float32', 'float16'"),
        (["a", "b", "out"], "there is no b/text"),
        (["a", "a/feats.scp", "out"], "appears in a/feats.scp"),
        (["a", "out", "--features", "fbank.yaml"], "has features already"),
        (["raw.list", "out", "--text", "a/text"], "belong to feats.scp"),
        (["a", "out", "--list", "a/feats.scp"], "would be overwritten"),
    ],
)
def test_a_mistake_is_one_line_that_helps(corpus: Path, arguments: list[str], says: str) -> None:
    done = command("pack", *arguments, cwd=corpus)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert says in done.stderr
    assert not (corpus / "out").exists()
