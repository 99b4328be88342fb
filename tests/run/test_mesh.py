"""Meshes: ranks that differ in other dimensions than those of the data get the same batches. Eight processes, gloo."""

import json
import multiprocessing
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
import torch.distributed as dist
from command import programs
from contract import digest
from helpers_bad import ones
from processes import launch
from torch.distributed.device_mesh import init_device_mesh

import uio_pipes as uio
from uio_pipes.run.ranks import Ranks, place_of_rank

WORLD = 8
CHANGES = int(os.environ.get("UIO_MESHES", "24"))  # 100 were run
OPTIONS: dict[str, Any] = {"seed": 3, "lanes": 24, "steps_per_epoch": 10**6}  # a stream that begins again and again
MESHES: list[tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]] = [  # shape, names, those of the data
    ((8,), ("dp",), ("dp",)),
    ((4, 2), ("dp", "tp"), ("dp",)),
    ((2, 2, 2), ("dp_replicate", "dp_shard", "tp"), ("dp_replicate", "dp_shard")),
    ((2, 2, 2), ("pp", "dp", "tp"), ("dp",)),
    ((2, 4), ("tp", "dp"), ("dp",)),
    ((1, 8), ("dp", "cp"), ("dp",)),
]


def graph() -> uio.Pipeline:
    items = [{"key": f"U{i}", "txt": "a" * (1 + i * 7 % 11)} for i in range(400)]
    text = uio.from_iterable(items).sharding_filter().tokenize(ones)
    return text.shuffle(20).sort(5, length="tokens").dynamic_batch(max_tokens=24)


# What each process does


