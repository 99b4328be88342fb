"""The ranks of a decoding: each works for itself; they meet only at the beginning and at the end."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from .ranks import from_first

__all__ = ["Peers", "peers"]

T = TypeVar("T")
PATIENCE = datetime.timedelta(days=7)  # one rank may be ready long before another


@dataclass(frozen=True)
class Peers:
    """This rank among the others."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on rank 0; an error there is raised on all ranks."""
        return from_first(make, self.rank, self.size)

    def wait(self) -> None:
        """Wait until all ranks are here."""
        if self.size > 1:
            dist.barrier()


@contextlib.contextmanager
def peers() -> Iterator[Peers]:
    """Yield the ranks that torchrun started, or this process alone; each with a GPU if there is one."""
    rank, size, local = (int(os.environ.get(*item)) for item in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", local % gpus) if gpus else torch.device("cpu")
    if size > 1:
        dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield Peers(rank, size, device)
    finally:
        if size > 1:
            dist.destroy_process_group()
