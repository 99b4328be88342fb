"""``uio.Recorder``: what is logged is in Parquet files, wherever a run is killed, with where each utterance was."""

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from corpus import Corpus, shards

import uio_pipes as uio
from uio_pipes.inspect import record
from uio_pipes.inspect.record import RecordWriter, read_record


def pipeline_of(corpus: Corpus) -> uio.Pipeline:
    tars = uio.from_shard_list(corpus.list, shuffle=True)
    sources = {"read": tars.tag({"speaker": "S1"}), "said": tars.tag({"speaker": "S2"})}
    return uio.mix(sources).decode_audio().fbank(8).shuffle(4).dynamic_batch(200).pad()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_row_says_where_an_utterance_came_from(many_shards: Corpus, tmp_path: Path, workers: int) -> None:
    loader = uio.Loader(pipeline_of(many_shards), lanes=2, num_workers=workers)
    due: list[dict[str, Any]] = []
    with uio.Recorder(tmp_path / "record", loader) as recorder:
        for number, batch in enumerate(loader):
            frames = batch["feats_lengths"]
            recorder.log(batch, loss=frames / 7, norm=float(number), **({"cer": frames.numpy()} if number > 2 else {}))
            rows = zip(batch["keys"], frames.tolist(), strict=True)
            due += [{"key": key, "frames": n, "step": number, "norm": float(number)} for key, n in rows]
    table = pd.read_parquet(tmp_path / "record")  # as it is
    assert len(list((tmp_path / "record").iterdir())) == 1
    assert table[["key", "frames", "step", "norm"]].to_dict("records") == due
    assert np.allclose(table["loss"], table["frames"] / 7)
    late = table["step"] > 2
    assert (table["cer"][late] == table["frames"][late]).all()
    assert table["cer"][~late].isna().all()
    assert set(zip(table["source"], table["speaker"], strict=True)) == {("read", "S1"), ("said", "S2")}
    lines = [line for line in many_shards.list.read_text().splitlines() if line.endswith(".tar")]
    assert set(table["shard"]) == set(lines)
    for one in table.drop_duplicates(["shard", "key"]).to_dict("records"):
        assert lines[one["item"]] == one["shard"]
        with open(one["shard"], "rb") as tar:
            tar.seek(one["offset"])
            assert tar.read(100).startswith(one["key"].encode())
    assert set(table["sample_rate"]) == {8000}
    assert {*table["epoch"], *table["rank"], *table["pass"]} == {0}
    for (_lane, _), rows in table.groupby(["lane", "k"], sort=False):
        assert rows["step"].nunique() == 1


def test_batches_are_those_without_a_recorder(many_shards: Corpus, tmp_path: Path) -> None:
    plain, recorded = (uio.Loader(pipeline_of(many_shards), lanes=2) for _ in range(2))
    with uio.Recorder(tmp_path, recorded):
        pairs = zip(plain, recorded, strict=True)
        assert all(torch.equal(a["feats"], b["feats"]) and a.keys() == b.keys() for a, b in pairs)
    assert plain.state_dict().keys() == recorded.state_dict().keys()


def test_a_recorder_knows_the_batches_of_all_loaders(tmp_path: Path) -> None:
    with uio.Recorder(tmp_path / "record") as recorder:
        for rank in (0, 1):
            corpus = shards(tmp_path / f"data{rank}", [2], seconds=(0.3, 0.4))
            graph = uio.from_shard_list(corpus.list).decode_audio().batch(2).pad()
            for batch in uio.Loader(graph, rank=0, world_size=1):
                recorder.log(batch, loss=[1.0, 2.0], step=rank)
    table = read_record(tmp_path / "record")
    folders = [Path(one).relative_to(tmp_path).parts[0] for one in table["shard"].to_pylist()]
    assert folders == ["data0", "data0", "data1", "data1"]
    assert table["step"].to_pylist() == [0, 0, 1, 1]
    assert None not in table["offset"].to_pylist()


def test_what_is_logged_of_a_batch_later_is_added_to_its_rows(tmp_path: Path) -> None:
    with uio.Recorder(tmp_path) as recorder:
        recorder.log(["a", "b", "a"], step=1, loss=[1, 2, 9])  # two utterances have the same key
        recorder.log(["a", "b", "a"], step=1, cer=[3, 4, 5])
        recorder.log(["a", "b", "a"], step=1, loss=[1, 7, 9])
    with pytest.raises(uio.PipelineError, match="this recorder is closed"):
        recorder.log(["a"], step=2, loss=1)
    table = read_record(tmp_path)
    found = sorted(zip(*(table[name].to_pylist() for name in ("row", "key", "loss", "cer")), strict=True))
    assert found == [(0, "a", 1, 3), (1, "b", 7, 4), (2, "a", 9, 5)]


