"""Each name inside torch that run/private.py uses is still there, and does what we use it for.

If one of these fails after a new torch was installed, mend run/private.py; the message says what hangs on it.
All hold with torch 2.14.1, the last that they were tried with.
"""

import contextlib
import multiprocessing.process
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, default_collate

from uio_pipes.integrations.torch_loaders import ReadyBatch
from uio_pipes.run import private as torch_private

NOW = f"torch {torch.__version__}, last good 2.14.1"


class Numbers(IterableDataset[int]):
    """Endless; where ``ends``, the worker goes without a word."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def __iter__(self) -> Iterator[int]:
        while not self.ends:
            yield 1
        os._exit(0)


class Late(IterableDataset[int]):
    """The first item takes a second."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(1)
        yield 1


@pytest.fixture
def batches() -> Iterator[Any]:
    made = iter(DataLoader(Numbers(), batch_size=None, num_workers=1))
    assert next(made) == 1
    yield made
    made._shutdown_workers()


PINS = {
    "_worker_result_queue._writer.close": "close_our_writer: without it a trainer that waits in a thread hangs for 5 s "
    "or more after its worker was killed",
    "_workers": "worker_pids, are_alive: the error of a killed worker names its process",
    "_worker_pids_set": "watch_alone: without it torch raises its own words anywhere in the trainer when a worker dies",
    "_shutdown_workers": "shut_down: without it workers live on after an epoch that is broken off",
}


@pytest.mark.parametrize("path", PINS)
def test_a_dataloaders_iterator_has(path: str, batches: Any) -> None:
    found = batches
    for name in path.split("."):
        assert hasattr(found, name), f"{NOW}: {type(found).__name__} has no {name} any more. {PINS[path]}"
        found = getattr(found, name)


def test_a_worker_that_is_gone_ends_the_queue_of_results() -> None:
    batches: Any = iter(DataLoader(Numbers(ends=True), batch_size=None, num_workers=1))
    torch_private.close_our_writer(batches)
    with pytest.raises((RuntimeError, EOFError)) as caught:
        next(batches)
    ended = EOFError in (type(caught.value), type(caught.value.__cause__))
    assert ended, f"{NOW}: others write to the queue, too. {PINS['_worker_result_queue._writer.close']}"
    torch_private.shut_down(batches)


def test_a_dataloader_that_was_late_may_be_asked_again() -> None:
    batches: Any = iter(DataLoader(Late(), batch_size=None, num_workers=1, timeout=0.2))
    with pytest.raises(RuntimeError) as caught:
        next(batches)
    assert torch_private.is_late(caught.value), f"{NOW}: a wait for a worker that takes long ends in an error"
    found = 0
    while not found:
        with contextlib.suppress(RuntimeError):
            found = next(batches)
    assert found == 1, f"{NOW}: after it was late, a DataLoader gives what came meanwhile"
    torch_private.shut_down(batches, now=True)


def test_python_can_forget_a_worker_that_cannot_be_killed(batches: Any) -> None:
    """The real thing is in test_stall.py, where a process waits for a disk that hangs."""
    (worker,) = batches._workers
    known = multiprocessing.process._children  # type: ignore[attr-defined]
    assert worker in known, f"{NOW}: shut_down: without it the end of Python waits for a worker in state D"


def test_shutting_down_ends_the_processes_at_once_and_may_be_repeated(batches: Any) -> None:
    (pid,), (worker,) = torch_private.worker_pids(batches), batches._workers
    assert pid == worker.pid, f"{NOW}: {PINS['_workers']}"
    assert torch_private.are_alive(batches)
    torch_private.shut_down(batches)
    assert not worker.is_alive(), f"{NOW}: {PINS['_shutdown_workers']}"
    assert not torch_private.are_alive(batches)
    torch_private.shut_down(batches)


def test_a_worker_that_is_busy_and_takes_no_sigterm_is_killed() -> None:
    batches: Any = iter(DataLoader(Numbers(), batch_size=None, num_workers=1, worker_init_fn=_sleeps))
    (worker,) = batches._workers
    torch_private.shut_down(batches)
    assert worker.exitcode == -signal.SIGKILL, f"{NOW}: {PINS['_shutdown_workers']}"


def _sleeps(_: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(400)


def test_default_collate_asks_the_map_before_it_looks_into_a_dict() -> None:
    asked = []
    torch_private.collate_by(type("Kind", (ReadyBatch,), {}), lambda *_, **__: asked.append(1))
    kind = next(kind for kind in torch_private.default_collate_fn_map if getattr(kind, "__name__", "") == "Kind")
    try:
        default_collate([kind()])
    finally:
        del torch_private.default_collate_fn_map[kind]
    assert asked, f"{NOW}: collate_by has no effect; a batch given to DataLoader(batch_size=2) is not refused any more"


def test_the_name_of_a_group_need_not_depend_on_the_groups_made_before() -> None:
    """Private groups: without it, members that made other numbers of groups before wait for each other in vain."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    names = []
    try:
        for _ in range(2):
            dist.new_group([0])
            count = dist.distributed_c10d._world.group_count
            with torch_private.group_named_by_its_members():
                group = dist.new_group([0], use_local_synchronization=True)
            names.append(group.group_name)
            assert dist.distributed_c10d._world.group_count == count, NOW
            dist.destroy_process_group(group)
    finally:
        dist.destroy_process_group()
    assert names[0] == names[1], NOW


def test_a_group_tells_how_long_its_operations_may_take() -> None:
    """Private groups wait as long: without it, for half an hour, whatever the trainer has allowed."""
    most = timedelta(minutes=77)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=most)
    try:
        assert torch_private.timeout_of(dist.group.WORLD) == most, NOW
    finally:
        dist.destroy_process_group()
