"""How a file that a state names is reached: a state has neither credentials nor options."""

from __future__ import annotations

from collections.abc import Iterator

from uio_pipes.base.redact import HIDDEN, redact
from uio_pipes.io.access import Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.list_files import ListFiles
from uio_pipes.sources.open_files import OpenFiles

__all__ = ["reach"]


def reach(pipeline: Pipeline, url: str) -> tuple[str, Access]:
    """The URL with its credentials, and the options for it. Lists are read again only where that is not clear."""
    known = list(_listed(pipeline))
    different = any(access != known[0][1] for _, access in known)
    if HIDDEN not in url and not different:
        return url, known[0][1] if known else Access()
    for stage, access in known:
        table = stage.table()
        for number in range(len(table)):
            if redact(table[number]) == url:
                return table[number], access
    return url, Access()


def _listed(pipeline: Pipeline) -> Iterator[tuple[ListFiles, Access]]:
    """Every list of files in a graph, and how its files are opened."""
    found = [stage for stage in pipeline.stages if isinstance(stage, ListFiles)]
    opened = [stage for stage in pipeline.stages if isinstance(stage, OpenFiles)]
    for stage in found:
        yield stage, opened[0].access(stage.access) if opened else stage.access
    for other in pipeline.stages:
        for branch in other.branches.values():
            yield from _listed(branch)
