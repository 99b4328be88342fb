"""Indexes of existing tar shards: a small file beside each, or under a folder; nothing is packed again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.pool import as_done
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.tar.index import ShardIndex, dumps
from uio_pipes.formats.tar.index_files import open_sidecar, sidecar_path
from uio_pipes.formats.tar.reader import Grouping
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local
from uio_pipes.io.transport import filesystem
from uio_pipes.prep.checking.duplicates import PackedKeys
from uio_pipes.prep.indexing.scan import scan_shard
from uio_pipes.prep.writing.files import atomic_path

PRELOAD = ["uio_pipes.prep.indexing.scan"]  # imported once for all processes of a pool


@dataclass(frozen=True)
class IndexedShard:
    """The result for one shard. ``problems``: failures that reading meets, notes, and audio with a damaged header.

    ``frames``: of 10 ms, as far as headers give them; ``fresh``: it had an index that fits; ``damaged``: reading meets
    failures.
    """

    url: str
    keys: PackedKeys = field(repr=False)
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    index_bytes: int = 0
    crc32: str = ""
    problems: tuple[DataError, ...] = ()
    fresh: bool = False
    indexed: bool = True
    damaged: bool = False

    def entry(self, line: str) -> ShardEntry:
        """Return the entry for the manifest of a list in which the shard is ``line``."""
        return ShardEntry(line, self.utterances, self.frames, self.bytes, self.crc32)


def index_shards(
    urls: Sequence[str],
    *,
    into: str | None = None,
    jobs: int = 1,
    grouping: Grouping = "wenet",
    text: str = "txt",
    access: Access | None = None,
    force: bool = False,
) -> Iterator[IndexedShard]:
    """Index shards, several at a time, and yield them as they are done.

    A shard whose index fits is left as it is, unless ``force``. One that cannot be read has the reason in its
    ``problems``, and no index.

    Raises: ListError if an index cannot be written.
    """
    work = ((url, (url, into, grouping, text, access, force)) for url in urls)
    return (shard for _, shard in as_done(index_shard, work, min(jobs, len(urls)), PRELOAD))


def index_shard(
    url: str,
    into: str | None = None,
    grouping: Grouping = "wenet",
    text: str = "txt",
    access: Access | None = None,
    force: bool = False,
) -> IndexedShard:
    """Index one shard."""
    try:
        if not force and (index := _fitting(url, into, (grouping, text), access)) is not None:
            return _summary(url, index, len(dumps(index)), fresh=True)
        found = scan_shard(url, access, grouping, text)
    except DataError as error:
        return IndexedShard(url, PackedKeys.of(url, [], []), problems=(error,), indexed=False)
    data = dumps(found.index)
    write_sidecar(sidecar_path(url, into), data, access)
    return _summary(url, found.index, len(data), problems=found.bad)


def _fitting(url: str, into: str | None, how: tuple[str, str], access: Access | None) -> ShardIndex | None:
    try:
        index = open_sidecar(url, access, into)
    except ListError:
        return None
    return index if (index.grouping, index.text) == how else None


def _summary(
    url: str, index: ShardIndex, size: int, problems: Sequence[DataError] = (), fresh: bool = False
) -> IndexedShard:
    return IndexedShard(
        url,
        utterances=len(index),
        frames=index.frames,
        bytes=index.shard.size,
        index_bytes=size,
        crc32=f"{index.shard.crc32:08x}",
        keys=PackedKeys.of(url, list(map(index.key, range(len(index)))), list(map(index.start, range(len(index))))),
        problems=(*index.errors, *problems),
        fresh=fresh,
        damaged=bool(index.errors),
    )


def write_sidecar(name: str, data: bytes, access: Access | None = None) -> None:
    """Write an index, completely or not at all. Raises: ListError."""
    path = is_local(name)
    try:
        if path is not None:
            with atomic_path(Path(path)) as temporary:
                temporary.write_bytes(data)
                os.chmod(temporary, 0o644)
            return
        fs, inner = filesystem(name, access or Access())
        fs.pipe_file(inner, data)  # object stores show an object only when it is complete
    except (OSError, NotImplementedError) as error:
        raise ListError(f"cannot write the index {name} ({error}): name a folder for it with --into") from error
