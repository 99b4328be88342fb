"""``uio pack`` of features, run as users run it: killed, in several processes, with mistakes."""

import json
import time
from pathlib import Path

import kaldi_data
import pytest
from command import digests, start, uio, write_list

COUNT, EACH = 600, 20
YAML = "dataset_conf:\n  resample_conf: {resample_rate: 8000}\n  fbank_conf:\n    num_mel_bins: 40\n  spec_aug: true\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw list, features in two folders, and YAMLs."""
    root = tmp_path_factory.mktemp("corpus")
    write_list(root, COUNT)
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


@pytest.fixture(scope="module")
def packed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed")
    done = uio("pack", "raw.list", out, "--features", "fbank.yaml", "--per-shard", EACH, "--jobs", 1, cwd=corpus)
    assert done.returncode == 0, done.stderr
    assert "fbank(num_mel_bins=40" in done.stdout
    return out


def test_killed_in_the_middle_it_goes_on_and_ends_with_the_same_bytes(
    corpus: Path, packed: Path, tmp_path: Path
) -> None:
    command = ("pack", "raw.list", tmp_path, "--features", "fbank.yaml", "--per-shard", EACH, "--jobs", 2)
    job = start(*command, cwd=corpus)
    try:
        while len(done := digests(tmp_path)) < 2:
            time.sleep(0.01)
            assert job.poll() is None
    finally:
        job.kill()
        job.wait()
    assert len(done) < COUNT // EACH
    assert not (tmp_path / "shards.list").exists()
    again = uio(*command, "--json", cwd=corpus)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["utterances"] == COUNT
    assert digests(tmp_path) == digests(packed)
    assert not list(tmp_path.rglob("*.part"))


def test_an_array_of_jobs_writes_the_same_bytes(corpus: Path, packed: Path, tmp_path: Path) -> None:
    for share in (2, 1):
        done = uio("pack", "raw.list", tmp_path, "--features", "fbank.yaml", "--per-shard", EACH, "--split",
                   f"{share}/2", "--jobs", 1, cwd=corpus)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert digests(tmp_path) == digests(packed)


def test_several_scps_with_transcripts_of_their_own_in_groups_as_float16(corpus: Path, tmp_path: Path) -> None:
    done = uio("pack", "a", "b/feats.scp", tmp_path / "out", "--text", "a/text", "--dtype", "float16",
               "--length-groups", "20:50,50:90", "--per-shard", 5, "--json", cwd=corpus)  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["utterances"], report["failed"], report["features"]) == (30, {}, [])
    assert {Path(name).parent.name for name in digests(tmp_path / "out")} == {"20_50", "50_90"}
    checked = uio("verify", tmp_path / "out/shards.list", "--decode", "--json")
    assert (checked.returncode, json.loads(checked.stdout)["utterances"]) == (0, 30)
    looked = uio("inspect", tmp_path / "out/shards.list", "--json")
    assert looked.returncode == 0, looked.stderr


def test_features_that_are_damaged_end_with_exit_code_1(tmp_path: Path) -> None:
    kaldi_data.feats(tmp_path, 4)
    ark = tmp_path / "feats.ark"
    ark.write_bytes(ark.read_bytes()[:-4])
    done = uio("pack", tmp_path, tmp_path / "out", "--json")
    assert (done.returncode, json.loads(done.stdout)["failed"]) == (1, {"truncated": 1})
    line = json.loads((tmp_path / "out/failed.jsonl").read_text())
    assert (line["key"], line["reason"]) == ("F003", "truncated")
    kaldi_data.feats(tmp_path, 4)
    done = uio("pack", tmp_path, tmp_path / "out", "--retry-failed", "--json")
    assert (done.returncode, json.loads(done.stdout)["utterances"]) == (0, 4)


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
        (["a", "a/feats.scp", "out"], "stands in a/feats.scp"),
        (["a", "out", "--features", "fbank.yaml"], "has features already"),
        (["raw.list", "out", "--text", "a/text"], "belong to feats.scp"),
        (["a", "out", "--list", "a/feats.scp"], "would be overwritten"),
    ],
)
def test_a_mistake_is_one_line_that_helps(corpus: Path, arguments: list[str], says: str) -> None:
    done = uio("pack", *arguments, cwd=corpus)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert says in done.stderr
    assert not (corpus / "out").exists()
