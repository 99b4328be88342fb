"""A batch made again: bit by bit what it was, from any position, on any topology; the loader does not move."""

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
from contract import digest, restored
from corpus import Corpus
from journeys import GRAPHS, training
from tones import tone, wav_bytes

import uio_pipes as uio
from uio_pipes.run.state import lane_age
from uio_pipes.tools.reports.replay import Replay

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
    with pytest.raises(
        uio.PipelineError, match=f"has no batch {len(expected)} on rank {rank}: it has {len(expected)} "
    ):
        loader.batch_at(len(expected))


def test_from_a_state_on_other_ranks_and_workers(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    expected = [digest(batch) for batch in uio.Loader(graph, **OPTIONS)]
    saved = uio.Loader(graph, num_workers=2, **OPTIONS)
    batches = iter(saved)
    for _ in range(7):
        next(batches)
    loader = restored(graph, saved.state_dict(), **OPTIONS)
    for step in (7, 12, len(expected) - 1):
        assert digest(loader.batch_at(step)) == expected[step]
    assert digest(loader.batch_at(3)) == expected[3]  # the state knows that the epoch began on as many ranks
    two = restored(graph, saved.state_dict(), rank=0, world_size=2, uneven="join", **OPTIONS)
    with pytest.raises(uio.StateError, match="step 3 of epoch 0 comes before step 7"):
        two.batch_at(3)
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
            for step, wanted in enumerate(expected[epoch]):
                replay = Replay(graph, states, step, world - 1, world, epoch)
                assert digest(replay.batch()) == wanted
                assert replay.loader.epoch == epoch
                fewest = 2 if epoch == 0 else 0
                assert replay.loader._progress.received == max([n for n in (2, 3, 6) if n <= step], default=fewest)
        last = max(states, key=lambda state: lane_age(state[f"lane_{world - 1:06d}"]))
        assert digest(Replay(graph, [last], 4, world - 1, None, 0).batch()) == expected[0][4]  # of a later epoch
        if world == 1:
            with pytest.raises(uio.StateError, match=r"epoch 0 had other ranks or lanes than .* step \d of epoch 1"):
                Replay(graph, [last], 4, 1, 2, 0)
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
    alone = restored(graph, merged, **OPTIONS)
    rest = [digest(batch) for batch in alone]
    assert [digest(alone.batch_at(6 + number)) for number in range(len(rest))] == rest
    for rank in range(2):
        loader = restored(graph, merged, rank=rank, world_size=2, uneven="join", **OPTIONS)
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


def test_batches_of_which_nothing_is_left_have_numbers(tmp_path: Path) -> None:
    items = [{"key": f"U{i}", "wav": b"RIFF" if i in (3, 7) else wav_bytes(tone(8000, i))} for i in range(12)]
    graph = uio.from_iterable(items).sharding_filter().decode_audio().batch(1).pad()
    loader = uio.Loader(graph)
    assert [batch["keys"] for batch in loader] == [[f"U{i}"] for i in range(12) if i not in (3, 7)]
    assert loader.batch_at(8)["keys"] == ["U8"]
    with pytest.raises(uio.PipelineError, match="batch 7 is empty"):
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
