"""Checksums of TouchDatasets: what ``uio index`` writes beside them, and what reading finds by them."""

import os
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
import touchdataset
from video_files import video

import uio_pipes as uio
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.local import LocalFile
from uio_pipes.tools.data import metainfo
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.verify import verify

COUNT = 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = touchdataset.write(tmp_path / "d", touchdataset.speech(COUNT))
    assert index_lists([str(made)]).problems == []
    return made


def delivered(dirs: object, **options: Any) -> tuple[list[str], dict[str, int]]:
    """Keys of what comes out, decoded, and the reasons for what does not."""
    loader = uio.Loader(uio.from_indexed(dirs, **{"verify": "crc", **options}).decode_audio())  # type: ignore[arg-type]
    return [sample["key"] for sample in loader], dict(loader.stats().skipped)


def flip(path: Path, at: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(bytes(data))


def keys(*without: int) -> list[str]:
    return [f"T{i:04d}" for i in range(COUNT) if i not in without]


def test_sound_data_comes_out_as_without_checksums(folder: Path) -> None:
    graphs = [uio.from_indexed(folder, shuffle=True, verify=v).decode_audio() for v in (None, "crc")]
    for plain, compared in zip(*(uio.Loader(graph, lanes=3) for graph in graphs), strict=True):
        assert plain["key"] == compared["key"]
        assert torch.equal(plain["wav"], compared["wav"])
    assert graphs[0].fingerprint() == graphs[1].fingerprint(), "a state may be loaded with it and without it"


def test_a_flipped_bit_of_audio_or_metadata_is_found(folder: Path) -> None:
    at = {name: IndexedFile(f"{folder}/{name}").span(n)[0] for name, n in (("audio", 4), ("metainfo", 7))}
    flip(folder / "audio.bin", at["audio"] + 100)
    flip(folder / "metainfo.bin", at["metainfo"] + 9)  # within the key: good JSON of another utterance
    assert delivered(folder) == (keys(4, 7), {"bad_crc": 2})
    assert delivered(folder, verify=None)[1] == {}, "nothing else can notice"
    with pytest.raises(uio.DataError, match=r"audio\.bin, utterance 'T0004', .*uio index.*bad_crc") as raised:
        list(uio.Loader(uio.from_indexed(folder, verify="crc"), failures="raise"))
    assert raised.value.offset == at["audio"]


def test_of_a_segment_the_whole_recording_is_compared_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_segments(fields: dict[str, Any]) -> dict[str, Any]:
        said = [{"start": 0.1 * i, "end": 0.1 * i + 0.1, "txt": "文"} for i in range(3)]
        return fields | {"info": {"segments": said}}

    metainfo.rewrite(str(folder), with_segments, to="metainfo_cut")
    index_lists([str(folder)])
    length = IndexedFile(f"{folder}/audio").span(4)[1]
    flip(folder / "audio.bin", sum(IndexedFile(f"{folder}/audio").span(4)) - 1)  # behind all segments
    reads: list[int] = []
    read = LocalFile.read_upto

    def spy(self: LocalFile, offset: int, size: int) -> bytes:
        if self.path.endswith("audio.bin"):
            reads.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(LocalFile, "read_upto", spy)
    source = uio.from_indexed(folder, metainfo="metainfo_cut", verify="crc").segments()
    loader = uio.Loader(source.decode_audio())
    assert [sample["key"] for sample in loader if sample["key"].startswith("T0004")] == []
    assert loader.stats().skipped == {"bad_crc": 3}
    assert len(list(reads)) == (COUNT - 1) * 4 + 3, "a whole recording and three segments; of the bad one, it thrice"
    assert reads.count(length) >= 3


def test_missing_stale_and_damaged_checksums_are_refused_with_the_remedy(folder: Path) -> None:
    sidecar = folder / "audio.bin.uioidx"
    good = sidecar.read_bytes()
    flip(sidecar, len(good) - 1)
    with pytest.raises(uio.ListError, match=rf"audio\.bin\.uioidx are damaged.*uio index {folder}"):
        delivered(folder)
    sidecar.write_bytes(good[:-4])
    with pytest.raises(uio.ListError, match="are damaged"):
        delivered(folder)
    sidecar.unlink()
    with pytest.raises(uio.ListError, match=rf"audio\.bin has no checksums.*uio index {folder}"):
        delivered(folder)
    sidecar.write_bytes(good)
    touchdataset.write(folder, touchdataset.speech(COUNT, seed=5))
    with pytest.raises(uio.ListError, match=rf"audio\.bin are stale.*uio index {folder}"):
        delivered(folder)
    assert index_lists([str(folder)]).fresh == 0
    assert delivered(folder) == (keys(), {})


def test_what_fits_is_left_as_it_is_and_a_copy_is_compared_with_it(folder: Path, tmp_path: Path) -> None:
    before = (folder / "audio.bin.uioidx").stat().st_mtime_ns
    assert index_lists([str(folder)]).fresh == 1
    assert (folder / "audio.bin.uioidx").stat().st_mtime_ns == before
    assert index_lists([str(folder)], force=True).fresh == 0
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)  # other times
    flip(tmp_path / "copy" / "audio.bin", 7)
    assert delivered(tmp_path / "copy") == (keys(0), {"bad_crc": 1})


