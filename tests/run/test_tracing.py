"""``loader.trace``: the file that Perfetto opens, of real processes, also after a kill. None is decided by timing."""

import json
import multiprocessing
import os
import pickle
import signal
import time
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.base import clock

MS = 0.001
Events = list[dict[str, Any]]


def slow(sample: uio.Sample) -> uio.Sample:
    time.sleep(MS)
    return sample


def training(corpus: Corpus) -> uio.Pipeline:
    audio = uio.from_shard_list(corpus.list, shuffle=True).decode_audio().map(slow, length="same")
    return audio.fbank(8).map(slow, length="same").filter(min_frames=20).shuffle(5).dynamic_batch(500).pad()


def training_of_files(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list).decode_audio().dynamic_batch(500).pad()


def events_in(path: Path) -> Events:
    """Read a trace that ends or lacks its end, and check it against the format: Trace Event Format, JSON array, with
    complete events ("X", in microseconds) and metadata ("M"). Those of a track lie within each other or apart."""
    text = path.read_text()
    events: Events = json.loads(text if text.endswith("]\n") else text + "]")
    tracks, named = defaultdict[tuple[int, int], Events](list), set[tuple[str, int, int]]()
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["tid"] < 2**32, "Perfetto would show it on the track of another thread"
        if event["ph"] == "M":
            assert isinstance(event["args"]["name"], str)
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X"
        assert event["ts"] >= 0
        assert event["dur"] >= 19
        assert event["name"]
        assert ("process_name", event["pid"], 0) in named
        assert ("thread_name", event["pid"], event["tid"]) in named
        tracks[event["pid"], event["tid"]].append(event)
    for spans in tracks.values():
        ends = list[int]()
        for event in sorted(spans, key=lambda event: (event["ts"], -event["dur"])):
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1], f"{event} overlaps the one that it begins in"
            ends.append(end)
    return events


def names(events: Events, process: int | None = None) -> set[str]:
    return {e["name"] for e in events if e["ph"] == "X" and process in (None, e["pid"])}


STAGES = {"load_from_tar", "map", "map (number 2)", "fbank", "pad", "starting lanes"}


@pytest.mark.parametrize("workers", [0, 2])
def test_every_process_has_its_tracks(plain_corpus: Corpus, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "trace.json"
    loader = uio.Loader(training(plain_corpus), num_workers=workers, lanes=2, seed=3)
    loader.trace(path, batches=4)
    for _ in islice(loader, 5):
        time.sleep(MS)
    assert clock.running is None, "it ends with the fourth batch"
    events = events_in(path)
    own, made = names(events, os.getpid()), {e["pid"] for e in events} - {os.getpid()}
    assert {"next batch", "training step"} <= own
    assert sum(e["name"] == "next batch" for e in events) == 4
    assert sum(e["name"] == "training step" for e in events) == 3
    if not workers:
        assert own >= STAGES
        assert not made
        return
    assert "waiting for a worker" in own
    assert len(made) == 2
    assert all(names(events, process) >= STAGES for process in made)
    assert {"handing over", "waiting for the trainer"} & names(events)
    pids = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert pids == {"trainer, rank 0", "worker"}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trace_changes_no_batch_and_may_begin_in_the_middle_and_go_over_an_end(
    plain_corpus: Corpus, tmp_path: Path, workers: int
) -> None:
    plain, traced = (uio.Loader(training(plain_corpus), num_workers=workers, seed=3) for _ in range(2))
    for epoch in range(2):
        count = 0
        for count, (a, b) in enumerate(zip(plain, traced, strict=True), 1):
            assert a["keys"] == b["keys"]
            assert torch.equal(a["feats"], b["feats"])
            if (epoch, count) == (0, 2):
                traced.trace(tmp_path / "trace.json", batches=10)
        assert 3 < count < 10
    assert sum(e["name"] == "next batch" for e in events_in(tmp_path / "trace.json")) == 10


def test_stages_of_a_mix_and_of_a_cache_have_their_names(plain_corpus: Corpus, tmp_path: Path) -> None:
    audio = uio.from_shard_list(plain_corpus.list).decode_audio().map(slow, length="same")
    mixed = uio.mix({"read": audio, "heard": audio.cache(tmp_path / "cache")}).batch(4).pad()
    loader = uio.Loader(mixed)
    loader.trace(tmp_path / "trace.json", batches=3)
    list(islice(loader, 3))
    assert {"read/map", "heard/cache", "batch", "pad"} <= names(events_in(tmp_path / "trace.json"))


def test_each_rank_writes_its_own_and_a_loader_that_goes_away_ends_it(plain_corpus: Corpus, tmp_path: Path) -> None:
    loader = uio.Loader(training(plain_corpus), rank=1, world_size=2)
    loader.trace(tmp_path / "trace.json")
    next(iter(loader))
    other = uio.Loader(training(plain_corpus))
    with pytest.raises(uio.PipelineError, match="another one is under way in this process"):
        other.trace(tmp_path / "other.json")
    del loader
    assert clock.running is None
    assert (tmp_path / "trace-1.json").read_text().endswith("]\n")
    assert "fbank" in names(events_in(tmp_path / "trace-1.json"))


def test_wrong_arguments(plain_corpus: Corpus, tmp_path: Path) -> None:
    loader = uio.Loader(training(plain_corpus))
    with pytest.raises(
        uio.PipelineError, match=r"cannot be written \(No such file or directory\): choose another path"
    ):
        loader.trace(tmp_path / "nowhere" / "trace.json")
    with pytest.raises(uio.PipelineError, match="trace: batches must be"):
        loader.trace(tmp_path / "trace.json", batches=0)
    assert clock.running is None


def test_a_full_disk_ends_the_trace_and_not_the_training(
    plain_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("uio_pipes.run.tracing.OFTEN", 0)
    loader = uio.Loader(training(plain_corpus))
    loader.trace(tmp_path / "trace.json")
    tracing: Any = loader._options.tracing
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), tracing._file.fileno())
    assert len(list(loader)) > 3
    assert "the trace ends, as it cannot be written" in caplog.text
    assert clock.running is None


def test_a_copy_of_a_loader_is_not_traced(plain_corpus: Corpus, tmp_path: Path) -> None:
    loader = uio.Loader(training_of_files(plain_corpus))
    loader.trace(tmp_path / "trace.json", batches=2)
    other = pickle.loads(pickle.dumps(loader))
    assert len(list(other)) > 2
    assert clock.running is not None
    assert len(list(loader)) > 2
    assert clock.running is None


def _train(corpus: Corpus, path: Path) -> None:
    loader = uio.Loader(training(corpus), num_workers=1)
    loader.trace(path, batches=100_000)
    while True:
        for _ in loader:
            time.sleep(MS)


def test_the_trace_of_a_killed_trainer_opens(plain_corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trainer = multiprocessing.get_context("fork").Process(target=_train, args=(plain_corpus, path))
    trainer.start()
    while trainer.is_alive() and (not path.exists() or path.stat().st_size < 300_000):
        time.sleep(0.01)
    assert trainer.pid is not None
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.join()
    assert not path.read_text().endswith("]\n")
    assert {"training step", "fbank"} <= names(events_in(path))
