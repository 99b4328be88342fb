"""``uio cache``: what is kept, whether it is sound, and removing it."""

import json
import re
from pathlib import Path

import pytest
from command import uio as run_uio
from corpus import shards
from processes import environment

import uio_pipes as uio
from uio_pipes.io.shelf import _shelves


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = shards(tmp_path / "data", [3, 4], seconds=(0.3, 0.5))
    audio = uio.from_shard_list(corpus.list).decode_audio()
    for graph in (audio.cache(tmp_path / "cache"), audio.fbank(num_mel_bins=8).cache(tmp_path / "cache", ["feat"])):
        assert len(list(uio.Loader(graph.batch(2).pad()))) == 4
    _shelves.clear()
    return tmp_path / "cache"


def told(folder: Path) -> dict[str, int]:
    return {
        one["stages"].split("\n")[-1]: one["records"]
        for one in json.loads(run_uio("cache", "show", folder, "--json").stdout)
    }


def test_show_lists_pipelines_with_their_records(folder: Path) -> None:
    found = told(folder)
    assert list(found.values()) == [7, 7]
    assert any(stage.startswith("fbank(num_mel_bins=8") for stage in found)
    done = run_uio("cache", "show", folder)
    assert "decode_audio(channel=0, longest=3600.0, of='') → fbank(num_mel_bins=8" in done.stdout
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", done.stdout)


@pytest.mark.parametrize(("suffix", "at"), [("data", 0), ("index", 70)])
def test_verify_finds_a_flipped_byte(folder: Path, suffix: str, at: int) -> None:
    assert run_uio("cache", "verify", folder).stdout == "14 sound records\n"
    path = next(folder.rglob(f"*.{suffix}"))
    path.write_bytes(path.read_bytes()[:at] + bytes([path.read_bytes()[at] ^ 1]) + path.read_bytes()[at + 1 :])
    done = run_uio("cache", "verify", folder)
    assert done.returncode == 1
    assert f"{path}: 1 record damaged or cut off\n13 sound records\n" in done.stdout


def test_prune_takes_one_fingerprint_that_is_there(folder: Path) -> None:
    for wrong in ("", "zzz"):
        done = run_uio("cache", "prune", folder, "--fingerprint", wrong)
        assert done.returncode == 2
        assert "fingerprints begin with" in done.stderr
    assert list(told(folder).values()) == [7, 7]


def test_prune_removes_what_it_is_told(folder: Path) -> None:
    assert run_uio("cache", "prune", folder).returncode == 2
    mark = next(folder.iterdir()).name
    assert run_uio("cache", "prune", folder, "--fingerprint", mark[:8]).returncode == 0
    assert list(told(folder).values()) == [7]
    assert run_uio("cache", "prune", folder, "--size", "10 B").returncode == 0
    assert not list(folder.rglob("*.data"))
    done = run_uio("cache", "show", folder)
    assert done.returncode == 2
    assert "holds nothing that .cache has kept" in done.stderr


TRAINING = """
import torch
from encoding import Codec, to_encode

model, made = Codec(), Codec
batches = to_encode("data/shards.list", "cache")


def peaks(pcm, lengths):
    return pcm[:, ::320].round(), (lengths + 319) // 320
"""


def test_fill_runs_a_model_and_goes_on(tmp_path: Path) -> None:
    shards(tmp_path / "data", [3, 4], seconds=(0.3, 0.5))
    (tmp_path / "train.py").write_text(TRAINING)

    def fill(model: str, *options: str) -> tuple[int, str]:
        command = ["cache", "fill", "train.py:batches", "--model", f"train.py:{model}", *options]
        done = run_uio(*command, cwd=tmp_path, PYTHONPATH=environment()["PYTHONPATH"])
        return done.returncode, done.stdout + done.stderr

    assert fill("made", "--split", "2/2", "--device", "cpu") == (0, "3 utterances encoded, 0 before; 0 failures\n")
    assert fill("model") == (0, "4 utterances encoded, 3 before; 0 failures\n")
    assert json.loads(fill("model", "--workers", "1", "--json")[1])["skipped"] == {"encoded": 7}
    assert "filled by another model" in fill("peaks")[1]
    assert "has no 'modle'; did you mean model?" in fill("modle")[1]
    assert "train.py:torch is neither a model" in fill("torch")[1]
    done = run_uio("cache", "show", tmp_path / "cache")
    assert "decode_audio(channel=0, longest=3600.0, of='') → codes by codec → model " in done.stdout