def test_folders_lists_and_shards_in_one_go_into_a_folder(folder: Path, tmp_path: Path) -> None:
    other = touchdataset.write(tmp_path / "e", touchdataset.speech(4, seed=3))
    (tmp_path / "data.list").write_text(f"{other} audio+metainfo\n")
    report = index_lists([str(folder), str(tmp_path / "data.list")], into=str(tmp_path / "sums"), jobs=2)
    assert (report.folders, report.shards, report.utterances) == (2, 0, COUNT + 4)
    assert report.frames == pytest.approx(
        sum(100 * len(s) / 8000 for s, _ in touchdataset.speech(COUNT)) + 4 * 90, rel=0.5
    )
    assert list(other.glob("*.uioidx")) == []
    assert delivered(tmp_path / "data.list", indexes=tmp_path / "sums")[1] == {}
    assert [e.reason for e in report.problems] == ["duplicate_key"] * 4


def test_far_folders(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for name in ("audio", "metainfo"):
        for suffix in (".bin", ".idx"):
            memory.pipe(f"/sums/{name}{suffix}", (folder / f"{name}{suffix}").read_bytes())
    assert index_lists(["memory://sums"]).utterances == COUNT
    assert delivered("memory://sums") == (keys(), {})
    data = bytearray((folder / "metainfo.bin").read_bytes())
    data[9] ^= 1
    memory.pipe("/sums/metainfo.bin", bytes(data))
    data = bytearray((folder / "audio.bin").read_bytes())
    data[-1] ^= 1
    memory.pipe("/sums/audio.bin", bytes(data))
    assert delivered("memory://sums") == (keys(0, COUNT - 1), {"bad_crc": 2})


def test_bad_utterances_are_said_when_they_are_indexed(tmp_path: Path) -> None:
    utterances = touchdataset.speech(4)
    utterances[1] = (utterances[1][0], {"key": "x"})
    touchdataset.write(tmp_path / "d", utterances)
    report = index_lists([str(tmp_path / "d")])
    assert [e.reason for e in report.problems] == ["missing_text"]
    assert delivered(tmp_path / "d")[1] == {"missing_text": 1}
    os.truncate(tmp_path / "d" / "audio.bin", 5)
    report = index_lists([str(tmp_path / "d")])
    assert [(e.reason, "fetch it again" in e.message) for e in report.problems] == [("bad_index", True)]


def test_each_lane_uses_the_one_table_of_its_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    compare = IndexedFile.compare

    def counting(self: IndexedFile, indexes: str | None = None) -> None:
        opened.append(self.data.path)
        compare(self, indexes)

    monkeypatch.setattr(IndexedFile, "compare", counting)
    graph = uio.from_indexed(folder, verify="crc").decode_audio()
    counts = []
    for lanes in (1, 8):
        opened.clear()
        assert len(list(uio.Loader(graph, lanes=lanes))) == COUNT
        counts.append(len(opened))
    assert counts[0] == counts[1] > 0


def flip_in(folder: Path, name: str, number: int) -> None:
    flip(folder / f"{name}.bin", IndexedFile(f"{folder}/{name}").span(number)[0] + 3)


@pytest.fixture
def modal(folder: Path) -> Path:
    """With a record of two other modalities for each utterance, and checksums."""
    for name, dtype in (("video", np.uint8), ("texttoken", np.int32)):
        touchdataset.write_pair(folder / name, [np.arange(40 + i).astype(dtype) for i in range(COUNT)])
    report = index_lists([str(folder)])
    assert (report.problems, report.fresh) == ([], 0)
    assert index_lists([str(folder)]).fresh == 1
    return folder


def test_records_of_other_modalities_are_compared_where_they_are_read(modal: Path) -> None:
    flip_in(modal, "video", 2)
    flip_in(modal, "texttoken", 5)
    all_of_it = f"{modal} audio+video+metainfo+texttoken"
    assert delivered(modal) == (keys(), {}), "which reads neither"
    assert delivered(f"{modal} audio+metainfo+video") == (keys(2), {"bad_crc": 1})
    assert delivered(all_of_it) == (keys(2, 5), {"bad_crc": 2})
    assert delivered(all_of_it, verify=None) == (keys(), {})
    untouched = uio.Loader(
        uio.from_indexed(f"{modal} audio+metainfo+video", verify="crc").decode_audio().batch(3).pad()
    )
    assert len(list(untouched)) == 3
    assert untouched.stats().failures == 0, "nothing is compared that is not read"


def test_a_video_is_compared_before_its_first_segment(modal: Path) -> None:
    touchdataset.write_pair(modal / "video", [np.frombuffer(video(20), np.uint8)] * COUNT)
    index_lists([str(modal)])
    flip(modal / "video.bin", IndexedFile(f"{modal}/video").span(3)[0] + 2000)
    cut = uio.from_indexed(f"{modal} audio+metainfo+video", verify="crc").map(_two_segments).segments()
    loader = uio.Loader(cut.decode_audio().decode_video().batch(2).pad(keep=["video"]))
    assert sum(len(batch["keys"]) for batch in loader) == 2 * COUNT - 2
    assert loader.stats().skipped == {"bad_crc": 2}


def _two_segments(sample: uio.Sample) -> uio.Sample:
    sample["info"] = {"segments": [{"start": t, "end": t + 0.1, "txt": "x"} for t in (0.0, 0.15)]}
    return sample


def test_index_and_verify_know_every_pair(modal: Path, tmp_path: Path) -> None:
    flip_in(modal, "video", 2)
    listed = tmp_path / "data.list"
    listed.write_text(f"{modal} audio+video+metainfo\n")
    for path in (modal, listed):
        *_, report = verify([str(path)], WantedChecks(crc=True))
        assert [(found.reason, found.key) for found in report.findings] == [("bad_crc", "T0002")]
        assert report.utterances == COUNT
    (modal / "video.bin.uioidx").unlink()
    *_, report = verify([str(listed)], WantedChecks(crc=True))
    assert report.reasons == {"missing_index": 1}
    assert index_lists([str(listed)]).fresh == 0
    touchdataset.write_pair(modal / "video", [np.zeros(5, np.uint8)] * COUNT)
    *_, report = verify([str(listed)], WantedChecks(crc=True))
    assert report.reasons == {"stale_index": 1}


@pytest.mark.parametrize("name", ["metainfo", "texttoken"])
def test_texts_and_tokens_without_audio(name: str, modal: Path, tmp_path: Path) -> None:
    for path in list(modal.iterdir()):
        if not path.name.startswith(name):
            path.unlink()
    listed = tmp_path / "data.list"
    listed.write_text(f"{modal} {name}\n")
    for path in (modal, listed):
        found = index_lists([str(path)])
        assert (found.utterances, found.folders, found.fresh) == (COUNT, 1, 1)
    flip_in(modal, name, 4)
    for path in (modal, listed):
        *_, report = verify([str(path)], WantedChecks(crc=True, decode=True))
        assert report.reasons == {"bad_crc": 1}
        loader = uio.Loader(uio.from_indexed(path, verify="crc"))
        assert len(list(loader)) == COUNT - 1
        assert loader.stats().skipped == {"bad_crc": 1}
