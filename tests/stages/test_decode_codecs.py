"""m4a, aac and wma through a graph: from shards and from lists, whole and in segments, planned by decoding."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from encoded import CODECS, chirp, encode
from helpers_bad import keys, run, shard

import uio_pipes as uio
from uio_pipes.audio.decode import decode

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


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_segments_are_cut_out_and_planned(tmp_path: Path, codec: str, workers: int) -> None:
    graph = from_list(tmp_path, codec, start=0.1, end=0.25).decode_audio().sort(3)
    batches, _ = run(graph, failures="raise", num_workers=workers)
    assert [b["wav"].shape for b in batches] == [(1, 2400)] * 3


@pytest.mark.parametrize("codec", CODECS)
def test_cut_off_file_is_a_failure_and_the_rest_comes(tmp_path: Path, codec: str) -> None:
    graph = from_list(tmp_path, codec)
    path = tmp_path / f"K1.{suffix_of(codec)}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    batches, loader = run(graph.decode_audio())
    assert keys(batches) == ["K0", "K2"]
    assert loader.stats().failures == 1
    assert loader.stats().skipped.keys() <= {"bad_audio", "truncated_audio"}


@pytest.mark.parametrize("codec", ["m4a", "aac", "wma"])
def test_without_the_extra_the_failure_says_what_to_install(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = from_list(tmp_path, codec).decode_audio()
    monkeypatch.setitem(sys.modules, "av", None)
    assert run(graph)[1].stats().skipped == {"missing_codec": 3}
    with pytest.raises(uio.DataError, match=rf"{codec} audio .* pip install 'uio_pipes\[codecs\]'"):
        run(graph, failures="raise")


def test_print_says_which_formats_are_decoded_early() -> None:
    assert "mp3, m4a, aac, wma: when its length is needed" in str(uio.from_raw_list("x.list").decode_audio())


def test_noise_may_be_coded_too(tmp_path: Path) -> None:
    graph = from_list(tmp_path, "m4a").decode_audio()
    noisy, _ = run(graph.add_noise(str(tmp_path / "*.m4a"), snr=(0, 0)), failures="raise")
    clean, _ = run(graph)
    assert all(not torch.equal(a["wav"], b["wav"]) for a, b in zip(clean, noisy, strict=True))


def test_titles_that_are_no_utf8_are_no_matter() -> None:
    data = encode(chirp(8000, 16_000), 16_000, "m4a")
    in_gbk = data.replace(b"Lavf", "中文".encode("gbk"))
    assert in_gbk != data
    assert decode(in_gbk, 0)[0].equal(decode(data, 0)[0])
