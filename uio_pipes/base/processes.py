"""Helper processes that end with their parent and inherit none of its threads, libraries or random state."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from types import FrameType

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
    """Delay Ctrl-C to the end of the block: a pool that is interrupted while it starts a process would never end."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if caught:
        handler(*caught[0])


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded now, since it is too late after a fork
_PR_SET_PDEATHSIG = 1


def sigterm_with_parent() -> None:
    """On Linux, have this process receive SIGTERM when its parent ends, even if that was killed by SIGKILL."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


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
