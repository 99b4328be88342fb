"""A batch made again: bit by bit what it was, from any position, on any topology; the loader does not move."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from command import FORKS, UIO
from contract import digest
from corpus import Corpus
from journeys import GRAPHS, training
from tones import tone, wav_bytes

import uio_pipes as uio
from uio_pipes.run.replay import Replay
from uio_pipes.tools.reports.steps import seen, steps

OPTIONS: dict[str, Any] = {"seed": 3, "lanes": 6}


@pytest.mark.parametrize(("rank", "world", "workers"), [(0, 1, 0), (1, 3, 2)])
@pytest.mark.parametrize("thinned", [1, 4])
def test_any_batch_of_an_epoch_from_anywhere(
    many_shards: Corpus, rank: int, world: int, workers: int, thinned: int
) -> None:
    graph = training(many_shards.list)
    place = {"rank": rank, "world_size": world, "uneven": "join", "snapshot_every": thinned, **OPTIONS}
    expected = [digest(batch) for batch in uio.Loader(graph, **place)]
    draws = random.Random(rank + thinned)
    loader = uio.Loader(graph, num_workers=workers, **place)
    for number, batch in enumerate(loader):
        assert digest(batch) == expected[number]  # replaying has not moved it
        if number % 3 == 0:
            step = draws.randrange(len(expected))
            assert digest(loader.batch_at(step)) == expected[step]
    assert digest(loader.batch_at(0)) == expected[0]  # also once the epoch is over
    with pytest.raises(uio.PipelineError, match=f"has no batch {len(expected)} on rank {rank}"):
        loader.batch_at(len(expected))


def test_from_a_state_on_other_ranks_and_workers(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    expected = [digest(batch) for batch in uio.Loader(graph, **OPTIONS)]
    saved = uio.Loader(graph, num_workers=2, **OPTIONS)
    batches = iter(saved)
    for _ in range(7):
        next(batches)
    loader = uio.Loader(graph, **OPTIONS)
    loader.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    for step in (7, 12, len(expected) - 1):
        assert digest(loader.batch_at(step)) == expected[step]
    with pytest.raises(uio.PipelineError, match="step 3 of epoch 0 comes before step 7"):
        loader.batch_at(3)
    loader.skip(2)
    assert digest(loader.batch_at(7)) == expected[7]  # what is passed over can be looked at, too
    assert digest(next(iter(loader))) == expected[9]


def test_from_the_last_of_several_states_before_the_step(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    for world in (1, 3):
        place = {"rank": world - 1, "world_size": world, "uneven": "join", **OPTIONS}
        loader, states, expected = uio.Loader(graph, **place), [], list[list[str]]()
        for epoch in range(2):
            expected.append([])
            for number, batch in enumerate(loader):
                expected[epoch].append(digest(batch))
                if number in (1, 2, 5):
                    states.append(loader.state_dict())
        random.Random(1).shuffle(states)
        for epoch in range(2):
            for step, wanted in list(enumerate(expected[epoch]))[2 * (epoch == 0) :]:
                replay = Replay(graph, states, step, world - 1, world, epoch)
                assert digest(replay.batch()) == wanted
                assert replay.loader.epoch == epoch
                assert replay.loader._progress.received == max([n for n in (2, 3, 6) if n <= step], default=0)
        with pytest.raises(uio.StateError, match="step 1 of epoch 0 comes before step 2"):
            Replay(graph, states, 1, world - 1, world, 0)
        other = uio.Loader(graph, **{**place, "seed": 4})
        next(iter(other))
        with pytest.raises(uio.StateError, match="seed"):
            Replay(graph, [*states, other.state_dict()], 0, world - 1, world, 0)


def test_ranks_that_went_on_by_themselves_go_on_with_the_highest_step(many_shards: Corpus) -> None:
    graph, states = training(many_shards.list), []
    for rank, taken in ((0, 6), (1, 1)):
        loader = uio.Loader(graph, rank=rank, world_size=2, uneven="join", **OPTIONS)
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        states.append(loader.state_dict())
    merged = uio.merge_states(states)
    alone = uio.Loader(graph, **OPTIONS)
    alone.load_state_dict(merged)
    rest = [digest(batch) for batch in alone]
    assert [digest(alone.batch_at(6 + number)) for number in range(len(rest))] == rest
    for rank in range(2):
        loader = uio.Loader(graph, rank=rank, world_size=2, uneven="join", **OPTIONS)
        loader.load_state_dict(merged)
        coming = digest(next(iter(loader)))
        assert digest(loader.batch_at(6)) == digest(Replay(graph, [merged], 6, rank, None, None).batch()) == coming


def test_the_utterances_of_a_batch(many_shards: Corpus) -> None:
    for name in ("training", "three_streams"):
        graph = GRAPHS[name](many_shards.list)
        state = uio.Loader(graph, **OPTIONS).state_dict()
        replay = Replay(graph, [state], 0, 0, 1, None)
        keys = replay.batch()["keys"]
        rows = list(range(len(keys)))[::-1]
        assert [one["key"] for one in replay.utterances(rows)] == keys[::-1]
        assert all(one["wav"].numel() and one["feat"].numel() for one in replay.utterances(rows))
        with pytest.raises(uio.PipelineError, match=f"rows 0 to {len(keys) - 1}"):
            replay.utterances([len(keys)])


def test_streams_in_steps(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    loader = uio.Loader(graph, steps_per_epoch=9, **OPTIONS)
    first, second = ([digest(batch) for batch in loader] for _ in range(2))
    assert len(first) == 9
    loader = uio.Loader(graph, steps_per_epoch=9, **OPTIONS)
    assert [digest(loader.batch_at(step)) for step in (0, 8)] == [first[0], first[8]]
    list(loader)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert [digest(loader.batch_at(step)) for step in (5, 0)] == [second[5], second[0]]
    other = uio.Loader(graph, steps_per_epoch=9, **OPTIONS)
    other.load_state_dict(state)
    assert digest(other.batch_at(1)) == second[1]


def test_nothing_is_decoded_on_the_way(many_shards: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    from uio_pipes.stages.audio import decode as decode_audio

    graph, decoded = training(many_shards.list), []
    real = decode_audio.DecodeAudio.apply
    monkeypatch.setattr(
        decode_audio.DecodeAudio,
        "apply",
        lambda self, sample, draws: decoded.append(sample.key) or real(self, sample, draws),
    )
    loader = uio.Loader(graph, **OPTIONS)
    batch = loader.batch_at(10)
    assert sorted(decoded) == sorted(batch["keys"])


def test_steps_by_plan_are_those_that_are_delivered(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    whole = uio.Loader(graph, **OPTIONS)
    batches = iter(whole)
    for _ in range(9):
        next(batches)
    state = whole.state_dict()
    for world in (1, 3):
        planned = list(steps(graph, state, world))
        for rank in range(world):
            loader = uio.Loader(graph, rank=rank, world_size=world, uneven="join", **OPTIONS)
            loader.load_state_dict(state)
            delivered = [(n, sorted(batch["keys"])) for n, batch in enumerate(loader, 9)]
            assert [(step.step, sorted(step.keys)) for step in planned if step.rank == rank] == delivered
    assert list(steps(graph, state)) == list(steps(graph, state, 1))
    key = planned[5].keys[-1]
    (one,) = seen(graph, state, 3, [key])
    assert (one.step, one.rank, one.lane, one.row) == (
        planned[5].step,
        planned[5].rank,
        planned[5].lane,
        len(planned[5].keys) - 1,
    )
    with pytest.raises(uio.StateError, match="stage"):
        next(steps(graph.take(3), state, 1))
    with pytest.raises(uio.PipelineError, match="6 lanes cannot feed 9 ranks"):
        next(steps(graph, state, 9))


def test_steps_after_the_state_are_planned_from_it(many_shards: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    from uio_pipes.run import lane_runner

    graph, passed = training(many_shards.list), []
    real = lane_runner.LaneRunner.pass_over
    monkeypatch.setattr(
        lane_runner.LaneRunner, "pass_over", lambda self, count: passed.append(self.k) or real(self, count)
    )
    loader = uio.Loader(graph, **OPTIONS)
    batches = iter(loader)
    for _ in range(12):
        next(batches)
    state = loader.state_dict()
    rest = [sorted(batch["keys"]) for batch in batches]
    passed.clear()
    found = list(steps(graph, state, 1, 12, 13))
    assert [(one.step, sorted(one.keys)) for one in found] == [(12, rest[0]), (13, rest[1])]
    assert len(passed) <= OPTIONS["lanes"] + 3


@pytest.mark.parametrize("world", [1, 3])
def test_steps_of_a_stream_by_plan(many_shards: Corpus, world: int) -> None:
    graph = training(many_shards.list)
    places = [{"rank": rank, "world_size": world, "steps_per_epoch": 9, **OPTIONS} for rank in range(world)]
    loaders = [uio.Loader(graph, uneven="join", **place) for place in places]
    first = [[sorted(batch["keys"]) for batch in loader] for loader in loaders]
    fresh = uio.Loader(graph, steps_per_epoch=9, **OPTIONS).state_dict()
    planned = list(steps(graph, fresh, world, last=8))
    assert [sorted(step.keys) for step in planned] == [first[rank][n] for n in range(9) for rank in range(world)]
    batches = [iter(loader) for loader in loaders]
    for one in batches:
        next(one)
    state = uio.merge_states([loader.state_dict() for loader in loaders])
    rest = [[sorted(batch["keys"]) for batch in one] for one in batches]
    planned = list(steps(graph, state, world, 1, 8))
    assert [(s.epoch, s.step, s.rank) for s in planned] == [(1, n, rank) for n in range(1, 9) for rank in range(world)]
    assert [sorted(step.keys) for step in planned] == [rest[rank][n] for n in range(8) for rank in range(world)]
    with pytest.raises(uio.StateError, match="step 0 of epoch 1 comes before step 1"):
        next(steps(graph, state, world, 0, 1))
    with pytest.raises(uio.PipelineError, match="--to"):
        next(steps(graph, state, world, 1))
    key = planned[0].keys[0]
    assert key in [one.key for one in seen(graph, fresh, world, [key], 40)]


def test_batches_of_which_nothing_is_left_have_numbers(tmp_path: Path) -> None:
    items = [{"key": f"U{i}", "wav": b"RIFF" if i in (3, 7) else wav_bytes(tone(8000, i))} for i in range(12)]
    graph = uio.from_iterable(items).sharding_filter().decode_audio().batch(1).pad()
    loader = uio.Loader(graph)
    assert [batch["keys"] for batch in loader] == [[f"U{i}"] for i in range(12) if i not in (3, 7)]
    assert loader.batch_at(8)["keys"] == ["U8"]
    with pytest.raises(uio.PipelineError, match="nothing is left of batch 7"):
        loader.batch_at(7)


def test_the_command(many_shards: Corpus, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import uio_pipes as uio\n\n\ndef pipeline():\n"
        f"    source = uio.from_shard_list({str(many_shards.list)!r})\n"
        "    return source.decode_audio().fbank(8, dither=1.0).batch(3).pad()\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        from train import pipeline
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["train"]
    loader = uio.Loader(pipeline(), rank=1, world_size=2, uneven="join", **OPTIONS)
    batches = list(loader)
    loader.set_epoch(0)
    torch.save(
        {"model": torch.zeros(2), "loader": uio.Loader(pipeline(), **OPTIONS).state_dict()}, tmp_path / "last.pt"
    )

    (tmp_path / "bin").mkdir()
    player = tmp_path / "bin" / "ffplay"
    player.write_text('#!/bin/sh\nfor file; do :; done\ncat "$file" >> played.wav\n')
    player.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def command(*arguments: str, states: tuple[str, ...] = ("last.pt",)) -> subprocess.CompletedProcess[str]:
        return FORKS.run([UIO, arguments[0], *states, "train.py:pipeline", *arguments[1:]], tmp_path, environment)

    two = ["--world-size", "2"]
    done = command("replay", "--step", "4", "--rank", "1", "--save", "batch.pt", *two)
    assert done.returncode == 0, done.stderr
    assert digest(torch.load(tmp_path / "batch.pt")) == digest(batches[4])
    assert f"{tuple(batches[4]['feats'].shape)} float32" in done.stdout
    assert batches[4]["keys"][0] in done.stdout
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / "README").write_text("no state\n")
    saving = uio.Loader(pipeline(), rank=1, world_size=2, uneven="join", **OPTIONS)
    following = iter(saving)
    for number in range(6):
        next(following)
        saved = uio.merge_states(
            [saving.state_dict(), uio.Loader(pipeline(), rank=0, world_size=2, uneven="join", **OPTIONS).state_dict()]
        )
        torch.save(saved, tmp_path / "states" / f"step_{number + 1}.pt")
    for states in (("states",), ("states/step_2.pt", "states/step_5.pt")):
        done = command("replay", "--step", "4", "--rank", "1", "--save", "again.pt", *two, states=states)
        assert done.returncode == 0, done.stderr
        assert digest(torch.load(tmp_path / "again.pt")) == digest(batches[4])
    done = command("replay", "--step", "4", "--rank", "1", "--play", "--plot", "rows.png", "--row", "2", *two)
    assert done.returncode == 0, done.stderr
    wav, rate = soundfile.read(tmp_path / "played.wav")
    assert (len(wav) - 0.025 * rate) // (0.01 * rate) + 1 == int(batches[4]["feats_lengths"][2])
    assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")
    done = command("replay", "--step", "4", states=("bin",))
    assert done.returncode == 2
    assert "no file in the folder bin" in done.stderr
    done = command("steps", "--from", "4", "--to", "4", "--keys", "keys.jsonl", *two)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "keys.jsonl").read_text().splitlines()]
    assert [line["rank"] for line in lines] == [0, 1]
    assert sorted(lines[1]["keys"]) == sorted(batches[4]["keys"])
    done = command("steps", "--key", batches[4]["keys"][0], "--key", "nobody", *two)
    assert done.returncode == 1
    assert "nobody: not in this epoch" in done.stdout
    assert "to come" in done.stdout
    done = command("steps", "--key", "nobody", "--keys", "keys.jsonl")
    assert (done.returncode, "--key goes with --to and --world-size only" in done.stderr) == (2, True)