def test_numbers_may_have_any_name_that_no_column_has(tmp_path: Path) -> None:
    numbers = {"order": 1.0, "order_max": 2.0, "rank_max": 3.0, "order_last": 4.0, "": 5.0}
    with uio.Recorder(tmp_path) as recorder:
        recorder.log(["a", "b"], step=1, **numbers)
    assert read_record(tmp_path, [*numbers]).to_pylist() == [numbers] * 2


class Zeros(uio.Node):
    """Makes numbers of batches."""

    def next(self) -> float:
        self.source.next()
        return 0.0


def test_batches_without_keys_do_not_disturb_a_recorder(tmp_path: Path) -> None:
    corpus = shards(tmp_path / "data", [3], seconds=(0.3, 0.4))
    loader = uio.Loader(uio.from_shard_list(corpus.list).decode_audio().batch(2).pad().through(Zeros))
    with uio.Recorder(tmp_path / "record") as recorder:
        for step, _batch in enumerate(loader):
            recorder.log(["a", "b"], loss=0.0, step=step)
    assert read_record(tmp_path / "record")["k"].null_count == 4


KILLED = """
import itertools, sys, time
import uio_pipes as uio

recorder = uio.Recorder(sys.argv[1])
for step in itertools.count():
    recorder.log([f"u{step}"], step=step, loss=[1.0])
    time.sleep(0.005)
"""


