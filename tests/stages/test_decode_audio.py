"""Decoding through a graph: channels, formats, and what decoding has to come first; frames of videos."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoded import CODECS, chirp, encode
from helpers_bad import audio, code_points, keys, run, shard
from video_files import near, video

import uio_pipes as uio
from uio_pipes.audio.decode import decode


def pipeline(root: Path, suffix: str, data: list[bytes]) -> uio.Pipeline:
    parts = [(f"K{i}.{s}", d) for i, x in enumerate(data) for s, d in (("txt", b"t"), (suffix, x))]
    return uio.from_shard_list(shard(root / "x.tar", parts))


def test_what_only_decoding_can_measure_needs_decoding_first(tmp_path: Path) -> None:
    data = [audio(16_000, rate=16_000, form="MP3", subtype="MPEG_LAYER_III")]
    with pytest.raises(uio.PipelineError, match=r"decode_audio\(\) before"):
        run(pipeline(tmp_path, "mp3", data).sort(3).decode_audio())
    graph = pipeline(tmp_path, "wav", [audio(), audio()])
    for undecoded, stage in ((graph.concat(max_seconds=5), "concat"), (graph.batch(1).pad(), "batching")):
        with pytest.raises(uio.PipelineError, match=rf"put .decode_audio\(\) before {stage}"):
            run(undecoded)


def test_missing_channel_is_a_failure_that_says_so(tmp_path: Path) -> None:
    graph = pipeline(tmp_path, "wav", [audio(800), audio(800, channels=2)]).decode_audio(channel=1)
    batches, loader = run(graph)
    assert keys(batches) == ["K1"]
    assert loader.stats().skipped == {"no_such_channel": 1}
    with pytest.raises(uio.DataError, match="there is no channel 1: the audio has 1"):
        run(graph, failures="raise")


def test_several_channels_cannot_be_packed_or_have_features_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    graph = pipeline(tmp_path, "wav", [audio(800, channels=2)]).decode_audio(channel=None)
    for stopped in (
        graph.pack(max_frames=900),
        graph.fbank().batch(1).pad(),
        graph.resample(16_000).pack(max_frames=900),
    ):
        with pytest.raises(uio.PipelineError, match="channel"):
            run(stopped)


def test_waveforms_that_a_function_made_pass(tmp_path: Path) -> None:
    def made(sample: uio.Sample) -> dict[str, Any]:
        return {"key": sample["key"], "wav": np.ones((1, 40), np.float32), "sample_rate": 4000}

    batches, _ = run(pipeline(tmp_path, "wav", [audio()]).map(made).decode_audio().batch(1).pad(), failures="raise")
    assert batches[0]["pcm"].tolist() == [[1.0] * 40]


# m4a, aac and wma: from shards and from lists, planned by decoding


SAMPLES = (16_000, 5_001, 40_000)


def suffix_of(codec: str) -> str:
    return "m4a" if codec == "alac" else codec


def from_shard(root: Path, codec: str) -> uio.Pipeline:
    data = [encode(chirp(n, 16_000), 16_000, codec) for n in SAMPLES]
    parts = [(f"K{i}.{s}", d) for i, x in enumerate(data) for s, d in (("txt", b"t"), (suffix_of(codec), x))]
    return uio.from_shard_list(shard(root / "x.tar", parts))


def from_list(root: Path, codec: str, **fields: Any) -> uio.Pipeline:
    items = []
    for i, n in enumerate(SAMPLES):
        path = root / f"K{i}.{suffix_of(codec)}"
        path.write_bytes(encode(chirp(n, 16_000), 16_000, codec))
        items.append({"key": f"K{i}", "wav": str(path), "txt": "t", **fields})
    return uio.from_raw_list(items)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("source", [from_shard, from_list])
def test_every_codec_can_be_sorted_filtered_and_batched(tmp_path: Path, codec: str, source: Any) -> None:
    plans: dict[str, int] = {}

    def look(sample: uio.Sample) -> bool:
        plans[sample.key] = sample.plan.samples
        return True

    graph = source(tmp_path, codec).decode_audio().filter(look).filter(max_frames=200).sort(3).dynamic_batch(500).pad()
    batches, loader = run(graph)
    assert keys(batches) == ["K0", "K1"]
    assert loader.stats().skipped == {"too_long": 1}
    for key, n, data in zip(batches[0]["keys"], batches[0]["pcm_length"], batches[0]["pcm"], strict=True):
        i = int(key[1])
        whole, _ = decode(encode(chirp(SAMPLES[i], 16_000), 16_000, codec), 0)
        assert int(n) == plans[key] == whole.shape[1]
        assert torch.equal(data[:n], whole[0])
        if suffix_of(codec) == "m4a":
            assert n == SAMPLES[i]


def test_print_says_which_formats_are_decoded_early() -> None:
    assert "mp3, m4a, aac, wma: when its length is needed" in str(uio.from_raw_list("x.list").decode_audio())


def test_titles_that_are_no_utf8_are_no_matter() -> None:
    data = encode(chirp(8000, 16_000), 16_000, "m4a")
    in_gbk = data.replace(b"Lavf", "中文".encode("gbk"))
    assert in_gbk != data
    assert decode(in_gbk, 0)[0].equal(decode(data, 0)[0])


# Stages that order, leave out or look at texts and lengths decode nothing


def upper(sample: uio.Sample) -> uio.Sample:
    sample["txt"] = sample["txt"].upper()
    return sample


def twice(sample: uio.Sample) -> list[uio.Sample]:
    return [sample, sample]


def of_both(frames: int, tokens: int) -> int:
    return frames * tokens


STAGES: dict[str, tuple[Callable[[uio.Pipeline], uio.Pipeline], list[str]]] = {
    "map": (lambda p: p.map(upper), ["A0", "BB1", "CCC2"]),
    "flat_map": (lambda p: p.flat_map(twice), ["a0", "a0", "bb1", "bb1", "ccc2", "ccc2"]),
    "filter by a function": (lambda p: p.filter(lambda s: s["txt"] != "bb1"), ["a0", "ccc2"]),
    "filter by labels": (lambda p: p.tokenize(code_points).filter(token_max_length=3), ["a0", "bb1"]),
    "ctc_filter": (lambda p: p.tokenize(code_points).ctc_filter(), ["a0", "bb1", "ccc2"]),
    "shuffle": (lambda p: p.shuffle(1), ["a0", "bb1", "ccc2"]),
    "sort": (lambda p: p.sort(3), ["ccc2", "bb1", "a0"]),
    "bucket_batch": (
        lambda p: p.tokenize(code_points).bucket_batch(num_buckets=(1, 1), max_cost=10**6, cost=of_both),
        ["a0", "bb1", "ccc2"],
    ),
}


@pytest.mark.parametrize("name", STAGES)
def test_nothing_is_decoded(name: str) -> None:
    items = [
        {"key": t, "wav": "/nowhere.wav", "txt": t, "duration": 3 - i} for i, t in enumerate(("a0", "bb1", "ccc2"))
    ]
    build, expected = STAGES[name]
    seen: list[str] = []

    def look(item: Any) -> bool:
        seen.extend(sample["txt"] for sample in (item if isinstance(item, list) else [item]))
        return False

    graph = build(uio.from_raw_list(items).decode_audio().fbank(20))
    if name == "bucket_batch":
        assert len(uio.Loader(graph.pad())) == 1, "planned"
        return
    _, loader = run(graph.filter(look))
    assert (seen, loader.stats().failures) == (expected, 0)


# Videos


def decoded(pipeline: uio.Pipeline, **options: Any) -> tuple[list[Any], dict[str, int]]:
    loader = uio.Loader(pipeline, **options)
    return list(loader), loader.stats().skipped


def with_video(data: Any, **fields: Any) -> uio.Pipeline:
    return uio.from_iterable([{"key": "a", "txt": "t", "video": data, **fields}])


def test_frames_are_a_tensor_in_place_of_the_video() -> None:
    (made,), _ = decoded(with_video(video(12)).decode_video())
    assert str(made["video"].dtype) == "torch.uint8"
    assert made["video"].shape == (12, 3, 48, 64)
    assert near(made["video"], list(range(12)))


def test_the_span_the_rate_the_size_and_the_field_are_chosen() -> None:
    graph = with_video(None, clip=video(50), start=1.0, end=1.6).decode_video(fps=5, size=(24, 32), field="clip")
    (made,), _ = decoded(graph)
    assert made["clip"].shape == (3, 3, 24, 32)
    assert near(made["clip"], [25, 30, 35])
    assert "video" not in made


def test_files_and_members_of_shards(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(video(9))
    (made,), _ = decoded(with_video(str(tmp_path / "a.mp4")).decode_video())
    assert near(made["video"], list(range(9)))
    (made,), _ = decoded(with_video(f"file://{tmp_path}/a.mp4").decode_video())
    assert near(made["video"], list(range(9)))
    path = shard(tmp_path / "a.tar", [("a.txt", b"t"), ("a.mp4", video(9)), ("a.wav", audio())])
    (made,), _ = decoded(uio.from_shard_list(path).decode_audio().decode_video(field="mp4"))
    assert near(made["mp4"], list(range(9)))


def test_a_batch_has_the_frames_as_a_list_if_they_are_named() -> None:
    data = [{"key": f"k{i}", "txt": "t", "label": [1] * (3 - i), "video": video(5 + i)} for i in range(3)]
    graph = uio.from_iterable(data).decode_video().batch(3)
    (batch,), _ = decoded(graph.pad(keep=["video", "nothing"]))
    assert batch["keys"] == ["k0", "k1", "k2"]
    assert [len(frames) for frames in batch["video"]] == [5, 6, 7]
    assert batch["nothing"] == [None] * 3
    assert "video" not in decoded(graph.pad())[0][0]


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
    made, skipped = decoded(uio.from_iterable([{"key": "a", "txt": "t", "video": data}, sound]).decode_video())
    assert [sample["key"] for sample in made] == ["b"]
    assert skipped == {reason: 1}
