"""TouchDatasets with more than audio and metadata, or less: video and others, texts alone, tokens, mixtures."""

import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import touchdataset
from converting import convert
from helpers_bad import counted as run
from video_files import FPS, near, video

import uio_pipes as uio
from uio_pipes.io.access import PLAIN
from uio_pipes.io.local import LocalFile
from uio_pipes.io.opening import fetch_early, is_far
from uio_pipes.sources.touchdataset.source import IndexedTable
from uio_pipes.tools.data import metainfo
from uio_pipes.tools.data.dictionary import Texts
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.reports.inspect import inspect
from uio_pipes.tools.reports.simulate import simulate

COUNT = 7
DEPTH = [np.arange(i, i + 5, dtype=np.float32) for i in range(COUNT)]


def put(folder: Path, name: str, items: list[Any]) -> None:
    """One more pair of files; bytes are items of uint8."""
    touchdataset.write_pair(
        folder / name, [i if isinstance(i, np.ndarray) else np.frombuffer(i, np.uint8) for i in items]
    )


@pytest.fixture(scope="module")
def videos() -> list[bytes]:
    return [video(20 + i) for i in range(COUNT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, videos: list[bytes]) -> Path:
    """Audio of a second, a video of as much, and arrays of something else."""
    path = tmp_path_factory.mktemp("modalities") / "a"
    touchdataset.write(path, touchdataset.speech(COUNT, seconds=(1.0, 1.05)))
    put(path, "video", videos)
    put(path, "depth", DEPTH)
    tokens = [np.arange(1, 2 + i, dtype=np.uint16) for i in range(COUNT)]
    put(path, "texttoken", tokens)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes read of each file, by its name."""
    taken: dict[str, int] = {}
    real = LocalFile.read_upto

    def counting(self: LocalFile, offset: int, size: int) -> bytes:
        data = real(self, offset, size)
        taken[Path(self.path).name] = taken.get(Path(self.path).name, 0) + len(data)
        return data

    monkeypatch.setattr(LocalFile, "read_upto", counting)
    return taken


def listed(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "data.list"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("word", ["audio+video+metainfo", "video+audio+metainfo", "metainfo+audio+video"])
def test_the_record_is_a_field_of_its_name(word: str, folder: Path, videos: list[bytes], tmp_path: Path) -> None:
    plain, _ = run(uio.from_indexed(folder).decode_audio())
    for dirs in (listed(tmp_path, f"{folder} {word}"), f"{folder} {word}"):
        made, _ = run(uio.from_indexed(dirs).decode_audio())
        assert [sample["video"] for sample in made] == videos
        assert [sample["key"] for sample in made] == [sample["key"] for sample in plain]
        assert all((a["wav"] == b["wav"]).all() for a, b in zip(made, plain, strict=True))


def test_any_pair_of_files_is_a_modality(folder: Path) -> None:
    made, _ = run(uio.from_indexed(f"{folder} audio+depth+video+metainfo").decode_audio())
    assert all((np.frombuffer(s["depth"], np.float32) == d).all() for s, d in zip(made, DEPTH, strict=True))


def test_nothing_is_read_of_what_is_not_touched(folder: Path, reads: dict[str, int]) -> None:
    graph = uio.from_indexed(f"{folder} audio+video+depth+metainfo", shuffle=True).decode_audio()
    made, _ = run(graph.shuffle(4).sort(3).batch(3).pad())
    assert sum(len(batch["keys"]) for batch in made) == COUNT
    assert reads["audio.bin"] > 0
    assert "video.bin" not in reads
    assert "depth.bin" not in reads
    run(graph.batch(3).pad(keep=["depth"]))
    assert reads["depth.bin"] == sum(d.nbytes for d in DEPTH)
    assert "video.bin" not in reads


def test_frames_of_the_whole_and_of_segments(folder: Path, tmp_path: Path) -> None:
    source = uio.from_indexed(f"{folder} audio+video+metainfo")
    (batch, *_), _ = run(source.decode_audio().decode_video().batch(3).pad(keep=["txt", "video"]))
    assert sorted(frames.shape[0] for frames in batch["video"]) == [20, 21, 22]
    for key, frames in zip(batch["keys"], batch["video"], strict=True):
        assert near(frames, list(range(20 + int(key[1:]))))
    said = [{"start": 0.2, "end": 0.4, "txt": "a"}, {"start": "0.44", "end": "0.6", "txt": "b"}]
    cut = source.map(lambda s: _with_segments(s, said)).segments().decode_audio().decode_video()
    made, stats = run(cut)
    assert stats.failures == 0
    assert len(made) == 2 * COUNT
    assert all(near(s["video"], [5, 6, 7, 8, 9] if s["txt"] == "a" else [11, 12, 13, 14]) for s in made)
    assert all(s["wav"].shape[1] == (1600 if s["txt"] == "a" else 1280) for s in made)


def _with_segments(sample: uio.Sample, segments: list[dict[str, Any]]) -> uio.Sample:
    sample["info"] = {"segments": segments}
    return sample


def test_video_and_metadata_without_audio(tmp_path: Path, videos: list[bytes]) -> None:
    texts = [{"key": f"v{i}", "txt": f"t{i}"} for i in range(COUNT)]
    texts[2]["info"] = {"segments": [{"start": 0.0, "end": 0.2, "txt": "cut"}]}  # type: ignore[assignment]
    put(tmp_path, "metainfo", [json.dumps(one).encode() for one in texts])
    put(tmp_path, "video", videos)
    source = uio.from_indexed(f"{tmp_path} video+metainfo")
    made, _ = run(source.decode_video(fps=FPS / 5))
    assert [len(s["video"]) for s in made] == [4, 5, 5, 5, 5, 5, 6]
    assert "wav" not in made[0]
    (one,), stats = run(source.segments().decode_video())
    assert near(one["video"], [0, 1, 2, 3, 4])
    assert stats.skipped == {"missing_segments": COUNT - 1}


def test_metadata_alone_is_text(tmp_path: Path) -> None:
    texts = [{"key": "a", "txt": "天气"}, {"txt": "不错", "source": "web"}, {"txt": 7}, {"key": "", "txt": "x"}, {}]
    put(tmp_path, "metainfo", [json.dumps(one).encode() for one in texts])
    for dirs in (tmp_path, f"{tmp_path} metainfo"):
        made, stats = run(uio.from_indexed(dirs))
        assert [s["txt"] for s in made] == ["天气", "不错", "7"]
        assert [s["key"] for s in made] == ["a", f"{tmp_path}:1", f"{tmp_path}:2"]
        assert made[1]["source"] == "web"
        assert stats.skipped == {"missing_key": 1, "missing_text": 1}
    (batch,), _ = run(uio.from_indexed(tmp_path).tokenize(lambda text: list(map(ord, text))).batch(5).pad())
    assert batch["target"].tolist() == [[ord(c) for c in "天气"], [ord(c) for c in "不错"], [ord("7"), -1]]
    assert batch.keys() == {"keys", "target", "target_lengths"}


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_tokens_alone_are_labels(dtype: Any, tmp_path: Path) -> None:
    tokens = [[5, 60_000], [1], [], [7, 8, 9]]
    put(tmp_path, "texttoken", [np.array(one, dtype) for one in tokens])
    for dirs in (tmp_path, listed(tmp_path, f"{tmp_path} texttoken")):
        made, _ = run(uio.from_indexed(dirs))
        assert [s["label"] for s in made] == tokens
        assert [s["key"] for s in made] == [f"{tmp_path}:{i}" for i in range(4)]
    (batch,), _ = run(uio.from_indexed(tmp_path).batch(4).pad())
    assert batch["target_lengths"].tolist() == [3, 2, 1, 0]
    assert batch["target"][0].tolist() == [7, 8, 9]


def test_tokens_beside_audio_and_metadata(folder: Path) -> None:
    (batch, *_), _ = run(uio.from_indexed(f"{folder} audio+metainfo+texttoken").decode_audio().batch(COUNT).pad())
    lengths = dict(zip(batch["keys"], batch["target_lengths"].tolist(), strict=True))
    assert lengths == {f"T{i:04d}": i + 1 for i in range(COUNT)}


def test_tokens_are_integers(tmp_path: Path) -> None:
    put(tmp_path, "texttoken", [np.zeros(3, np.float32)])
    with pytest.raises(uio.ListError, match="ids of tokens are integers, not float32"):
        run(uio.from_indexed(tmp_path))


def test_folders_of_different_modalities_in_one_list(folder: Path, tmp_path: Path) -> None:
    put(tmp_path, "metainfo", [json.dumps({"key": f"t{i}", "txt": "x"}).encode() for i in range(3)])
    path = listed(tmp_path, f"{folder} audio+metainfo", f"{folder} audio+video+metainfo", f"{tmp_path} metainfo")
    made, _ = run(uio.from_indexed(path))
    assert len(made) == 2 * COUNT + 3
    assert [set(s) & {"wav", "video"} for s in made] == (
        [{"wav"}] * COUNT + [{"wav", "video"}] * COUNT + [set[str]()] * 3
    )
    shuffled = uio.Loader(uio.from_indexed(path, shuffle=True), lanes=3)
    assert len(list(shuffled)) == 2 * COUNT + 3 == len(shuffled)
    batches, stats = run(uio.from_indexed(path).decode_audio().batch(20).pad())
    assert sum(len(batch["keys"]) for batch in batches) == 2 * COUNT
    assert stats.skipped == {"missing_audio": 3}


def test_video_alone_has_no_length_and_needs_metadata(folder: Path) -> None:
    with pytest.raises(uio.ListError, match=r"has 'video'; exactly one .* must be metadata .* try video\+metainfo"):
        run(uio.from_indexed(f"{folder} video"))
    source = uio.from_indexed(f"{folder} video+depth+metainfo").decode_video()
    with pytest.raises(uio.PipelineError, match=r"it has no audio; batch it by number with .batch"):
        run(source.dynamic_batch(100).pad())


def test_texts_may_be_nested(tmp_path: Path) -> None:
    put(tmp_path, "metainfo", [json.dumps({"key": "a", "info": {"texts": {"whisper": "w"}}}).encode()])
    names = ["info.texts.whisper"]
    assert [s["txt"] for s in run(uio.from_indexed(tmp_path, texts=names).choose_text(names))[0]] == ["w"]


def test_lanes_get_equal_shares_of_texts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    put(tmp_path, "texttoken", [np.zeros(n, np.uint16) for n in rng.integers(1, 400, 200)])
    node = uio.from_indexed(tmp_path, shuffle=True)
    shares = [sum(len(s["label"]) for s in uio.Loader(node, rank=r, world_size=4, uneven="join")) for r in range(4)]
    assert max(shares) - min(shares) < 400


def test_other_transcripts_than_txt(tmp_path: Path) -> None:
    utterances = touchdataset.speech(3)
    for i, (_, fields) in enumerate(utterances):
        del fields["txt"]
        fields[("whisper", "paraformer", "other")[i]] = f"said {i}"
    touchdataset.write(tmp_path, utterances)
    assert run(uio.from_indexed(tmp_path))[1].skipped == {"missing_text": 3}
    names = ["whisper", "paraformer"]
    made, stats = run(uio.from_indexed(tmp_path, texts=names).choose_text(names))
    assert [s["txt"] for s in made] == ["said 0", "said 1"]
    assert stats.skipped == {"missing_text": 1}


def test_far_records_are_not_fetched_early(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/untouched/{path.name}", path.read_bytes())
    table = IndexedTable(("memory://untouched audio+video+metainfo",), None, PLAIN)
    utterances = [table.fields(number) for number in range(3)]
    assert all(is_far(fields["video"]) and is_far(fields["wav"]) for fields in utterances)
    assert fetch_early(utterances) == sum(fields["wav"].size for fields in utterances)


def test_another_number_of_records_is_an_error_and_a_state_of_other_modalities_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    state = uio.Loader(uio.from_indexed(folder)).state_dict()
    with pytest.raises(uio.StateError, match="list"):
        uio.Loader(uio.from_indexed(f"{folder} audio+video+metainfo")).load_state_dict(state)
    touchdataset.write(tmp_path, touchdataset.speech(3))
    put(tmp_path, "video", [b"x", b"y"])
    with pytest.raises(uio.ListError, match=r"audio\.idx has 3 utterances, video\.idx 2; they do not belong together"):
        run(uio.from_indexed(f"{tmp_path} audio+video+metainfo"))
    assert len(run(uio.from_indexed(tmp_path))[0]) == 3, "which does not read it"


def test_inspect_simulate_and_convert_know_them(folder: Path, tmp_path: Path) -> None:
    for name in ("metainfo", "texttoken"):
        put(tmp_path, name, [(folder / f"{name}.bin").read_bytes()] if name == "texttoken" else [b'{"txt": "x"}'] * 2)
        path = tmp_path / f"{name}.list"
        path.write_text(f"{tmp_path} {name}\n")
        contents = inspect(recognize(str(path)).pipeline)
        assert contents.codecs == {"none": contents.utterances}
        assert contents.unknown == contents.failures.total() == 0
        with pytest.raises(uio.ListError, match=r"nothing was packed: .* missing_(audio|text)"):
            convert(str(path), str(tmp_path / f"out_{name}"))
    path = listed(tmp_path, f"{folder} audio+video+metainfo")
    for given in (path, folder):
        assert inspect(recognize(str(given)).pipeline).fields["video"] == COUNT
    graph = uio.from_indexed(path, shuffle=True).decode_audio().decode_video().batch(2).pad()
    assert len(simulate(graph, world_size=2, uneven="join").lengths) == COUNT
    assert convert(str(path), str(tmp_path / "out")).dropped == ["video"]


def test_metadata_of_every_kind_of_list_can_be_edited(folder: Path, tmp_path: Path) -> None:
    put(tmp_path, "metainfo", [json.dumps({"key": f"t{i}", "txt": "x"}).encode() for i in range(3)])
    path = listed(tmp_path, f"{tmp_path} metainfo")
    assert metainfo.rewrite(path, lambda fields: fields | {"txt": "new"}) == 3
    made, _ = run(uio.from_indexed(path, metainfo="metainfo_v2"))
    assert [s["txt"] for s in made] == ["new"] * 3
    assert list(Texts(str(path))) == ["x"] * 3
    tokens = tmp_path / "tokens.list"
    tokens.write_text(f"{folder} texttoken\n")
    with pytest.raises(uio.ListError, match="the ids of tokens, without"):
        list(metainfo.read(tokens))
    texts = Texts(str(tokens))
    assert (list(texts), {bad.reason for bad in texts.bad}) == ([], {"missing_text"})