@pytest.mark.slow
def test_what_was_written_is_whole_wherever_a_run_is_killed(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    runs = [subprocess.Popen([sys.executable, "-c", KILLED, str(folder)]) for folder in folders]
    for number, (run, folder) in enumerate(zip(runs, folders, strict=True)):
        with run:
            while not list(folder.glob("*.parquet")):
                time.sleep(0.1)
            time.sleep(number)  # while the file is written anew
            written = len(read_record(folder))
            os.kill(run.pid, signal.SIGKILL)
        steps = read_record(folder)["step"].to_pylist()
        assert steps == list(range(len(steps)))
        assert len(steps) >= written > 0


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LARGE", 3)
    writer = RecordWriter(tmp_path, 0)
    for step in range(8):
        name = "ctc" if step % 2 else "loss"
        writer._logged.append(record.Logged([f"u{step}"], step, None, {name: torch.ones(1)}, None))
        writer.write()
        table = read_record(tmp_path)
        assert table["step"].to_pylist() == list(range(step + 1))
    assert [len(pd.read_parquet(path)) for path in sorted(tmp_path.iterdir())] == [3, 3, 2]
    assert table["ctc"].to_pylist() == [1.0 if step % 2 else None for step in range(8)]


def test_what_is_logged_again_after_a_resume_counts_once(many_shards: Corpus, tmp_path: Path) -> None:
    graph = pipeline_of(many_shards)
    loader = uio.Loader(graph, lanes=2)
    state: dict[str, str] = {}
    with uio.Recorder(tmp_path, loader) as recorder:
        for step, batch in zip(range(6), loader, strict=False):
            recorder.log(batch, loss=1.0)
            state = loader.state_dict() if step == 2 else state
    time.sleep(0.002)  # the next one begins later
    again = uio.Loader(graph, lanes=2)
    again.load_state_dict(state)
    with uio.Recorder(tmp_path, again) as recorder:
        for batch in again:
            recorder.log(batch, loss=2.0)
    table = read_record(tmp_path, ["key", "step", "loss"])
    assert len(table) == 2 * len(many_shards.keys)
    by_step = dict(zip(table["step"].to_pylist(), table["loss"].to_pylist(), strict=True))
    assert by_step == {step: 1.0 if step < 3 else 2.0 for step in by_step}


def test_utterances_that_move_up_in_their_batch_count_once(many_shards: Corpus, tmp_path: Path) -> None:
    graph, bad = pipeline_of(many_shards), set(many_shards.keys[::3])
    loader = uio.Loader(graph)
    state = loader.state_dict()
    with uio.Recorder(tmp_path, loader) as recorder:
        for batch in loader:
            recorder.log(batch, loss=1.0)
    time.sleep(0.002)  # the next one begins later
    again = uio.Loader(graph)
    again.load_state_dict(state)
    again.exclude(bad)
    with uio.Recorder(tmp_path, again) as recorder:
        for batch in again:
            recorder.log(batch, loss=2.0)
    table = read_record(tmp_path, ["key", "loss"])
    found = zip(table["key"].to_pylist(), table["loss"].to_pylist(), strict=True)
    assert sorted(found) == sorted((key, 1.0 if key in bad else 2.0) for key in [*many_shards.keys] * 2)


def test_recorders_that_begin_at_once_write_to_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    with uio.Recorder(tmp_path) as one, uio.Recorder(tmp_path) as other:
        one.log(["a"], step=0, loss=1.0)
        other.log(["b"], step=0, loss=1.0)
    assert sorted(read_record(tmp_path)["key"].to_pylist()) == ["a", "b"]
    next(tmp_path.iterdir()).rename(tmp_path / "rank-00000-0000000005000-000000.parquet")  # as older versions named it
    assert sorted(read_record(tmp_path)["key"].to_pylist()) == ["a", "b"]


def test_batches_that_came_again_are_known_as_long_as_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RECENT", 2)
    loaders = {key: uio.Loader(uio.from_iterable([{"key": key, "txt": "b"}]).batch(1)) for key in "abc"}
    with uio.Recorder(tmp_path) as recorder:
        for key in "abac":
            list(loaders[key])
        recorder.log(["a"], loss=1.0)
    assert read_record(tmp_path)["epoch"].to_pylist() == [1]


def test_what_cannot_be_written_does_not_stop_the_training(tmp_path: Path, caplog: Any) -> None:
    recorder = uio.Recorder(tmp_path / "record")
    (tmp_path / "record").rmdir()
    (tmp_path / "record").touch()
    recorder.log(["a"], step=0, loss=1.0)
    recorder.close()
    assert f"the record in {tmp_path / 'record'} has a gap" in caplog.text


def test_a_loader_ahead_is_logged_by_its_keys(tmp_path: Path) -> None:
    corpus = shards(tmp_path / "data", [3, 3], seconds=(0.3, 0.4))
    loader = uio.Loader(uio.from_shard_list(corpus.list).decode_audio().batch(2).pad())
    with uio.Recorder(tmp_path / "record", loader) as recorder:
        batches = list(loader)
        for step, batch in enumerate(batches):
            recorder.log(dict(batch), step=100 + step, loss=[1, 2])
    table = read_record(tmp_path / "record")
    assert table["step"].to_pylist() == [100, 100, 101, 101, 102, 102]
    assert table["k"].to_pylist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": [1.0, 2.0, 3.0]}, "loss has 3 values for 2 utterances"),
        ({"loss": "high"}, "loss must be numbers, not str"),
        ({"k": 5.0}, "'k' is already a column of every record"),
        ({}, "give numbers as keyword arguments"),
        ({"step": 0.5, "loss": 1.0}, "step must be a whole number, not 0.5"),
        ({"step": None, "loss": 1.0}, "the step is unknown"),
    ],
)
def test_wrong_numbers_are_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    recorder = uio.Recorder(tmp_path)
    with pytest.raises(uio.PipelineError, match=f"log: .*{message}"):
        recorder.log(["a", "b"], **{"step": 1, **given})


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(uio.PipelineError, match="folder must be local or shared, not 's3://x'"):
        uio.Recorder("s3://x")
    with pytest.raises(uio.PipelineError, match="loader must be the Loader that gives the batches"):
        uio.Recorder(tmp_path, [1])  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(uio.PipelineError, match="cannot make the folder"):
        uio.Recorder(tmp_path / "file")
    with pytest.raises(uio.PipelineError, match="the batch has no keys"):
        uio.Recorder(tmp_path).log({"feats": torch.ones(2)}, step=0, loss=1.0)
    with pytest.raises(uio.PipelineError, match="create one on each rank"):
        copy.copy(uio.Recorder(tmp_path))
    with pytest.raises(uio.ListError, match="has no record"):
        read_record(tmp_path)
    (tmp_path / "rank-00000-1-000000.parquet").write_text("no")
    with pytest.raises(uio.ListError, match="is damaged"):
        read_record(tmp_path)
