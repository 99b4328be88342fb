"""Helper processes and pools, the CPU cores that they may use, and the Ray cluster of this process."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from uio_pipes.base.errors import UioError

CGROUPS = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def cores() -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quota of its control group."""
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(free, int(_quota())))


def cores_of_rank() -> int:
    """Return this rank's share of the cores, where ranks started by torchrun share those of a machine."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores() // max(1, int(ranks) if ranks.isdecimal() else 1))


def _quota() -> float:
    """Return the cores that control groups (of version 2, or 1) leave this process; a large number without a limit."""
    found = [1e9]
    for line in _text(OF_PROCESS).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds:
            found += [_share(*_text(CGROUPS / where / "cpu.max").split()) for where in _upwards(path)]
        elif "cpu" in kinds.split(","):
            for where in _upwards(path):
                folder = CGROUPS / "cpu" / where
                found.append(_share(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")))
    return min(found)


def _upwards(path: str) -> list[Path]:
    """Return a group and those around it, relative to the root of all groups."""
    here = Path(path.lstrip("/"))
    return [here, *here.parents]


def _share(quota: str = "", period: str = "") -> float:
    quota, period = quota.strip(), period.strip()
    limited = quota.isdecimal() and period.isdecimal() and int(period) > 0  # otherwise "max", or -1
    return int(quota) / int(period) if limited else 1e9


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


LONGEST = 70  # bytes of the name of the temporary folder; the fork server has a socket below it, named by 108 at most


def pool_context(preload: list[str]) -> BaseContext:
    """Return a context whose processes start fast, with ``preload`` imported once; ``spawn`` without a fork server."""
    served = "forkserver" in multiprocessing.get_all_start_methods()
    if not served or len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    resource_tracker.ensure_running()  # first: starting it, as the fork server would, unblocks SIGINT
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes inherit it: Ctrl-C is for the command alone
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return context


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, but not in processes that are forked in it.

    A pool that is interrupted while it starts a process would never end, and Python drops what is raised at a fork.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    pid = os.getpid()

    def delay(number: int, frame: FrameType | None) -> None:
        if os.getpid() == pid:
            caught.append((number, frame))
        else:
            handler(number, frame)

    signal.signal(signal.SIGINT, delay)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if caught:
        handler(*caught[0])


def begin_helper() -> None:
    """In a helper process: end with the parent, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """In a helper process: end when the parent ends, even if it was killed."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


T = TypeVar("T")
R = TypeVar("R")
Work = Iterable[tuple[T, tuple[Any, ...]]]  # a label and the arguments of a call, again and again


def in_order(
    function: Callable[..., R], work: Work[T], jobs: int, preload: list[str], lost: Exception
) -> Iterator[tuple[T, R]]:
    """Call ``function(*arguments)`` in ``jobs`` processes; yield labels and results in the order of ``work``.

    At most ``jobs`` + 3 results wait, so that memory is bounded however slow the reader is. Raises ``lost`` if a
    process is killed.
    """
    try:
        yield from _pooled(function, work, jobs, preload, ordered=True)
    except BrokenProcessPool as error:
        raise lost from error


def as_done(function: Callable[..., R], work: Work[T], jobs: int, preload: list[str]) -> Iterator[tuple[T, R]]:
    """Like :func:`in_order`, but yield results as they finish; with ``jobs=1`` no process is started."""
    if jobs <= 1:
        return ((label, function(*arguments)) for label, arguments in work)
    return _pooled(function, work, jobs, preload, ordered=False)


def _pooled(
    function: Callable[..., R], work: Work[T], jobs: int, preload: list[str], *, ordered: bool
) -> Iterator[tuple[T, R]]:
    with ProcessPoolExecutor(jobs, mp_context=pool_context(preload), initializer=begin_helper) as pool:

        def submit(*arguments: Any) -> Future[R]:
            with uninterrupted():
                return pool.submit(function, *arguments)

        yield from window(submit, work, jobs + 2, ordered=ordered)


def window(
    submit: Callable[..., Future[R]], work: Work[T], limit: int, *, ordered: bool = True
) -> Iterator[tuple[T, R]]:
    """Submit ``work`` to a pool, with little more than ``limit`` calls under way; yield labels and results."""
    running: dict[Future[R], T] = {}

    def finished() -> Future[R]:
        return next(iter(running if ordered else wait(running, return_when=FIRST_COMPLETED).done))

    try:
        for label, arguments in work:
            running[submit(*arguments)] = label
            if len(running) > limit:
                future = finished()
                yield running.pop(future), future.result()
        while running:
            future = finished()
            yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


_started = False  # Ray, by join_cluster


def import_ray(what: str) -> Any:
    """Return the package ``ray``. Raises: UioError if it is missing, which names ``what`` needs it."""
    try:
        import ray
    except ImportError as error:
        raise UioError(f"{what} needs the package: pip install 'uio_pipes[ray]'") from error
    return ray


def join_cluster(ray: Any, cores: int) -> bool:
    """Join the cluster that ``RAY_ADDRESS`` names, or start Ray with ``cores`` cores on this machine.

    Returns False if this process has joined one before.
    """
    global _started
    if ray.is_initialized():
        return False
    local = {"address": "local", "num_cpus": cores, "include_dashboard": False}
    _started = not os.environ.get("RAY_ADDRESS")
    ray.init(logging_level="ERROR", log_to_driver=False, **(local if _started else {}))
    return True


def started_here() -> bool:
    """Return whether the cluster is one that ``join_cluster`` started, for this process alone."""
    return _started


class Busy(Exception):
    """Another process is using the folder."""


def try_lock(descriptor: int, patience: float = 0.0) -> bool:
    """Lock an open file for this process alone; return False if another one still holds it after ``patience`` seconds.
    (A process killed a moment ago may outlive its parent a little.)"""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        else:
            return True
