"""``watch`` shows what happens and changes nothing; with a folder, every rank writes what it counts."""

import json
import logging
import os
import pty
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from command import FORKS
from contract import counted, digest, keys_of
from corpus import Corpus
from failing import fails_as
from processes import environment

import uio_pipes as uio
from uio_pipes.core import statistics as run_record
from uio_pipes.core.statistics import RunRecord, append, files_of, read
from uio_pipes.inspect import watch


def loader(corpus: Corpus, **options: Any) -> uio.Loader:
    return uio.Loader(pipeline(corpus.list), seed=3, **options)


def pipeline(path: Path | str) -> uio.Pipeline:
    return uio.from_shard_list(path).decode_audio().filter(min_frames=40).fbank(num_mel_bins=6).batch(4).pad()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_states_are_as_without_it(many_shards: Corpus, workers: int) -> None:
    plain, watched = (loader(many_shards, num_workers=workers) for _ in range(2))
    for _ in range(2):
        expected = [(digest(b), strip(plain.state_dict())) for b in plain]
        assert [(digest(b), strip(watched.state_dict())) for b in uio.watch(watched)] == expected
        assert watched.epoch == plain.epoch


def strip(state: dict[str, str]) -> dict[str, str]:
    return {k: re.sub(r'"waited_us": \d+|"crc32": "\w+"', "", v) for k, v in state.items()}


def test_exceptions_pass_through(many_shards: Corpus, bad_corpus: Corpus) -> None:
    with pytest.raises(ZeroDivisionError):
        max(1 / 0 for _ in uio.watch(loader(many_shards)))
    with fails_as("bad_header"):
        list(uio.watch(uio.Loader(pipeline(bad_corpus.list), failures="raise")))


