"""Indexes for the corpora of other tests, which nobody writes to: in a folder of their own."""

from pathlib import Path

from uio_pipes.tools.data.index import IndexedLists, index_lists


def indexed(path: Path | str, folder: Path) -> IndexedLists:
    """Index the shards of a list into ``folder``; no manifest is written beside a list that is not ours."""
    return index_lists([str(path)], into=str(folder), manifests=False)
