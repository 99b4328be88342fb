"""Everything that we use of the internals of torch, which its documentation does not promise.

``tests/run/test_torch_private.py`` pins each of them, and says what depends on it.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C import _remove_worker_pids
from torch.utils.data._utils.collate import default_collate_fn_map

from uio_pipes.base.hashing import stable_hash

GONE = 5.0  # seconds until the system has taken down a process whose pipe it has closed

# ``batches``: the iterator of a DataLoader with workers.


def close_our_writer(batches: Any) -> None:
    """Leave the workers alone in holding the writing end of the queue of results.

    Whoever waits for a result, in a thread perhaps, then learns at once that the last worker has ended.
    """
    batches._worker_result_queue._writer.close()


def worker_pids(batches: Any) -> list[int]:
    return [worker.pid for worker in batches._workers]


def are_alive(batches: Any) -> bool:
    return any(worker.is_alive() for worker in batches._workers)


def exit_code(batches: Any) -> int | None:
    """Return the exit status of the worker when it has ended; that of a signal is negative."""
    (worker,) = batches._workers
    worker.join(GONE)
    code: int | None = worker.exitcode
    return code


def watch_alone(batches: Any) -> None:
    """Keep torch from raising an error of its own, anywhere in the trainer, when a worker of this iterator dies."""
    if batches._worker_pids_set:
        _remove_worker_pids(id(batches))
        batches._worker_pids_set = False


def shut_down(batches: Any, now: bool = False) -> bool:
    """End the worker processes now, not when the iterator is collected. One that goes on working for 5 s is killed;
    ``now``: at once. Return False if one cannot be killed: then Python will not wait for it at its end."""
    watch_alone(batches)  # what is ended here is no failure
    for worker in batches._workers:
        worker.terminate = worker.kill  # ours live on for half a minute after SIGTERM
        if now:
            worker.kill()
    batches._shutdown_workers()
    for worker in batches._workers:
        worker.join(5)  # older versions of torch do not wait for those that they kill
    alive = {worker for worker in batches._workers if worker.is_alive()}
    multiprocessing.process._children.difference_update(alive)  # type: ignore[attr-defined]
    return not alive


def is_late(error: RuntimeError) -> bool:
    """Return whether nothing came within the ``timeout`` of a DataLoader, which may be asked again."""
    return str(error).startswith("DataLoader timed out")


@contextlib.contextmanager
def group_named_by_its_members() -> Iterator[None]:
    """Name a new process group by its members alone.

    torch adds a number: of the groups that this process has made, or up to 2.13 of those that it is in. Among the
    members these may differ, and they would wait for each other in vain, each under another name.
    """
    inside: Any = dist.distributed_c10d
    named, count = inside._hash_ranks_to_str, inside._world.group_count
    inside._hash_ranks_to_str = _name
    try:
        yield
    finally:
        inside._hash_ranks_to_str, inside._world.group_count = named, count


def _name(ranks: Sequence[int]) -> str:
    return f"uio_pipes {stable_hash(*ranks):x}"


def timeout_of(group: Any) -> timedelta:
    """Return how long an operation of the group may take; 0 if its backend does not say."""
    options = (getattr(group._get_backend(device), "options", None) for device in group._device_types)
    return max((getattr(one, "_timeout", timedelta()) for one in options), default=timedelta())


def collate_by(kind: type, function: Callable[..., Any]) -> None:
    """Have torch's ``default_collate`` call ``function`` for batches of ``kind``."""
    default_collate_fn_map[kind] = function
