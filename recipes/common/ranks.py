"""What the ranks of a training do together: begin, agree, end on a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

__all__ = ["SIGTERM_STATUS", "Ranks", "process_group"]

SIGTERM_STATUS = 128 + signal.SIGTERM  # what a shell says of a process that SIGTERM ended


@contextmanager
def process_group() -> Iterator[Ranks]:
    """The process group that torchrun's variables (or a single process) ask for: NCCL with a GPU for each local rank,
    else gloo on CPUs."""
    for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")):
        os.environ.setdefault(name, alone)
    gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # ranks and workers share the cores; and sums keep their order
    store = None if "MASTER_ADDR" in os.environ else HashStore()
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
    """This rank among the others. Words between ranks travel on a gloo group, beside the gradients."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.group: Any = dist.new_group(backend="gloo")
        self.asked_to_stop = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: object) -> None:
        self.asked_to_stop = True

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def agree(self, goes_on: bool) -> Agreement:
        """Begin to agree on whether any rank goes on, and whether any was asked to stop."""
        return Agreement(self, goes_on)

    def sum(self, values: list[float]) -> list[float]:
        """Sums over the ranks, the same on each."""
        word = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(word, group=self.group)
        sums: list[float] = word.tolist()
        return sums

    def from_first(self, value: Any) -> Any:
        """Rank 0's value."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def barrier(self) -> None:
        """Wait for all."""
        dist.barrier(group=self.group)


class Agreement:
    """A word that is under way while the step is computed. Signals reach ranks at different times: what counts is
    what all of them have heard of it here."""

    def __init__(self, ranks: Ranks, goes_on: bool) -> None:
        self._word = torch.tensor([goes_on, ranks.asked_to_stop], dtype=torch.int32)
        self._work: Any = dist.all_reduce(self._word, dist.ReduceOp.MAX, group=ranks.group, async_op=True)

    def wait(self) -> tuple[bool, bool]:
        """Whether any rank goes on, and whether any was asked to stop."""
        self._work.wait()
        goes_on, stop = self._word.tolist()
        return bool(goes_on), bool(stop)