def main(what: str, folder: str, *arguments: str) -> None:
    context, target = multiprocessing.get_context("fork"), {"run": run, "killed": killed}[what]
    processes = [context.Process(target=target, args=(rank, folder, *arguments)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


def run(rank: int, folder: str, changes: str, peers: Literal["read", "receive"]) -> None:
    """Change the mesh again and again, in the middle of epochs; note what was delivered, and who got the state."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    draws, state, notes = random.Random(5), None, []
    for _ in range(int(changes)):
        which = draws.randrange(len(MESHES))
        shape, names, data = MESHES[which]
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        loader = uio.Loader(graph(), ranks=uio.Ranks(mesh=mesh, data=data, peers=peers), **OPTIONS)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        steps, got = draws.randint(0, 5), list[Any]()
        batches = iter(loader)
        while len(got) < steps and (batch := next(batches, None)) is not None:
            got.append(digest([sample["key"] for sample in batch]))
        whole = uio.gather_state(loader)
        there: list[Any] = [None] * WORLD
        dist.all_gather_object(there, json.dumps(whole) if whole is not None else None)
        state = next(one for one in there if one is not None)
        place = (loader.rank, loader.world_size, loader.peer)
        notes.append({"mesh": which, "place": place, "got": got, "states": WORLD - there.count(None)})
    few = dist.new_group([1, 4, 6])
    if rank in (1, 4, 6):  # the others take no part: nothing waits for them
        loader = uio.Loader(graph(), ranks=uio.Ranks(group=few), seed=3, lanes=3, uneven="stop")
        keys = [sample["key"] for batch in loader for sample in batch]
        whole = uio.gather_state(loader)
        notes.append({"few": keys, "place": (loader.rank, loader.world_size), "states": whole is not None})
    Path(folder, f"{rank}.json").write_text(json.dumps(notes))
    dist.destroy_process_group()


def killed(rank: int, folder: str, which: str, last: str) -> None:
    """Save after each step; go on where the last state is. At the step ``last``, rank 2 is killed."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{which}", rank=rank, world_size=WORLD)
    shape, names, data = MESHES[int(which)]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    loader = uio.Loader(graph(), ranks=uio.Ranks(mesh=mesh, data=data, peers="receive"), **OPTIONS)
    saved = Path(folder, "state.json")
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    try:
        for step, batch in enumerate(loader, 1):
            keys = digest([sample["key"] for sample in batch])
            os.write(1, f"step {which} {loader.rank} {loader.peer} {step} {keys}\n".encode())  # lines do not mix
            if step == int(last) and rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if (whole := uio.gather_state(loader)) is not None:
                saved.with_suffix(".new").write_text(json.dumps(whole))
                saved.with_suffix(".new").rename(saved)
    except RuntimeError:  # the others hear of it
        os._exit(1)


# Tests


class OneRank:
    """The same journey in one process, rank by rank, without a mesh or a group."""

    def __init__(self) -> None:
        self.state: dict[str, str] | None = None

    def leg(self, world: int, steps: int) -> list[list[str]]:
        delivered, states = [], []
        for rank in range(world):
            loader = uio.Loader(graph(), rank=rank, world_size=world, uneven="join", **OPTIONS)
            if self.state is not None:
                loader.load_state_dict(self.state)
            batches = iter(loader)
            delivered.append([digest([s["key"] for s in next(batches)]) for _ in range(steps)])
            states.append(loader.state_dict())
        self.state = uio.merge_states(states)
        return delivered


@pytest.mark.parametrize("peers", ["read", "receive"])
def test_a_journey_over_meshes_gives_what_ranks_without_one_would(peers: str, tmp_path: Path) -> None:
    programs(__file__, "run", tmp_path, CHANGES, peers)
    notes = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    few = [note.pop() for note in notes if "few" in note[-1]]
    assert [(*note["place"], note["states"]) for note in few] == [(0, 3, True), (1, 3, False), (2, 3, False)]
    keys = Counter(key for note in few for key in note["few"])
    assert 300 < len(keys) == sum(keys.values()) <= 400
    alone, seen = OneRank(), Counter[int]()
    for leg in zip(*notes, strict=True):
        assert {note["states"] for note in leg} == {1}  # one process has the state of all
        world, steps = leg[0]["place"][1], len(leg[0]["got"])
        delivered = {tuple(note["place"]): note["got"] for note in leg}
        expected = alone.leg(world, steps)
        peers = WORLD // world
        assert delivered == {(rank, world, peer): expected[rank] for rank in range(world) for peer in range(peers)}
        seen[leg[0]["mesh"]] += 1
    assert len(seen) == len(MESHES)
    assert sum(seen.values()) == CHANGES


def test_killed_and_resumed_on_another_mesh(tmp_path: Path) -> None:
    """Of 4 × 2, the reader of one data rank is killed; of 1 × 8, a process that receives."""
    alone = OneRank()
    for which, last in ((1, 3), (5, 3)):
        with pytest.raises(AssertionError) as ended:
            launch([__file__, "killed", str(tmp_path), str(which), str(last)])
        lines = sorted({line for line in str(ended.value).splitlines() if line.startswith(f"step {which} ")})
        world = len({line.split()[2] for line in lines})
        before = alone.leg(world, last - 1)  # the last state is that of the step before
        for line in lines:
            _, _, rank, _, step, keys = line.split()
            if int(step) < last:
                assert keys == before[int(rank)][int(step) - 1], line
        assert len(lines) >= WORLD * (last - 1)


class Mesh:
    """What is asked of a mesh before its ranks are."""

    mesh_dim_names = ("dp", "tp")

    def get_coordinate(self) -> list[int]:
        return [0, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"data": "dp"}, "names dimensions of a mesh"),
        ({"mesh": Mesh(), "group": object()}, "group and mesh mean the same"),
        ({"group": "world"}, "group must be a process group"),
        ({"mesh": "x"}, "mesh must be a DeviceMesh"),
        ({"mesh": Mesh(), "data": ()}, "each once, of dp, tp, not \\(\\)"),
        ({"mesh": Mesh(), "data": ("dp", "dp")}, "each once"),
        ({"mesh": Mesh(), "data": 3}, "each once"),
        ({"mesh": Mesh()}, "each once"),
        ({"mesh": Mesh(), "data": "pp"}, "each once"),
    ],
)
def test_what_does_not_go_together(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        place_of_rank(ranks=Ranks(**arguments))


@pytest.mark.parametrize("place", [{"rank": 0, "world_size": 2}, {"world_size": 2}], ids=str)
@pytest.mark.parametrize("ranks", [Ranks(), Ranks(mesh=Mesh(), data="dp")], ids=["nothing", "mesh"])  # type: ignore[arg-type]
def test_a_rank_is_not_given_beside_ranks(place: dict[str, Any], ranks: Ranks) -> None:
    with pytest.raises(uio.PipelineError, match=r"mean the same as ranks=uio\.Ranks\(…\): remove ranks"):
        place_of_rank(**place, ranks=ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
