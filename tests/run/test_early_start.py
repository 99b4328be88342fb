"""``loader.start()``: workers begin before the iteration, which takes over exactly what they have begun."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from command import programs
from contract import counted, digest, restored, timeless
from torch.distributed.device_mesh import init_device_mesh

import uio_pipes as uio
from uio_pipes.run.private import worker_pids

State = dict[str, str]
ITEMS = [{"key": f"U{n}", "txt": "a" * (1 + n * 7 % 11)} for n in range(60)]


def graph(read: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> uio.Pipeline:
    items = uio.from_iterable(ITEMS).sharding_filter()
    return (items if read is None else items.map(read)).shuffle(9).batch(4)


def made(num_workers: int = 1, **options: Any) -> uio.Loader:
    return uio.Loader(graph(), seed=3, lanes=4, num_workers=num_workers, **options)


def whole(loader: uio.Loader, epochs: int = 2) -> list[tuple[str, State]]:
    return [(digest(batch), timeless(loader.state_dict())) for _ in range(epochs) for batch in loader]


def pids(loader: uio.Loader) -> list[int]:
    """Those of the workers that run now."""
    assert loader._run is not None
    return [pid for runner in loader._run.runners for pid in worker_pids(runner._batches)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_states_and_counts_are_as_without_it(workers: int) -> None:
    plain, early = made(workers), made(workers)
    before = early.state_dict()
    early.start()
    assert early.state_dict() == before
    expected = whole(plain)
    assert whole(early) == expected
    assert counted(early.stats()) == counted(plain.stats())
    begun = made(workers)
    next(batches := iter(begun))
    resumed = restored(graph(), begun.state_dict(), seed=3, lanes=4, num_workers=workers)
    resumed.start()
    assert timeless(resumed.state_dict()) == timeless(begun.state_dict())
    assert whole(resumed) == expected[1:]
    del batches


def test_workers_work_before_the_iteration_which_takes_them_over(tmp_path: Path) -> None:
    def read(sample: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / sample["key"]).touch()
        return sample

    loader = uio.Loader(graph(read), seed=3, num_workers=2)
    loader.start()
    running = pids(loader)
    loader.start()
    loader.set_epoch(0)
    assert pids(loader) == running, "a second start, and the same epoch, change nothing"
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 * (8 + 2 * 4) and time.monotonic() < deadline:
        time.sleep(0.01)  # two lanes fill their buffers and make two batches each
    assert len(list(tmp_path.iterdir())) >= 2 * (8 + 2 * 4)
    batches = iter(loader)
    assert pids(loader) == running
    next(batches)
    loader.start()
    assert pids(loader) == running, "in the middle of an iteration it does nothing"
    assert sum(len(batch) for batch in batches) == len(ITEMS) - 4


def skip(loader: uio.Loader) -> None:
    loader.skip(2)


def leave_out(loader: uio.Loader) -> None:
    loader.exclude(["U7"])


def go_to(loader: uio.Loader) -> None:
    loader.set_epoch(5)


def load(loader: uio.Loader) -> None:
    other = made()
    assert len([batch for batch, _ in zip(other, range(3), strict=False)]) == 3
    loader.load_state_dict(other.state_dict())


def move(loader: uio.Loader) -> None:
    uio.to_device(loader, "cpu")


@pytest.mark.parametrize("change", [skip, leave_out, go_to, load, move])
@pytest.mark.parametrize("workers", [0, 1])
def test_what_changes_the_loader_afterwards_holds(change: Callable[[uio.Loader], None], workers: int) -> None:
    plain, early = made(workers), made(workers)
    change(plain)
    early.start()
    change(early)
    early.start()
    assert whole(early) == whole(plain)


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 7}])
def test_after_an_epoch_it_begins_the_next_one(options: dict[str, Any]) -> None:
    plain, early = made(**options), made(**options)
    expected = whole(plain, 3)
    got = list[tuple[str, State]]()
    for epoch in range(3):
        early.start()
        got += whole(early, 1)
        assert early.epoch == epoch
        if options:
            early.start()
            assert early.epoch == epoch, "the stream goes on anyway"
    assert got == expected
    early.set_epoch(2)
    early.start()  # an epoch that was asked for and is over
    assert whole(early, 1) == []


def test_left_in_the_middle_it_goes_on_there() -> None:
    expected = whole(made(), 1)
    loader = made()
    got = list[tuple[str, State]]()
    while len(got) < len(expected):
        loader.start()
        for batch in loader:
            got.append((digest(batch), timeless(loader.state_dict())))
            break
    assert got == expected


def test_len_may_call_functions_until_the_iteration_begins() -> None:
    loader = uio.Loader(uio.from_iterable(ITEMS).filter(is_long).batch(4), num_workers=1)
    loader.start()
    expected = len(loader)
    assert expected == len(list(loader))


def is_long(sample: uio.Sample) -> bool:
    return len(sample["txt"]) > 5


def test_an_error_in_a_worker_comes_with_the_batch_and_workers_end_with_their_loader() -> None:
    def broken(sample: dict[str, Any]) -> dict[str, Any]:
        raise uio.UioError("it is broken")

    loader = uio.Loader(graph(broken), num_workers=1)
    loader.start()
    batches = iter(loader)
    with pytest.raises(uio.UioError, match="it is broken"):
        next(batches)
    loader = made()
    loader.start()
    (pid,) = pids(loader)
    del loader
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


# Ranks: two processes, gloo. Rank 1 comes late, and begins twice

LATE = 1.5  # seconds


def in_ranks() -> Iterator[tuple[str, dict[str, Any]]]:
    for uneven in ("share", "stop"):
        yield uneven, {"uneven": uneven}
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    yield "peers", {"ranks": uio.Ranks(mesh=mesh, data="dp", peers="receive")}


def main(folder: str) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for name, options in in_ranks():
        plain, early = made(**options), made(**options)
        dist.barrier()
        if rank == 1:
            time.sleep(LATE)
            early.start()
            early.set_epoch(1)
            early.set_epoch(0)
        began = time.monotonic()
        early.start()
        assert time.monotonic() - began < LATE / 2, f"{name}: rank {rank} has waited for the other one"
        assert whole(early) == whole(plain)
    Path(folder, f"{rank}").touch()
    os._exit(0)  # gloo's threads may hold an exit up


def test_no_rank_waits_for_another_one(tmp_path: Path) -> None:
    programs(Path(__file__).parents[1] / "helpers" / "ranks.py", 2, __file__, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


if __name__ == "__main__":
    main(*sys.argv[1:])
