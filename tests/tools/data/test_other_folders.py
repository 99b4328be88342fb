"""What ``uio pack`` and ``uio convert`` write is read from any working directory, wherever its list lies."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from converting import convert

import uio_pipes as uio
from uio_pipes.io.folders import entry_of
from uio_pipes.tools.data.pack import PackSettings, pack
from uio_pipes.tools.data.placement import To

KEYS = [f"k{number}" for number in range(4)]
READERS: dict[str, Callable[..., uio.Pipeline]] = {
    "indexed": uio.from_indexed,
    "shards": uio.from_shard_list,
    "raw": uio.from_raw_list,
    "cuts": uio.from_lhotse_cuts,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a raw list, ``data/raw.list``, beside its recordings."""
    data = tmp_path / "project" / "data"
    data.mkdir(parents=True)
    for number, key in enumerate(KEYS):
        (data / f"{key}.wav").write_bytes(corpus.wav_bytes(number))
    lines = ({"key": key, "wav": f"{key}.wav", "txt": "文"} for key in KEYS)
    (data / "raw.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def keys(pipeline: uio.Pipeline) -> list[Any]:
    return [sample["key"] for sample in uio.Loader(pipeline.decode_audio())]


PLACES = [("data/out", "data/x.list"), ("out", "lists/x.list"), ("out", "../other/deep/x.list"), ("../out", "x.list")]


@pytest.mark.parametrize(("out", "listed"), PLACES)
@pytest.mark.parametrize("to", READERS)
def test_what_is_converted(out: str, listed: str, to: To, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = listed.replace("x.list", "x.jsonl" if to == "cuts" else "x.list")
    convert("data/raw.list", out, to=to, per_part=2, list_path=listed)
    path = (project / "project" / listed).resolve()
    monkeypatch.chdir("/")
    assert keys(READERS[to](path)) == KEYS
    if to == "cuts":
        lhotse = pytest.importorskip("lhotse")
        assert all(cut.load_audio().size for cut in lhotse.CutSet.from_file(path))


def test_audio_that_is_written_for_cuts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = convert("data/raw.list", "../out", to="cuts", resample=4000)
    again = convert(done.data_list, "../again", to="cuts")
    monkeypatch.chdir("/")
    assert keys(uio.from_lhotse_cuts(project / "project" / again.data_list)) == KEYS


@pytest.mark.parametrize("inside", ["", "data/"])
def test_cuts_are_beside_their_recordings_or_in_the_working_directory(
    inside: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = convert("data/raw.list", "out", to="cuts", list_path="data/cuts.jsonl")
    cuts = Path("data/cuts.jsonl")
    cuts.write_text(cuts.read_text().replace(f'"source": "{Path.cwd()}/data/', f'"source": "{inside}'))
    again = convert(done.data_list, "again", to="cuts")
    if not inside:
        monkeypatch.chdir("/")
    for path in (done.data_list, again.data_list):
        assert keys(uio.from_lhotse_cuts(project / "project" / path)) == KEYS


def test_another_project_with_files_of_the_same_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its working directory does not count, and a project that was moved is read where it is now."""
    pack("data/raw.list", "data/shards", "data/shards.list", PackSettings(size=2))
    shutil.copytree("data/shards", project / "mine" / "data" / "shards")
    for shard in (project / "mine").rglob("*.tar"):
        shard.write_bytes(b"another's")
    (project / "project").rename(project / "moved")
    monkeypatch.chdir(project / "mine")
    assert keys(uio.from_shard_list(project / "moved" / "data" / "shards.list")) == KEYS


def test_entries_of_a_list(project: Path) -> None:
    Path("lists").symlink_to(project)
    assert entry_of("data/k0.wav", "data/x.list") == "k0.wav"
    assert entry_of("data/k0.wav", "x.list") == "data/k0.wav"
    assert entry_of(str(project), "x.list") == str(project), "as it was given, for those who read it otherwise"
    assert entry_of("data", "data/deep/er/x.list") == str(project / "project" / "data")
    assert entry_of("data", "lists/x.list") == str(project / "project" / "data"), "lists/.. is not this folder"
    assert entry_of("data", "new/x.list") == "../data", "a folder that will be made"
    assert entry_of("data", "s3://bucket/x.list") == str(project / "project" / "data")
    assert entry_of("s3://bucket/a.tar", "x.list") == "s3://bucket/a.tar"
