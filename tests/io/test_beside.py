"""Where the files are that a list names: beside it first, so that what is packed works from any folder."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command import uio as command
from corpus import Corpus
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.io.opening import beside

NAMES = st.sampled_from(["a", "b", "c"])


def test_beside_the_list_first_then_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "wav").mkdir(parents=True)
    (tmp_path / "wav").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wav" / "1.wav").touch()
    assert beside("wav/1.wav", "data/raw.list") == "wav/1.wav"
    (tmp_path / "data" / "wav" / "1.wav").touch()
    assert beside("wav/1.wav", "data/raw.list") == "data/wav/1.wav"
    assert beside("wav/2.wav", "data/raw.list") == "wav/2.wav", "nowhere: as it is, for the message"
    for path in ("/wav/1.wav", "~/1.wav", "s3://a/1.wav", '{"key": 1}', ""):
        assert beside(path, "data/raw.list") == path
    assert beside("wav/1.wav", f"file://{tmp_path}/data/raw.list") == f"{tmp_path}/data/wav/1.wav"
    assert beside("wav/1.wav", "https://host/a/raw.list?sig=x") == "wav/1.wav"
    assert beside("wav/3.wav", "https://host/a/raw.list?sig=x") == "https://host/a/wav/3.wav?sig=x"


@given(st.lists(NAMES, min_size=1, max_size=4), st.data())
def test_a_list_that_its_entries_name_is_found_from_anywhere(folders: list[str], data: st.DataObject) -> None:
    """Entries relative to where ``uio pack`` ran, whatever of the list's own folder they name."""
    with TemporaryDirectory() as root:
        folder = Path(root, *folders)
        folder.mkdir(parents=True)
        (folder / "0.tar").touch()
        at = data.draw(st.integers(0, len(folders) - 1))
        found = beside("/".join([*folders[at:], "0.tar"]), str(folder / "shards.list"))
        assert os.path.samefile(found, folder / "0.tar")


@pytest.mark.parametrize("to", ["shards", "indexed", "raw"])
def test_what_is_packed_or_converted_works_from_any_folder(
    raw_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    if to == "raw":
        done = command("convert", str(raw_corpus.list), "out/data", "--to", "raw")
    else:
        done = command("pack", str(raw_corpus.list), "out/data", "--to", to, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "work" / "out" / "data").glob("*.list")
    begin = {"shards": uio.from_shard_list, "indexed": uio.from_indexed, "raw": uio.from_raw_list}[to]

    def keys(path: Path | str) -> list[str]:
        return sorted(key for batch in uio.Loader(begin(path).decode_audio().batch(4).pad()) for key in batch["keys"])

    every = sorted(raw_corpus.keys)
    assert keys(made) == keys(f"out/data/{made.name}") == every
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert keys(made) == keys(f"../work/out/data/{made.name}") == every
    assert command("verify", str(made)).returncode == 0


def test_a_raw_list_beside_its_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_corpus: Corpus) -> None:
    lines = [json.loads(line) for line in Path(raw_corpus.list).read_text().splitlines()]
    (tmp_path / "set" / "wav").mkdir(parents=True)
    for line in lines:
        source = Path(line["wav"])
        (tmp_path / "set" / "wav" / source.name).write_bytes(source.read_bytes())
        line["wav"] = f"wav/{source.name}"
    path = tmp_path / "set" / "data.list"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loader = uio.Loader(uio.from_raw_list(path).decode_audio().batch(4).pad())
    assert sorted(key for batch in loader for key in batch["keys"]) == sorted(raw_corpus.keys)
    assert command("verify", str(path)).returncode == 0
    assert command("pack", str(path), str(tmp_path / "packed"), "--jobs", "1").returncode == 0
