"""Helper processes that start clean: nothing of the parent's threads, libraries or random state is inherited."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import BaseContext


def pool_context(preload: list[str]) -> BaseContext:
    """A context whose processes start fast, with ``preload`` imported once; ``spawn`` where there is no fork server."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    return context
