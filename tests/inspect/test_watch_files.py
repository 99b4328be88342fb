"""``watch(loader, to=folder)``: every rank writes what it counts, and nothing that happens disturbs the training."""

import json
import logging
import os
import threading
from pathlib import Path

import pytest
from contract import counted, digest
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.core import statistics as run_record
from uio_pipes.core.statistics import RunRecord, append, files_of, read
from uio_pipes.inspect import watch


def loader(corpus: Corpus, **options: object) -> uio.Loader:
    sources = {"a": uio.from_shard_list(corpus.list), "b": uio.from_shard_list(corpus.list)}
    mixed = uio.mix(sources, {"a": 2, "b": 1}).decode_audio().filter(min_frames=40)
    return uio.Loader(mixed.fbank(num_mel_bins=6).batch(4).pad(), seed=3, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_records_are_the_counts_and_batches_are_as_without_them(
    many_shards: Corpus, tmp_path: Path, workers: int
) -> None:
    plain, watched = loader(many_shards, num_workers=workers), loader(many_shards, num_workers=workers)
    made = [digest(batch) for batch in uio.watch(watched, every=1e-9, to=tmp_path / "run/watch")]
    assert made == [digest(batch) for batch in plain]
    (path,) = files_of(tmp_path / "run")
    records = read(path)
    assert path.name == "rank-00000.jsonl"
    assert [record.stats.batches for record in records] == [*range(len(made) + 1), len(made)]
    assert [record.state for record in records] == ["running"] * (len(made) + 1) + ["over"]
    assert counted(records[-1].stats) == counted(plain.stats())
    assert records[-1].stats.sources == plain.stats().sources
    assert all(record.memory > 10e6 and record.pid == os.getpid() for record in records)


def test_each_rank_has_a_file_and_shows_nothing(
    many_shards: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(3):
        list(uio.watch(loader(many_shards, rank=rank, world_size=3), to=str(tmp_path)))
    assert [path.name for path in files_of(tmp_path)] == [f"rank-0000{rank}.jsonl" for rank in range(3)]
    assert [(r.rank, r.world_size) for path in files_of(tmp_path) for r in read(path)[:1]] == [(0, 3), (1, 3), (2, 3)]
    assert capsys.readouterr().err == ""


def test_a_resumed_run_goes_on_in_the_same_file(many_shards: Corpus, tmp_path: Path) -> None:
    first, second = loader(many_shards), loader(many_shards)
    for number, _ in enumerate(uio.watch(first, to=tmp_path)):
        if number == 2:
            break
    with (tmp_path / "rank-00000.jsonl").open("a") as file:
        file.write('{"time": 3, "cut of')  # by kill -9
    second.load_state_dict(first.state_dict())
    list(uio.watch(second, to=tmp_path))
    records = read(tmp_path / "rank-00000.jsonl")
    assert [(r.state, r.stats.batches) for r in records[:3]] == [("running", 0), ("left", 3), ("running", 3)]
    assert records[-1].stats == second.stats()


def test_a_disk_that_is_full_is_told_once(
    many_shards: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    watched = uio.watch(loader(many_shards), every=1e-9, to=tmp_path / "file/watch")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert list(watched)
    assert [text for text in caplog.messages if "the training goes on" in text][1:] == []
    assert "watch cannot write to" in caplog.text


def test_a_folder_that_hangs_does_not_hold_up_the_training(
    many_shards: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, hung = threading.Event(), []

    def hangs(folder: Path, record: RunRecord) -> None:
        hung.append(record)
        assert goes_on.wait(60)
        append(folder, record)

    monkeypatch.setattr(watch, "append", hangs)
    monkeypatch.setattr(watch, "PATIENCE", 0.001)
    watched = uio.watch(loader(many_shards), every=1e-9, to=tmp_path)
    assert len(list(watched)) > 1
    assert files_of(tmp_path) == []
    assert len(hung) == 1
    goes_on.set()
    monkeypatch.setattr(watch, "PATIENCE", 60)
    list(watched)
    (path,) = files_of(tmp_path)
    assert read(path)[-1].state == "over"


def test_a_file_stays_small_and_keeps_the_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_record, "MOST", 10_000)
    for moment in range(500):
        stats = uio.Stats(batches=moment)
        append(tmp_path, RunRecord(float(moment), 1.0, "host", 1, 0, 7, 8, 0, "running", 0, stats))
        assert (tmp_path / "rank-00007.jsonl").stat().st_size < 11_000
    times = [record.time for record in read(tmp_path / "rank-00007.jsonl")]
    assert times == sorted(times)
    assert (times[-1], times[0] < 100, len(times) > 10) == (499, True, True)


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    append(tmp_path, RunRecord(1.0, 1.0, "host", 1, 0, 0, 1, 0, "running", 0, uio.Stats()))
    path = tmp_path / "rank-00000.jsonl"
    good = json.loads(path.read_text())
    for bad in ("", "{}", "[1]", "\x00\xff", json.dumps(good | {"stats": 3}), json.dumps(good | {"more": 1})):
        path.write_text(f"{path.read_text()}{bad}\n")
    assert len(read(path)) == 1


@pytest.mark.parametrize("to", [3, "s3://bucket/run"])
def test_a_wrong_folder_is_an_error_at_once(many_shards: Corpus, to: object) -> None:
    with pytest.raises(uio.PipelineError, match="to must be a folder"):
        uio.watch(loader(many_shards), to=to)  # type: ignore[arg-type]
