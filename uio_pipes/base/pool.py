"""Work for a pool of processes, little of it under way at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from uio_pipes.base.processes import begin_helper, pool_context, uninterrupted

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
