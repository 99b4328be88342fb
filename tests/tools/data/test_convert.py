"""Conversions: every source to a TouchDataset and back, sample by sample; killed, damaged, misused."""

import json
from pathlib import Path
from typing import Any

import corpus
import fsspec
import pytest
import torch
import touchdataset
from command import uio as command
from converting import convert
from corpus import DAMAGE, Corpus

import uio_pipes as uio
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.tools.data.index import index_lists, index_shard
from uio_pipes.tools.data.metainfo import read
from uio_pipes.tools.data.pack import PackSettings, pack
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.reports.inspect import inspect


def made(pipeline: uio.Pipeline) -> list[Any]:
    return list(uio.Loader(pipeline.decode_audio()))


def same(left: list[Any], right: list[Any], *names: str) -> None:
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a["wav"], b["wav"])
        for name in ("key", "txt", "sample_rate", *names):
            assert a[name] == b[name]


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("source", ["shards", "gz", "raw", "shard"])
def test_a_list_becomes_a_touchdataset_sample_by_sample(
    source: str, jobs: int, plain_corpus: Corpus, gz_corpus: Corpus, raw_corpus: Corpus, tmp_path: Path
) -> None:
    first = plain_corpus.list.read_text().split("\n")[2]
    path, pipeline = {
        "shards": (plain_corpus.list, uio.from_shard_list(plain_corpus.list)),
        "gz": (gz_corpus.list, uio.from_shard_list(gz_corpus.list)),
        "raw": (raw_corpus.list, uio.from_raw_list(raw_corpus.list)),
        "shard": (first, uio.from_shard_list(first)),
    }[source]
    done = convert(str(path), str(tmp_path / "out"), per_part=4, jobs=jobs)
    right = made(pipeline)
    same(made(uio.from_indexed(done.data_list)), right)
    assert (done.utterances, len(done.shards), done.failed) == (len(right), -(-len(right) // 4), {})
    assert (tmp_path / "out" / "failed.jsonl").read_bytes() == b""


@pytest.mark.parametrize("form", ["wav", "flac"])
@pytest.mark.parametrize("to", ["shards", "raw", "indexed"])
def test_a_touchdataset_becomes_shards_or_a_raw_list_again(to: Any, form: Any, tmp_path: Path) -> None:
    source = touchdataset.write(tmp_path / "d", touchdataset.speech(11))
    done = convert(str(source), str(tmp_path / "out"), to=to, per_part=4, form=form)
    opened = {"shards": uio.from_shard_list, "raw": uio.from_raw_list, "indexed": uio.from_indexed}[to](done.data_list)
    kept = [] if to == "shards" else ["info", "speaker"]
    same(made(opened), made(uio.from_indexed(source)), *kept)
    assert done.dropped == (["info"] if to == "shards" else [])


def test_an_index_of_shards_gives_what_the_shards_do(tmp_path: Path) -> None:
    lines = [{"key": f"k{i}", "wav": str(tmp_path / f"{i}.wav"), "txt": "文", "speaker": f"s{i % 2}"} for i in range(6)]
    for i in range(6):
        (tmp_path / f"{i}.wav").write_bytes(corpus.wav_bytes(i))
    (tmp_path / "raw.list").write_text("".join(json.dumps(one) + "\n" for one in lines))
    pack(tmp_path / "raw.list", tmp_path / "packed", tmp_path / "shards.list", PackSettings())
    (shard,) = (tmp_path / "packed").glob("*.tar")
    index_shard(str(shard))
    sidecar = str(shard) + ".uioidx"
    assert inspect(recognize(sidecar).pipeline).speakers == inspect(recognize(str(shard)).pipeline).speakers
    done = convert(sidecar, str(tmp_path / "out"))
    assert [fields["speaker"] for fields in read(done.data_list)] == ["s0", "s1"] * 3
    assert done.dropped == []
    packed = read_manifest(str(tmp_path / "shards.list"))
    assert packed is not None
    (tmp_path / "shards.list.manifest").unlink()
    index_lists([str(tmp_path / "shards.list")])
    indexed = read_manifest(str(tmp_path / "shards.list"))
    assert indexed is not None
    assert dict(indexed) == dict(packed), "lengths, too, are counted alike"


def test_resampled_audio_is_what_the_stage_makes(plain_corpus: Corpus, tmp_path: Path) -> None:
    done = convert(str(plain_corpus.list), str(tmp_path / "out"), resample=4000)
    right = list(uio.Loader(uio.from_shard_list(plain_corpus.list).decode_audio().resample(4000)))
    for a, b in zip(made(uio.from_indexed(done.data_list)), right, strict=True):
        assert a["sample_rate"] == 4000
        assert (a["wav"] - b["wav"]).abs().max() <= 0.5 / 32768 + 1e-7


def test_far_folders_are_written(plain_corpus: Corpus, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    if memory.exists("/converted"):
        memory.rm("/converted", recursive=True)
    done = convert(str(plain_corpus.list), "memory://converted/a", per_part=9)
    assert done.data_list == "memory://converted/a/data.list"
    same(made(uio.from_indexed(done.data_list)), made(uio.from_shard_list(plain_corpus.list)))


def test_what_cannot_be_converted_is_counted_and_listed(bad_corpus: Corpus, tmp_path: Path) -> None:
    done = convert(str(bad_corpus.list), str(tmp_path / "out"), per_part=6)
    assert done.failed == dict.fromkeys(DAMAGE.values(), 1)
    assert [f["key"] for f in read(done.data_list)] == list(bad_corpus.keys)
    listed = [json.loads(line) for line in (tmp_path / "out" / "failed.jsonl").read_text().splitlines()]
    assert sorted(one["reason"] for one in listed) == sorted(DAMAGE.values())
    assert all(".tar" in one["detail"] for one in listed)
    again = convert(str(bad_corpus.list), str(tmp_path / "out"), per_part=6)
    assert vars(again) == vars(done), "once more, nothing is counted twice"


def test_nothing_to_convert_is_an_error(feature_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(uio.ListError, match="nothing was packed: 20 missing_audio"):
        convert(str(feature_corpus.list), str(tmp_path / "out"))


@pytest.mark.parametrize("to", ["indexed", "shards", "raw"])
def test_what_is_missing_of_a_conversion_is_made_again(to: Any, bad_corpus: Corpus, tmp_path: Path) -> None:
    """As after a kill between two parts, or while one was written."""
    whole = convert(str(bad_corpus.list), str(tmp_path / "whole"), to=to, per_part=4)
    convert(str(bad_corpus.list), str(tmp_path / "out"), to=to, per_part=4)
    name = sorted(p.name for p in (tmp_path / "out").iterdir() if p.name.startswith(("data-0", "shards_", "wav-")))[2]
    (tmp_path / "out" / "pack.journal" / f"{name}.json").unlink()
    leftover = tmp_path / "out" / f".{name}.1of1.99.part"
    leftover.mkdir()
    (leftover / "audio.bin").write_bytes(b"half")
    again = convert(str(bad_corpus.list), str(tmp_path / "out"), to=to, per_part=4)
    assert not leftover.exists()
    assert (again.utterances, again.failed) == (whole.utterances, whole.failed)
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file() and path.suffix in (".bin", ".idx", ".tar", ".wav"):
            assert path.read_bytes() == (tmp_path / "out" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_the_command_reports_and_its_exit_code_tells(bad_corpus: Corpus, tmp_path: Path) -> None:
    bad = command("convert", bad_corpus.list, tmp_path / "out", "--json")
    assert bad.returncode == 1
    report = json.loads(bad.stdout)
    assert (report["list"], report["failed"]["bad_audio"]) == (f"{tmp_path}/out/data.list", 1)
    back = command("convert", tmp_path / "out" / "data.list", tmp_path / "back", "--to", "shards", "--format", "flac")
    assert back.returncode == 0
    assert "25 utterances" in back.stdout
