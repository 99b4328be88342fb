"""The common actions of the ranks of a training: start, agree, and end on a signal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from uio_pipes.base.processes import Busy, try_lock

from .launch import sigterm_with_parent

__all__ = ["SIGTERM_STATUS", "Busy", "Ranks", "from_first", "hold", "let_first_speak", "process_group"]

SIGTERM_STATUS = 128 + signal.SIGTERM  # as a shell reports a process that SIGTERM ended
PATIENCE = 15.0  # seconds within which ranks of a killed torchrun must have left the folder
T = TypeVar("T")


@contextmanager
def hold(exp: Path) -> Iterator[None]:
    """Keep other trainings out of the folder for as long as this process lives. Rank 0 does it for all.

    Raises: Busy, after some seconds: a training that is just ending may still be saving.
    """
    exp.mkdir(parents=True, exist_ok=True)
    with (exp / "training.lock").open("a+") as file:
        if not try_lock(file.fileno(), PATIENCE):
            file.seek(0)
            raise Busy(f"{exp}: another training (process {file.read() or '?'}) is at work in it; wait, or end it")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def let_first_speak(seconds: float = 10.0) -> None:
    """Let rank 0 report an error that all ranks have: torchrun ends the other ranks when it is gone. A rank that is
    still there after some seconds has an error of its own."""
    if os.environ.get("RANK", "0") != "0":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
        time.sleep(seconds)


def _end_with_torchrun() -> None:
    """Let ranks get SIGTERM (on Linux) when torchrun is gone, even by SIGKILL: they save and end."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        sigterm_with_parent()


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Start the process group that torchrun's variables (or a single process) ask for: NCCL if there is a GPU for each
    local rank, otherwise gloo on CPUs."""
    for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")):
        os.environ.setdefault(name, alone)
    gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # ranks and workers share the cores; and sums keep their order
    store = None if "MASTER_ADDR" in os.environ else dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if gpus else "gloo",
        store=store,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        device_id=device if gpus else None,
    )
    try:
        yield Ranks(device)
    finally:
        dist.destroy_process_group()


class Ranks:
    """This rank among the others. Messages between ranks go over a gloo group, beside the gradients."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.group: Any = dist.new_group(backend="gloo")
        self.asked_to_stop = False
        signal.signal(signal.SIGTERM, self._note)
        _end_with_torchrun()

    def _note(self, *_: object) -> None:
        self.asked_to_stop = True

    @property
    def first(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    def agree(self, goes_on: bool) -> Agreement:
        """Begin to agree on two questions: does any rank go on, and was any rank asked to stop?"""
        return Agreement(self, goes_on)

    def sum(self, values: list[float]) -> list[float]:
        """Return sums over the ranks, the same on each."""
        word = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(word, group=self.group)
        sums: list[float] = word.tolist()
        return sums

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on rank 0; an error there is raised on all ranks."""
        return from_first(make, self.rank, self.world_size, self.group)

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier(group=self.group)


def from_first(make: Callable[[], T], rank: int, world_size: int, group: Any = None) -> T:
    """Return what ``make`` returns on rank 0; an error there is raised on all ranks."""
    box: list[Any] = [None, None]
    if rank == 0:
        try:
            box[0] = make()
        except Exception as error:
            box[1] = error
    if world_size > 1:
        dist.broadcast_object_list(box, src=0, group=group)
    if box[1] is not None:
        raise box[1]
    value: T = box[0]
    return value


class Agreement:
    """A message that is under way while the step is computed. Signals reach ranks at different times, so a signal
    counts when all ranks have heard of it here."""

    def __init__(self, ranks: Ranks, goes_on: bool) -> None:
        self._word = torch.tensor([goes_on, ranks.asked_to_stop], dtype=torch.int32)
        self._work: Any = dist.all_reduce(self._word, dist.ReduceOp.MAX, group=ranks.group, async_op=True)

    def wait(self) -> tuple[bool, bool]:
        """Return whether any rank goes on, and whether any was asked to stop."""
        self._work.wait()
        goes_on, stop = self._word.tolist()
        return bool(goes_on), bool(stop)
