"""Indexes of the members of archives: names, places, and the points from which a compressed archive can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.processes import as_done
from uio_pipes.base.urls import beside, counted, redact
from uio_pipes.formats.archives.archive import is_archive, is_zip
from uio_pipes.formats.archives.index import SUFFIX, MemberIndex, dumps, read_index
from uio_pipes.formats.archives.scanning import scan_members
from uio_pipes.formats.lists.table import expand
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.tools.data.index import write_sidecar


class IndexedArchive(NamedTuple):
    """The result for one archive. ``fresh``: it had an index that fits; ``size``: bytes of the index."""

    url: str
    members: int = 0
    size: int = 0
    fresh: bool = False
    archive: int = 0  # bytes
    problems: tuple[DataError, ...] = ()


@dataclass
class IndexedMembers:
    """The result of indexing archives."""

    archives: int = 0
    members: int = 0
    fresh: int = 0
    bytes: int = 0
    index_bytes: int = 0
    problems: list[DataError] = field(default_factory=list, repr=False)

    def add(self, one: IndexedArchive) -> None:
        self.archives += 1
        self.members += one.members
        self.fresh += one.fresh
        self.bytes += one.archive
        self.index_bytes += one.size
        self.problems += one.problems

    def __str__(self) -> str:
        share = self.index_bytes / self.bytes if self.bytes else 0.0
        text = f"{counted(self.members, 'member')} in {counted(self.archives, 'archive')} ({self.fresh} indexed before)"
        text += f", indexes of {self.index_bytes / 1e6:.2f} MB ({share:.2%} of the data)"
        return text + (f", {counted(len(self.problems), 'problem')}" if self.problems else "")

    def as_dict(self) -> dict[str, Any]:
        problems = [{"reason": e.reason, "url": e.url, "member": e.member, "message": e.message} for e in self.problems]
        return {**vars(self), "problems": problems}


def index_members(url: str, access: Access | None = None, force: bool = False) -> IndexedArchive:
    """Index one archive, unless its index fits. A zip needs none. Raises: ListError if the index cannot be written, or
    a package is missing."""
    if is_zip(url):
        return IndexedArchive(url, fresh=True)
    if not force and (known := _fitting(url, access)) is not None:
        return IndexedArchive(url, len(known), known.size, True, known.shard.size, tuple(known.errors))
    try:
        index, windows = scan_members(url, access)
    except DataError as error:
        return IndexedArchive(url, problems=(error,))
    data = dumps(index, windows)
    write_sidecar(beside(url, SUFFIX), data, access)
    problems = [*index.errors]
    if not index.seekable:
        why = "it is damaged" if problems else f"{index.shard.compression} in one piece has no points to begin at"
        message = f"the archive can still only be read in its order: {why}"
        problems.append(DataError("compressed_tar", message, url=redact(url)))
    return IndexedArchive(url, len(index), len(data), False, index.shard.size, tuple(problems))


def _fitting(url: str, access: Access | None) -> MemberIndex | None:
    try:
        return read_index(url, access)
    except (ListError, DataError):
        return None


def index_archives(
    paths: Sequence[str],
    *,
    jobs: int = 1,
    access: Access | None = None,
    force: bool = False,
    follow: Callable[[Iterable[IndexedArchive], str, int], Iterator[IndexedArchive]] = lambda items, *_: iter(items),
) -> IndexedMembers:
    """Index the members of archives: paths, globs, URLs.

    Raises: ListError if one is no archive, or an index cannot be written.
    """
    urls = [url for path in paths for url in expand(path, access or PLAIN)]
    for url in urls:
        if not is_archive(url):
            raise ListError(f"{redact(url)} is no archive by its name (.tar, .tar.gz, .zip, …): name archives")
    tasks = ((url, (url, access, force)) for url in urls)
    done = as_done(index_members, tasks, min(jobs, len(urls)), ["uio_pipes.formats.archives.scanning"])
    report = IndexedMembers()
    for one in follow((result for _, result in done), "indexing", len(urls)):
        report.add(one)
    return report
