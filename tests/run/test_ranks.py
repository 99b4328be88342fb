"""A rank that waits for others in vain says for whom and for what. Real processes, gloo."""

import json
import logging
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from command import programs
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

import uio_pipes as uio
from uio_pipes.run import ranks


def made(**options: Any) -> uio.Loader:
    items = [{"key": f"U{n}", "txt": "a"} for n in range(400)]
    return uio.Loader(uio.from_iterable(items).sharding_filter().batch(2), lanes=2, **options)


# What each process does. In the end one waits in vain for the other, which has left


def at_once(leaves: Callable[[], None]) -> None:
    leaves() if dist.get_rank() else lose_patience()
    next(iter(made()))


def in_the_middle(leaves: Callable[[], None]) -> None:
    for number, _ in enumerate(made()):
        if number == 3:
            leaves() if dist.get_rank() else lose_patience()


def before_it_saves(leaves: Callable[[], None]) -> None:
    loader = made()
    next(iter(loader))
    leaves() if dist.get_rank() else lose_patience()
    uio.gather_state(loader)


def which_reads(leaves: Callable[[], None]) -> None:
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    for number, _ in enumerate(made(ranks=uio.Ranks(mesh=mesh, data="dp", peers="receive"))):
        if number == 3:
            lose_patience() if dist.get_rank() else leaves()


def which_has_read(leaves: Callable[[], None]) -> None:
    """The other one does not wait yet when it leaves."""
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    for number, _ in enumerate(made(ranks=uio.Ranks(mesh=mesh, data="dp", peers="receive"))):
        if number == 3:
            lose_patience() if dist.get_rank() else leaves()
            time.sleep(2)


LEAVING: dict[str, tuple[Callable[..., None], str]] = {
    "at once": (at_once, "rank 0 waited for rank 1 to connect"),
    "in the middle": (in_the_middle, "rank 0 waited for rank 1 to say how many batches they have"),
    "before it saves": (before_it_saves, "rank 0 waited for rank 1 in gather_state"),
    "which reads": (which_reads, "rank 1 waited for rank 0 to hand over a batch that it has read"),
    "which has read": (which_has_read, "rank 1 waited for rank 0 to hand over a batch that it has read"),
}


AT_ONCE = [name for name in LEAVING if name != "at once"]  # where those that have connected learn of an end
# Before 2.11, a collective of torch's keeps to the time that its group was made with.
LATE = list(LEAVING) if torch.torch_version.TorchVersion(torch.__version__) >= "2.11" else ["at once", "which reads"]


def lose_patience() -> None:
    """From now on wait for a second, whatever was agreed on, and say so after a third of it."""
    ranks.PATIENCE, ranks.WARN_AFTER = timedelta(seconds=1), 0.3
    ranks.timeout_of = lambda group: timedelta()
    for group in ranks._groups.get(dist.group.WORLD, {}).values():
        group()._get_backend(torch.device("cpu"))._set_default_timeout(ranks.PATIENCE)


def main(folder: str) -> None:
    context = multiprocessing.get_context("fork")
    ways = [*((name, "stays") for name in LATE), *((name, "ends") for name in AT_ONCE)]
    several = [(*way, rank) for way in ways for rank in (0, 1)]
    processes = [context.Process(target=run, args=(folder, *one)) for one in several]
    processes += [context.Process(target=begin_early, args=(folder, rank)) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def run(folder: str, name: str, end: str, rank: int) -> None:
    here = Path(folder, f"{name}-{end}")
    dist.init_process_group("gloo", init_method=f"file://{here}.store", rank=rank, world_size=2)
    program, _ = LEAVING[name]
    dist.barrier()
    logging.getLogger("uio_pipes").addHandler(logging.FileHandler(f"{here}.log"))

    def leaves() -> None:
        while end == "stays" and not here.exists():
            time.sleep(0.05)
        os._exit(0)

    try:
        program(leaves)
    except RuntimeError as error:
        here.write_text(str(error))
    os._exit(0)


def begin_early(folder: str, rank: int) -> None:
    """Make a dataset and a loader, and only then join the other rank."""
    graph = uio.from_iterable([{"key": f"U{n:02}"} for n in range(24)]).sharding_filter()
    dataset, loader, everything = graph.as_dataset(), uio.Loader(graph), uio.Loader(graph, partition=False)
    dist.init_process_group("gloo", init_method=f"file://{folder}/early.store", rank=rank, world_size=2)
    sent = pickle.loads(pickle.dumps(dataset)).options  # as to workers that are spawned, which know of no group
    assert (sent["rank"], sent["world_size"]) == (rank, 2)
    seen: list[Any] = [
        [sample["key"] for sample in DataLoader(dataset, batch_size=None, num_workers=workers)] for workers in (0, 2)
    ]
    seen.append(len(list(everything)))
    try:
        next(iter(loader))
    except uio.PipelineError as error:
        seen.append(str(error))
    Path(folder, f"early{rank}.json").write_text(json.dumps(seen))


# Tests


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("said")
    programs(__file__, folder)
    return folder


@pytest.mark.parametrize("name", LATE)
def test_whoever_waits_for_a_rank_that_does_not_come_says_so_after_a_time(name: str, said: Path) -> None:
    text = (said / f"{name}-stays").read_text()
    assert text.startswith(LEAVING[name][1] + ": they did not come within 0:00:01"), text
    assert "init_process_group(timeout=" in text


@pytest.mark.parametrize("name", [name for name in LATE if name != "in the middle"])
def test_whoever_waits_long_says_so_before_it_gives_up(name: str, said: Path) -> None:
    """But not at each batch that is handed over."""
    told = LEAVING[name][1].replace("waited", "has waited 0.3 s")
    expected = f"{told}, and goes on waiting: all ranks must iterate their loaders and save alike\n"
    assert (said / f"{name}-stays.log").read_text() == ("" if name.startswith("which") else expected)


@pytest.mark.parametrize("name", AT_ONCE)
def test_whoever_waits_for_a_rank_that_has_ended_says_so_at_once(name: str, said: Path) -> None:
    text = (said / f"{name}-ends").read_text()
    assert text.startswith(LEAVING[name][1] + ": the connection is lost"), text
    assert "load the last state" in text


def test_what_was_made_before_the_ranks_knew_each_other_is_shared_or_says_so(said: Path) -> None:
    """Otherwise each rank would get everything, in silence."""
    *shares, counts, errors = zip(
        *(json.loads((said / f"early{rank}.json").read_text()) for rank in (0, 1)), strict=True
    )
    for first, second in shares:
        assert sorted(first + second) == [f"U{n:02}" for n in range(24)]
        assert len(first) == len(second) == 12
    assert counts == (24, 24)
    assert all("make it after init_process_group, or with partition=False" in error for error in errors)


def test_processes_without_a_group_are_warned(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    graph = uio.from_iterable([{"key": "a"}, {"key": "b"}]).sharding_filter()
    for options in ({"rank": 0, "world_size": 2}, {"partition": False}):
        list(uio.Loader(graph, **options))  # type: ignore[arg-type]
    assert "WORLD_SIZE" not in caplog.text
    list(uio.Loader(graph))
    assert "this process is one of 2 (WORLD_SIZE), but they have no process group" in caplog.text


if __name__ == "__main__":
    main(*sys.argv[1:])
