"""``uio example``: a folder in which everything can be tried, and nothing is overwritten."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import programs, start, uio

import uio_pipes as uio_pipes
from uio_pipes.tools.data.example import CONTENT

TONES = "import sys; sys.modules['espeakng_loader'] = None; from uio_pipes.tools.cli.main import main; main()"
LISTS = {
    "data/raw.list": uio_pipes.from_raw_list,
    "data/shards.list": uio_pipes.from_shard_list,
    "data/kaldi": uio_pipes.from_kaldi,
    "data/feature_shards.list": uio_pipes.from_shard_list,
}


def tones(folder: Path, *options: str) -> str:
    """Make it where espeak-ng is not installed; returns what was said."""
    return programs("-c", TONES, "example", folder, *options)


@pytest.fixture(scope="module")
def toned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toned") / "new"
    assert "tones" in tones(folder)
    return folder


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("espeakng_loader")
    folder = tmp_path_factory.mktemp("spoken")
    done = uio("example", ".", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "spoken by espeak-ng" in done.stdout
    return folder


@pytest.fixture(params=["toned", "spoken"])
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    made: Path = request.getfixturevalue(request.param)
    monkeypatch.chdir(made)
    return made


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_all_that_it_names_is_there_and_nothing_else(folder: Path) -> None:
    assert [path.name for path in folder.iterdir()] == ["data"]
    assert all((folder / name).exists() for name in CONTENT)
    named = {name.removeprefix("data/").removesuffix(".list") for name in CONTENT} | {"features", "wav", "texts.txt"}
    assert {path.name.removesuffix(".list") for path in (folder / "data").iterdir()} == named | {
        "shards",
        "example.json",
    }


def test_every_form_holds_the_same_utterances(folder: Path) -> None:
    texts = {}
    for name, read in LISTS.items():
        loader = uio_pipes.Loader(read(name))
        texts[name] = {sample["key"]: sample["txt"] for sample in loader}
        assert loader.stats().failures == 0
    assert len(texts["data/raw.list"]) == 48
    assert all(found == texts["data/raw.list"] for found in texts.values())


def test_dictionary_statistics_noises_and_rooms_fit_the_recordings(folder: Path) -> None:
    audio = uio_pipes.from_raw_list("data/raw.list").decode_audio()
    audio = audio.add_noise("data/noise.list").reverberate("data/rooms.list")
    features = audio.fbank(80).global_cmvn("data/global_cmvn")
    loader = uio_pipes.Loader(features.tokenize(uio_pipes.CharTokenizer("data/lang_char.txt")))
    assert all(1 not in sample["label"] for sample in loader)  # <unk>
    assert loader.stats().failures == 0


def test_shards_are_those_of_uio_pack_and_enough_for_twelve_lanes(folder: Path, tmp_path: Path) -> None:
    before = content(folder / "data/shards")
    assert sum(name.endswith(".tar") for name in before) == 12
    options = ["--list", tmp_path / "shards.list", "--per-shard", "4"]
    assert uio("pack", "data/raw.list", "data/shards", *options, cwd=folder).returncode == 0
    assert content(folder / "data/shards") == before


@pytest.mark.slow
def test_what_it_says_to_do_next_works(spoken: Path, tmp_path: Path) -> None:
    said = uio("example", spoken).stdout
    shutil.copytree(spoken / "data", tmp_path / "data")  # a script is written beside it
    assert "(there already)" in said
    assert f"Next, in {spoken}:\n" in said
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = said.partition("Next")[2].partition("\n")[2]
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "epoch 1: " in done.stdout
    assert all(len(line) <= 86 for line in commands.splitlines())


def test_made_again_it_changes_nothing(toned: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in toned.rglob("*")}
    assert "(there already)" in tones(toned)
    assert {path: path.stat().st_mtime_ns for path in toned.rglob("*")} == before


def test_files_of_others_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/raw.list").write_text("mine\n")
    done = uio("example", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}/data holds files that uio example has not made" in done.stderr
    assert content(tmp_path) == {"data/raw.list": b"mine\n"}


def test_another_seed_makes_another_example_elsewhere_and_a_missing_file_is_named(toned: Path, tmp_path: Path) -> None:
    tones(tmp_path, "--seed", "1")
    assert content(tmp_path)["data/wav/U000.wav"] != content(toned)["data/wav/U000.wav"]
    done = uio("example", tmp_path)
    assert (done.returncode, "was made with --seed 1, not 0: delete it, or name" in done.stderr) == (2, True)
    (tmp_path / "data/noise.list").unlink()
    done = uio("example", tmp_path, "--seed", "1")
    assert (done.returncode, "lacks noise.list" in done.stderr) == (2, True)
    assert not (tmp_path / "data/noise.list").exists()


@pytest.mark.parametrize(("place", "told"), [("s3://bucket/x", "on this machine"), ("file", "Not a directory")])
def test_where_no_folder_can_be_is_wrong_use(place: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = uio("example", place, cwd=tmp_path)
    assert (done.returncode, told in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_killed_in_the_middle_it_leaves_no_half_of_it(spoken: Path, tmp_path: Path) -> None:
    process = start("example", ".", cwd=tmp_path)
    while not list(tmp_path.glob(".uio-example-*/data/shards")):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert content(tmp_path / "data") == {}
    done = uio("example", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "data") == content(spoken / "data")
