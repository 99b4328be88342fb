"""The writer of TouchDatasets: the layout byte for byte, and a folder that is complete or not there."""

from pathlib import Path

import numpy as np
import pytest
import touchdataset

import uio_pipes as uio
from uio_pipes.tools.data import metainfo
from uio_pipes.tools.data.writing import parts as indexed_writer
from uio_pipes.tools.data.writing.parts import PairWriter


def test_bytes_are_those_of_an_independent_writer(tmp_path: Path) -> None:
    items = [samples for samples, _ in touchdataset.speech(9)] + [np.zeros(0, np.int16)]
    with PairWriter(tmp_path / "audio", np.int16) as writer:
        for item in items:
            writer.add(item)
    touchdataset.write_pair(tmp_path / "right", items)
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"audio.{suffix}").read_bytes() == (tmp_path / f"right.{suffix}").read_bytes()
    found, bounds = touchdataset.read_pair(tmp_path / "audio")
    assert found == [item.tobytes() for item in items]
    assert bounds == list(range(11))


@pytest.mark.parametrize("name", list(touchdataset.CODES))
def test_every_dtype_is_written(name: str, tmp_path: Path) -> None:
    items = [np.arange(n).astype(name) for n in (3, 0, 5)]
    with PairWriter(tmp_path / "x", name) as writer:
        for item in items:
            writer.add(item.astype(np.dtype(name).newbyteorder(">")))
    found, _ = touchdataset.read_pair(tmp_path / "x")
    assert found == [item.tobytes() for item in items]


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with PairWriter(tmp_path / "x", np.int16) as writer:
            writer.add(np.zeros(5, np.int16))
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_item_that_its_length_cannot_tell_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_writer, "LONGEST", 10)
    with PairWriter(tmp_path / "x", np.int16) as writer:
        writer.add(np.zeros(10, np.int16))
        with pytest.raises(uio.DataError, match="cut the recording"):
            writer.add(np.zeros(11, np.int16))


def test_metadata_is_edited_without_touching_audio(tmp_path: Path) -> None:
    utterances = touchdataset.speech(7)
    folders = [touchdataset.write(tmp_path / f"{i}", utterances[4 * i : 4 * i + 4]) for i in range(2)]
    (tmp_path / "data.list").write_text("".join(f"{f} audio+metainfo\n" for f in folders))
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for f in folders for p in f.iterdir()}
    for folder in folders:
        (folder / "audio.bin").chmod(0)
    assert [f["key"] for f in metainfo.read(tmp_path / "data.list")] == [f["key"] for _, f in utterances]
    assert metainfo.rewrite(tmp_path / "data.list", lambda f: f | {"txt": f["txt"] * 2}) == 7
    for folder in folders:
        (folder / "audio.bin").chmod(0o644)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before} == before
    made = list(uio.Loader(uio.from_indexed(tmp_path / "data.list", metainfo="metainfo_v2").decode_audio()))
    assert [s["txt"] for s in made] == [f"文{i}文{i}" for i in range(7)]
    assert sorted(p.name for p in folders[0].iterdir() if p not in before) == ["metainfo_v2.bin", "metainfo_v2.idx"]


def test_an_edit_never_replaces_what_is_there(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "d", touchdataset.speech(2))
    metainfo.rewrite(folder, lambda f: f, to="v3")
    for to in ("v3", "metainfo"):
        with pytest.raises(uio.ListError, match="is there already"):
            metainfo.rewrite(folder, lambda f: f, to=to)


@pytest.mark.parametrize(
    "wrong", [None, {"key": "a"}, {"key": 3, "txt": ""}, {"key": "a", "txt": "", "x": {1}}], ids=str
)
def test_an_edit_that_makes_no_utterance_is_an_error(wrong: object, tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "d", touchdataset.speech(2))
    with pytest.raises(uio.PipelineError, match=r"metainfo\.rewrite"):
        metainfo.rewrite(folder, lambda f: wrong)  # type: ignore[arg-type, return-value]
    assert len(list(folder.iterdir())) == 4


def test_damaged_metadata_is_named(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "d", touchdataset.speech(2))
    touchdataset.write_pair(folder / "metainfo", [np.frombuffer(b'{"a": 1}', np.uint8), np.frombuffer(b"x", np.uint8)])
    with pytest.raises(uio.DataError, match=r"metainfo\.bin.*utterance 1"):
        list(metainfo.read(folder))
