"""``decode_video`` runs when its field is touched, on any kind of reference to a video."""

import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import touchdataset
from video_files import near, video

import uio_pipes as uio


def run(pipeline: uio.Pipeline, **options: Any) -> tuple[list[Any], dict[str, int]]:
    loader = uio.Loader(pipeline, **options)
    return list(loader), loader.stats().skipped


def with_video(data: Any, **fields: Any) -> uio.Pipeline:
    return uio.from_iterable([{"key": "a", "txt": "t", "video": data, **fields}])


def test_frames_are_a_tensor_in_place_of_the_video() -> None:
    (made,), _ = run(with_video(video(12)).decode_video())
    assert str(made["video"].dtype) == "torch.uint8"
    assert made["video"].shape == (12, 3, 48, 64)
    assert near(made["video"], list(range(12)))


def test_the_span_the_rate_the_size_and_the_field_are_chosen() -> None:
    graph = with_video(None, clip=video(50), start=1.0, end=1.6).decode_video(fps=5, size=(24, 32), field="clip")
    (made,), _ = run(graph)
    assert made["clip"].shape == (3, 3, 24, 32)
    assert near(made["clip"], [25, 30, 35])
    assert "video" not in made


def test_files_and_members_of_shards(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(video(9))
    (made,), _ = run(with_video(str(tmp_path / "a.mp4")).decode_video())
    assert near(made["video"], list(range(9)))
    (made,), _ = run(with_video(f"file://{tmp_path}/a.mp4").decode_video())
    assert near(made["video"], list(range(9)))
    samples, _ = touchdataset.speech(1)[0]
    wav = BytesIO()

    soundfile.write(wav, samples, 8000, format="WAV")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, data in (("a.txt", b"t"), ("a.mp4", video(9)), ("a.wav", wav.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, BytesIO(data))
    (made,), _ = run(uio.from_shard_list(str(tmp_path / "a.tar")).decode_audio().decode_video(field="mp4"))
    assert near(made["mp4"], list(range(9)))


def test_a_batch_has_the_frames_as_a_list_if_they_are_named() -> None:
    data = [{"key": f"k{i}", "txt": "t", "label": [1] * (3 - i), "video": video(5 + i)} for i in range(3)]
    graph = uio.from_iterable(data).decode_video().batch(3)
    (batch,), _ = run(graph.pad(keep=["video", "nothing"]))
    assert batch["keys"] == ["k0", "k1", "k2"]
    assert [len(frames) for frames in batch["video"]] == [5, 6, 7]
    assert batch["nothing"] == [None] * 3
    assert "video" not in run(graph.pad())[0][0]


def test_frames_come_through_workers() -> None:
    data = [{"key": f"k{i}", "txt": "t", "label": [1], "video": video(30, shape=(96, 128))} for i in range(4)]
    graph = uio.from_iterable(data).sharding_filter().decode_video().batch(1).pad(keep=["video"])
    alone, _ = run(graph, lanes=2)
    there, _ = run(graph, lanes=2, num_workers=2)
    for a, b in zip(alone, there, strict=True):
        assert np.array_equal(a["video"][0].numpy(), b["video"][0].numpy())


def test_nothing_is_decoded_to_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from uio_pipes.stages.audio import decode as module

    calls = []
    real = module.decode_video
    monkeypatch.setattr(module, "decode_video", lambda *given: calls.append(1) or real(*given))
    sound = {"txt": "t", "wav": np.zeros(800, "f4"), "sample_rate": 8000, "video": video(5)}
    data = [{"key": f"k{i}", **sound} for i in range(6)]
    graph = uio.from_iterable(data).decode_audio().decode_video().filter(lambda s: s["key"] != "k3").sort(4).batch(5)
    loader = uio.Loader(graph.pad(keep=["video"]))
    next(iter(loader))
    assert len(calls) == 5


@pytest.mark.parametrize(
    ("data", "reason"),
    [(None, "missing_video"), (7, "missing_video"), (b"", "bad_video"), (b"no video at all", "bad_video")],
)
def test_what_is_no_video_is_counted(data: Any, reason: str) -> None:
    sound = {"key": "b", "txt": "t", "video": video(5)}
    made, skipped = run(uio.from_iterable([{"key": "a", "txt": "t", "video": data}, sound]).decode_video())
    assert [sample["key"] for sample in made] == ["b"]
    assert skipped == {reason: 1}
