"""Members of known suffixes are text, wherever the utterance comes from; undecodable ones are failures."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from converting import convert
from helpers_bad import Members, keys, members, run, shard, shard_list

import uio_pipes as uio
from uio_pipes.stages.reading.load_from_tar import LoadFromTar
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.reports.inspect import inspect

PARTS: Members = [
    part
    for i, group in enumerate(zip(*[iter(members(4))] * 2, strict=True))
    for part in (
        *group,
        (f"K{i:03d}.speaker", f"S{i % 2}\n".encode()),
        (f"K{i:03d}.lang", "中".encode()),
        (f"K{i:03d}.json", b'{"n": 1}'),
    )
]


def local(root: Path, parts: Members) -> uio.Pipeline:
    return uio.from_shard_list(shard_list(root / "a.list", [shard(root / "a.tar", parts)]))


def streamed(root: Path, parts: Members) -> uio.Pipeline:
    data = Path(shard(root / "b.tar", parts)).read_bytes()
    (root / "b.tar.gz").write_bytes(gzip.compress(data))
    return uio.from_shard_list(shard_list(root / "b.list", [str(root / "b.tar.gz")]))


def indexed(root: Path, parts: Members) -> uio.Pipeline:
    listed = shard_list(root / "c.list", [shard(root / "c.tar", parts)])
    index_lists([str(listed)])
    return uio.from_tar_index(listed)


def as_webdataset(root: Path, parts: Members) -> uio.Pipeline:
    listed = shard_list(root / "d.list", [shard(root / "d.tar", parts)])
    return uio.from_shard_list(listed, grouping="webdataset")


SOURCES = [local, streamed, indexed, as_webdataset]
Source = Callable[[Path, Members], uio.Pipeline]


@pytest.mark.parametrize("source", SOURCES)
def test_a_filter_sees_text(tmp_path: Path, source: Source) -> None:
    graph = source(tmp_path, PARTS).filter(lambda sample: sample["speaker"] == "S1" and sample["lang"] == "中")
    samples, loader = run(graph)
    assert keys(samples) == ["K001", "K003"]
    assert {(s["speaker"], s["lang"], s["json"]) for s in samples} == {("S1", "中", b'{"n": 1}')}
    assert loader.stats().failures == 0


@pytest.mark.parametrize("source", SOURCES)
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path, source: Source) -> None:
    parts = [(name, b"\xef\xbb\xbf" + data if name.endswith(".txt") else data) for name, data in members(2)]
    assert all("\ufeff" not in sample["txt"] for sample in uio.Loader(source(tmp_path, parts)))


@pytest.mark.parametrize("source", SOURCES)
def test_text_that_is_no_utf8_is_a_failure_whether_it_is_used_or_not(tmp_path: Path, source: Source) -> None:
    parts = [(name, b"\xff\xfe" if name == "K002.speaker" else data) for name, data in PARTS]
    uses: dict[str, Any] = {
        "nowhere": lambda graph: graph,
        "batch": lambda graph: graph.decode_audio().batch(1).pad(),
        "filter": lambda graph: graph.filter(lambda sample: sample["speaker"] != ""),
        "speaker": lambda graph: graph.speaker({"S0": 1}),
    }
    for name, use in uses.items():
        samples, loader = run(use(source(tmp_path, parts)))
        assert len(samples) == 3, name
        assert loader.stats().skipped == {"bad_text": 1}, name


@pytest.mark.parametrize("source", SOURCES)
def test_languages_of_a_batch_are_text(tmp_path: Path, source: Source) -> None:
    parts = [*PARTS[:5], ("K000.task", b"transcribe ")]
    (batch,), _ = run(source(tmp_path, parts).decode_audio().batch(4).pad())
    assert (batch["langs"], batch["tasks"]) == (["中"], ["transcribe"])


@pytest.mark.parametrize("source", [local, streamed, indexed])
def test_speakers_are_counted_and_converted_by_name(tmp_path: Path, source: Source) -> None:
    graph = source(tmp_path, PARTS)
    assert inspect(graph).speakers == {"S0": 2, "S1": 2}
    listed = str(tmp_path / f"{'abc'[[local, streamed, indexed].index(source)]}.list")
    done = convert(listed, str(tmp_path / "out"), to="shards")
    back, _ = run(uio.from_shard_list(done.data_list))
    assert [s["speaker"] for s in back] == ["S0", "S1", "S0", "S1"]


def test_webdataset_s_suffixes_are_known_by_their_end(tmp_path: Path) -> None:
    parts = [*PARTS[:2], ("K000.zh.txt", "文 ".encode()), ("K000.note.bin", b"\xff")]
    (sample,), _ = run(as_webdataset(tmp_path, parts))
    assert (sample["zh.txt"], sample["note.bin"]) == ("文", b"\xff")


def test_an_overlay_s_speaker_is_used_like_the_member_s(tmp_path: Path) -> None:
    (tmp_path / "over.jsonl").write_text('{"key": "K001", "speaker": "S9"}\n')
    graph = local(tmp_path, PARTS).overlay(tmp_path / "over.jsonl")
    assert [s["speaker"] for s in run(graph)[0]] == ["S0", "S9", "S0", "S1"]
    assert [s["speaker"] for s in run(graph.speaker({"S0": 1, "S9": 2}))[0]] == [1, 2, 1, 0]


@pytest.mark.parametrize("make", [local, streamed])
def test_a_text_may_be_compressed(make: Callable[[Path, Members], uio.Pipeline], tmp_path: Path) -> None:
    packed = [(f"{n}.gz" if n.endswith("txt") else n, gzip.compress(d) if n.endswith("txt") else d) for n, d in PARTS]
    cut = [(n, d[:-9] if n == "K002.txt.gz" else d) for n, d in packed]
    graph = make(tmp_path, cut)
    how = {"grouping": "webdataset", "text": "txt.gz"}
    stages = [replace(one, **how) if isinstance(one, LoadFromTar) else one for one in graph.stages]
    found, loader = run(uio.Pipeline(tuple(stages)))
    texts = {sample["key"]: sample["txt"] for sample in run(make(tmp_path, PARTS))[0]}
    assert {sample["key"]: sample["txt"] for sample in found} == {k: t for k, t in texts.items() if k != "K002"}
    assert loader.stats().skipped == {"bad_text": 1}
