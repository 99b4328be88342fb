"""Chunks on real ranks: how an epoch ends there if nobody says it, and SIGKILL in the middle of dialogues, gone on with
on another number of ranks and workers. Run as a script, this file is the trainer."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from command import ranks
from contract import digest
from dialogue_files import listed

import uio_pipes as uio
from uio_pipes.tools.reports.simulate import simulate

LANES, STEPS = 6, 5
SECONDS = [62.0, 33.0, 71.0, 14.0, 45.0, 8.0, 93.0, 41.0, 38.0, 17.0, 55.0, 64.0, 36.0, 49.0]
Entry = tuple[str, int, bool, str]  # of a chunk: its recording, its first frame, whether the row is reset, its bits


def graph(path: str) -> uio.Pipeline:
    read = uio.from_moshi(path, shuffle=True).decode_audio(channel=None, longest=45.0).mono()
    return read.fbank(8).turn_end().chunks(4.0, 0.5, 0.2, rows=2, along=["turn_end"]).pad()


def entries(batch: Any) -> list[tuple[str, Entry]]:
    """What each row of a batch has, with the name of the row in the epoch."""
    rows = zip(batch["keys"], batch["position"].tolist(), batch["reset"].tolist(), strict=True)
    bits = [digest([batch["feats"][row], batch["turn_end"][row]]) for row in range(len(batch["keys"]))]
    return [(f"{batch['lane']}.{row}", (*one, bits[row])) for row, one in enumerate(rows) if one[0]]


def main(given: dict[str, Any]) -> None:
    dist.init_process_group("gloo")
    {"default": by_default, "train": train}[given["mode"]](given, Path(given["folder"]))
    dist.destroy_process_group()


def by_default(given: dict[str, Any], folder: Path) -> None:
    """Take an epoch without saying how it ends."""
    loader = uio.Loader(graph(given["list"]))
    count = sum(1 for _ in loader)
    state = uio.gather_state(loader)
    told = {"uneven": loader.uneven, "batches": count, "left out": loader.stats().left_out[0], "states": bool(state)}
    (folder / f"default{dist.get_rank()}.json").write_text(json.dumps(told))


def train(given: dict[str, Any], folder: Path) -> None:
    """Note each batch together with the state after it; after so many, ``kill``, rank 1 dies, and all with it."""
    loader = uio.Loader(graph(given["list"]), seed=3, num_workers=given["workers"], lanes=LANES, uneven="join")
    if (folder / "resume.json").exists():
        loader.load_state_dict(json.loads((folder / "resume.json").read_text()))
    log = list[Any]()
    part = folder / f"{given['name']}{dist.get_rank()}.part"
    for step, batch in enumerate(loader, 1):
        log += entries(batch)
        part.write_text(json.dumps({"log": log, "state": loader.state_dict()}))
        part.replace(part.with_suffix(".json"))
        if step == given["kill"] and dist.get_rank() == 1:
            while not (folder / f"{given['name']}0.json").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)


def test_ranks_of_chunks_end_together_by_default(tmp_path: Path) -> None:
    path = listed(tmp_path, [40.0, 12.0, 31.0])
    done = ranks(2, __file__, json.dumps({"mode": "default", "list": str(path), "folder": str(tmp_path)}))
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"default{rank}.json").read_text()) for rank in (0, 1)]
    assert [one["uneven"] for one in told] == ["stop", "stop"]
    assert told[0]["batches"] == told[1]["batches"] > 0
    assert sum(one["left out"] for one in told) > 0
    assert '(of chunks, "join" leaves out nothing)' in done.stderr
    assert simulate(graph(str(path)), world_size=2).uneven == "stop"
    assert [one["states"] for one in told] == [True, False]


@pytest.mark.parametrize(("world", "workers"), [(3, 1), (1, 2)])
def test_killed_in_mid_dialogue_and_resumed_elsewhere_each_chunk_comes_once(
    tmp_path: Path, world: int, workers: int
) -> None:
    path = listed(tmp_path, SECONDS)
    expected = dict[str, list[Entry]]()
    for batch in uio.Loader(graph(str(path)), seed=3, lanes=LANES):
        for row, entry in entries(batch):
            expected.setdefault(row, []).append(entry)
    given = {"mode": "train", "list": str(path), "folder": str(tmp_path), "name": "before", "workers": 2, "kill": STEPS}
    assert ranks(2, __file__, json.dumps(given)).returncode != 0
    before = [json.loads((tmp_path / f"before{rank}.json").read_text()) for rank in (0, 1)]
    (tmp_path / "resume.json").write_text(json.dumps(uio.merge_states([one["state"] for one in before])))
    given |= {"name": "after", "workers": workers, "kill": 0}
    done = ranks(world, __file__, json.dumps(given))
    assert done.returncode == 0, done.stderr
    after = [json.loads((tmp_path / f"after{rank}.json").read_text()) for rank in range(world)]
    rows, firsts = dict[str, list[Entry]](), dict[str, Entry]()
    for one in before:
        for row, entry in one["log"]:
            rows.setdefault(row, []).append(tuple(entry))
    for one in after:
        for row, entry in one["log"]:
            firsts.setdefault(row, tuple(entry))
            rows.setdefault(row, []).append(tuple(entry))
    assert rows == expected
    assert any(entry[1] and not entry[2] for entry in firsts.values()), "it was in mid-dialogue"
    for chunks in rows.values():
        assert all(reset == (position == 0) for _, position, reset, _ in chunks)
    heard = [(key, position) for chunks in rows.values() for key, position, _, _ in chunks]
    assert len(heard) == len({*heard})
    assert {key for key, _ in heard} == {f"R{number}" for number in range(len(SECONDS))}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
