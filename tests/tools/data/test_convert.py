"""Conversions: every source to a TouchDataset and back, sample by sample; killed, damaged, misused."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import corpus
import fsspec
import pytest
import torch
import touchdataset
from command import start
from command import uio as command
from corpus import DAMAGE, Corpus

import uio_pipes as uio
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.tools.data.convert import convert
from uio_pipes.tools.data.index import index_lists, index_shard
from uio_pipes.tools.data.metainfo import read
from uio_pipes.tools.data.pack import PackSettings, pack
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.writing.journal import OtherPacking
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
    assert (done.utterances, done.parts, done.failed) == (len(right), -(-len(right) // 4), {})
    assert (tmp_path / "out" / "failed.jsonl").read_bytes() == b""


def test_what_is_written_is_the_layout(plain_corpus: Corpus, tmp_path: Path) -> None:
    convert(str(plain_corpus.list), str(tmp_path / "out"))
    audio, bounds = touchdataset.read_pair(tmp_path / "out" / "data-00000" / "audio")
    texts, _ = touchdataset.read_pair(tmp_path / "out" / "data-00000" / "metainfo")
    right = made(uio.from_shard_list(plain_corpus.list))
    assert [torch.frombuffer(bytearray(a), dtype=torch.int16).float().div(32768).tolist() for a in audio] == [
        s["wav"][0].tolist() for s in right
    ]
    assert [json.loads(t)["key"] for t in texts] == list(plain_corpus.keys)
    assert set(json.loads(texts[0])) == {"key", "wav", "txt", "sample_rate"}
    assert bounds == list(range(len(right) + 1))


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


def test_segments_of_a_raw_list_lose_their_times(raw_corpus: Corpus, tmp_path: Path) -> None:
    done = convert(str(raw_corpus.list), str(tmp_path / "out"))
    for fields in read(done.data_list):
        assert {"start", "end", "duration"}.isdisjoint(fields)
        assert fields["wav"].endswith(".wav")


def test_kaldi_folders_are_read(raw_corpus: Corpus, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    whole = [line for line in lines if "start" not in line]
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "wav.scp").write_text("".join(f"{n['key']} {n['wav']}\n" for n in whole))
    (tmp_path / "k" / "text").write_text("".join(f"{n['key']} {n['txt']}\n" for n in whole))
    done = convert(str(tmp_path / "k"), str(tmp_path / "out"))
    right = [s for s in made(uio.from_raw_list(raw_corpus.list)) if s["key"] in {n["key"] for n in whole}]
    same(made(uio.from_indexed(done.data_list)), right)


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
    with pytest.raises(uio.ListError, match=r"nothing of .* could be converted.*20"):
        convert(str(feature_corpus.list), str(tmp_path / "out"))


def test_another_source_or_other_settings_are_refused(plain_corpus: Corpus, raw_corpus: Corpus, tmp_path: Path) -> None:
    convert(str(plain_corpus.list), str(tmp_path / "out"))
    with pytest.raises(OtherPacking, match=r"\(the source has changed\)"):
        convert(str(raw_corpus.list), str(tmp_path / "out"))
    with pytest.raises(OtherPacking, match="utterances in a part 5000 -> 7"):
        convert(str(plain_corpus.list), str(tmp_path / "out"), per_part=7)
    pack(raw_corpus.list, tmp_path / "packed", tmp_path / "shards.list", PackSettings())
    with pytest.raises(OtherPacking, match=r"packed was written by another command; choose"):
        convert(str(plain_corpus.list), str(tmp_path / "packed"))


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


@pytest.mark.parametrize("to", ["indexed", "raw"])
def test_a_killed_conversion_goes_on(to: str, many_shards: Corpus, tmp_path: Path) -> None:
    arguments = ("convert", many_shards.list, tmp_path / "out", "--per-part", 1, "--to", to)
    process = start(*arguments)
    try:
        for _ in range(600):
            if len(list((tmp_path / "out").glob("pack.journal/*-*.json"))) >= 3 or process.poll() is not None:
                break
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    there = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "pack.journal").glob("*-*.json")}
    ended = command(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["utterances"] == 48
    assert {p: p.stat().st_mtime_ns for p in there} == there, "what was there is not made again"
    source = uio.from_indexed if to == "indexed" else uio.from_raw_list
    same(made(source(tmp_path / "out" / "data.list")), made(uio.from_shard_list(many_shards.list)))


def test_the_command_reports_and_its_exit_code_tells(bad_corpus: Corpus, tmp_path: Path) -> None:
    bad = command("convert", bad_corpus.list, tmp_path / "out", "--json")
    assert bad.returncode == 1
    report = json.loads(bad.stdout)
    assert (report["list"], report["failed"]["bad_audio"]) == (f"{tmp_path}/out/data.list", 1)
    back = command("convert", tmp_path / "out" / "data.list", tmp_path / "back", "--to", "shards", "--format", "flac")
    assert back.returncode == 0
    assert "25 utterances" in back.stdout
    for wrong in (
        ["nowhere", tmp_path / "x"],
        [tmp_path, tmp_path / "x"],
        [bad_corpus.list, tmp_path / "y", "--to", "zip"],
    ):
        ended = command("convert", *wrong)
        assert ended.returncode == 2
        assert len(ended.stderr.strip().splitlines()) == 1
        assert ended.stderr.startswith("error: ")


def test_shards_are_compressed_with_checksums(plain_corpus: Corpus, tmp_path: Path) -> None:
    """Each frame has one; a damaged frame gives out nothing, and the list's manifest counts what is missing."""
    done = convert(str(plain_corpus.list), str(tmp_path / "out"), to="shards", per_part=9, compress=True)
    assert (done.failed, done.parts) == ({}, -(-done.utterances // 9))
    again = convert(str(plain_corpus.list), str(tmp_path / "plain"), to="shards", per_part=9)
    left, right = made(uio.from_shard_list(done.data_list)), made(uio.from_shard_list(again.data_list))
    same(left, right)
    shards = sorted((tmp_path / "out").glob("*.tar.zst"))
    assert len(shards) == done.parts
    data = bytearray(shards[0].read_bytes())
    assert data[4] & 4, "the frame has a checksum"
    data[len(data) // 2] ^= 1
    shards[0].write_bytes(data)
    loader = uio.Loader(uio.from_shard_list(done.data_list).decode_audio())
    sound = {sample["key"]: sample for sample in right}
    found = list(loader)
    same(found, [sound[sample["key"]] for sample in found])
    assert loader.stats().skipped == {"corrupt_stream": 1, "short_shard": 1}
