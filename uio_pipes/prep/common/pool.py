"""Work for a pool of processes, its results in order, little of it under way at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from uio_pipes.base.processes import begin_helper, pool_context, uninterrupted

__all__ = ["in_order"]

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    function: Callable[..., R],
    work: Iterable[tuple[T, tuple[Any, ...]]],
    jobs: int,
    preload: list[str],
    lost: Exception,
) -> Iterator[tuple[T, R]]:
    """``function(*arguments)`` for each label and arguments of ``work``: labels and results, in order.

    At most ``jobs`` + 3 results wait, so that memory is bounded however slow the reader is. Raises ``lost`` if a
    process is killed.
    """
    running: deque[tuple[T, Future[R]]] = deque()
    with ProcessPoolExecutor(jobs, mp_context=pool_context(preload), initializer=begin_helper) as pool:
        try:
            for label, arguments in work:
                with uninterrupted():
                    running.append((label, pool.submit(function, *arguments)))
                if len(running) > jobs + 2:
                    done, future = running.popleft()
                    yield done, future.result()
            while running:
                done, future = running.popleft()
                yield done, future.result()
        except BrokenProcessPool as error:
            raise lost from error
        finally:
            for _, future in running:
                future.cancel()