def test_a_plain_line_now_and_at_the_end_where_there_is_no_terminal(
    many_shards: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = loader(many_shards)
    batches = sum(1 for _ in uio.watch(watched, every=1e-9))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == batches + 1
    stats = watched.stats()
    assert stats.skipped["too_short"] > 0
    assert lines[-1].startswith(f"epoch 0 | {stats.utterances} utterances | ")
    for word in (" h/s", f"padding {stats.padding_ratio:.1%}", f"skipped {sum(stats.skipped.values())}", "waiting "):
        assert word in lines[-1]
    sum(1 for _ in uio.watch(watched))
    assert [line[:8] for line in capsys.readouterr().err.splitlines()] == ["epoch 1 "], "once, after the epoch"


def test_other_ranks_show_nothing(
    many_shards: Corpus, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(uio.watch(loader(many_shards, rank=1, world_size=2)))
    monkeypatch.setenv("RANK", "1")
    assert list(uio.watch(loader(many_shards, partition=False)))
    assert capsys.readouterr().err == ""


def test_a_closed_terminal_does_not_end_the_training(
    many_shards: Corpus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise BrokenPipeError("closed")

    monkeypatch.setattr("builtins.print", refuse)
    expected = len(list(loader(many_shards)))
    assert len(list(uio.watch(loader(many_shards), every=1e-9))) == expected
    assert "stops reporting" in caplog.text


@pytest.mark.parametrize(("given", "remedy"), [(0, "30"), (-1, "30"), (float("nan"), "30")])
def test_bad_arguments(many_shards: Corpus, given: float, remedy: str) -> None:
    with pytest.raises(uio.PipelineError, match=remedy):
        uio.watch(loader(many_shards), every=given)
    with pytest.raises(uio.PipelineError, match="Loader"):
        uio.watch([1, 2])  # type: ignore[arg-type]


LOOP = """
import sys, time, test_watch as here
from uio_pipes.inspect import watch
watch.REFRESH = 0.001
for i, batch in enumerate(here.uio.watch(here.uio.Loader(here.pipeline(sys.argv[1])))):
    time.sleep(0.002)
    if i == 3:
        print("said in the loop")
    if i == 5 and sys.argv[2] == "raise":
        raise KeyError("in the loop")
print("after")
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", ["whole", "raise"])
def test_on_a_terminal_one_line_is_kept_up_to_date(many_shards: Corpus, end: str) -> None:
    ours, theirs = pty.openpty()
    command = [FORKS.stand_ins() / "python", "-c", LOOP, str(many_shards.list), end]
    env = environment(Path(__file__).parent, TERM="xterm", COLUMNS="120")
    with subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        screen = read_all(ours)
    os.close(ours)
    assert (run.returncode == 0) == (end == "whole"), screen
    shown = re.findall(r"epoch 0 \| (\d+) utterances", screen)
    assert len(set(shown)) > 2
    assert "\x1b[2K" in screen, "written over"
    assert "said in the loop" in screen
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l"), "the cursor is back"
    assert ("KeyError" in screen) == (end == "raise")


def read_all(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def test_it_can_be_iterated_over_again_and_is_the_loader_otherwise(raw_corpus: Corpus) -> None:
    plain = uio.Loader(uio.from_raw_list(raw_corpus.list, shuffle=True).decode_audio().batch(4).pad())
    watched = uio.watch(uio.Loader(plain.pipeline))
    for epoch in range(3):
        plain.set_epoch(epoch)
        watched.set_epoch(epoch)
        assert [keys_of(b) for b in watched] == [keys_of(b) for b in plain]
    assert len(watched) == len(plain)
    assert watched.stats().utterances == plain.stats().utterances


# With a folder


def mixed(corpus: Corpus, **options: object) -> uio.Loader:
    sources = {"a": uio.from_shard_list(corpus.list), "b": uio.from_shard_list(corpus.list)}
    mixed = uio.mix(sources, {"a": 2, "b": 1}).decode_audio().filter(min_frames=40)
    return uio.Loader(mixed.fbank(num_mel_bins=6).batch(4).pad(), seed=3, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_records_are_the_counts_and_batches_are_as_without_them(
    many_shards: Corpus, tmp_path: Path, workers: int
) -> None:
    plain, watched = mixed(many_shards, num_workers=workers), mixed(many_shards, num_workers=workers)
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
        list(uio.watch(mixed(many_shards, rank=rank, world_size=3), to=str(tmp_path)))
    assert [path.name for path in files_of(tmp_path)] == [f"rank-0000{rank}.jsonl" for rank in range(3)]
    assert [(r.rank, r.world_size) for path in files_of(tmp_path) for r in read(path)[:1]] == [(0, 3), (1, 3), (2, 3)]
    assert capsys.readouterr().err == ""


def test_a_resumed_run_goes_on_in_the_same_file(many_shards: Corpus, tmp_path: Path) -> None:
    first, second = mixed(many_shards), mixed(many_shards)
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
    watched = uio.watch(mixed(many_shards), every=1e-9, to=tmp_path / "file/watch")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert list(watched)
    assert [text for text in caplog.messages if "training continues" in text][1:] == []
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
    watched = uio.watch(mixed(many_shards), every=1e-9, to=tmp_path)
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
    assert (times[0], times[-1], len(times) > 10) == (0, 499, True)


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    append(tmp_path, RunRecord(1.0, 1.0, "host", 1, 0, 0, 1, 0, "running", 0, uio.Stats()))
    path = tmp_path / "rank-00000.jsonl"
    good = json.loads(path.read_text())
    for bad in ("", "{}", "[1]", "\x00\xff", json.dumps(good | {"stats": 3}), json.dumps(good | {"more": 1})):
        path.write_text(f"{path.read_text()}{bad}\n")
    assert len(read(path)) == 1


@pytest.mark.parametrize("to", [3, "s3://bucket/run"])
def test_a_wrong_folder_is_an_error_at_once(many_shards: Corpus, to: object) -> None:
    with pytest.raises(uio.PipelineError, match="to must be a local or shared folder"):
        uio.watch(mixed(many_shards), to=to)  # type: ignore[arg-type]
