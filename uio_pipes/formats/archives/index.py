"""The member index of an archive, in a small file beside it: names and places of the members, their CRC32, and for a
compressed archive the points from which it can be read. ``uio index --members`` writes it.

It is framed like the index of a shard (:mod:`uio_pipes.formats.tar.index`). After the frame come the windows of the
points, 32 KiB each, which are read when they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import beside, redact
from uio_pipes.formats.tar.index import IndexColumn, ShardStamp, frame_size, framed, smallest, unframed
from uio_pipes.io.access import Access
from uio_pipes.io.compression import FRAME, WINDOW, SeekableFile, SeekPoints, detect
from uio_pipes.io.local import RandomFile, Ref
from uio_pipes.io.opening import identity, is_local, open_file

SUFFIX = ".uiomem"
MAGIC, VERSION = b"UIOMEMBR", 1
PER_MEMBER = ("ends", "offset", "size", "crc")
PER_POINT = ("compressed", "content", "bits", "window_crc")
FARTHEST = 1 << 26  # bytes of content between two points: an archive with more cannot be read at random


class MemberPlace(NamedTuple):
    """A member: its name, and where its bytes are in the content of the archive.

    ``crc``: their CRC32, if it is known; ``packed``: how many bytes they take in a zip that deflates them, else -1.
    """

    name: str
    offset: int
    size: int
    crc: int | None = None
    packed: int = -1


@dataclass
class MemberIndex:
    """``names``: of all members, joined; ``columns``: numbers of each member and of each point; ``content``: bytes of
    the uncompressed archive; ``windows_at``: offset of the windows in the file of the index."""

    shard: ShardStamp
    names: bytes
    columns: dict[str, IndexColumn]
    content: int
    errors: list[DataError] = field(default_factory=list)
    windows_at: int = 0

    def __len__(self) -> int:
        return len(self.columns["ends"])

    def places(self) -> Iterator[MemberPlace]:
        """Yield the members in the order of the archive."""
        begin = 0
        for end, offset, size, crc in zip(*(self.columns[name].tolist() for name in PER_MEMBER), strict=True):
            yield MemberPlace(self.names[begin:end].decode("utf-8", "surrogateescape"), offset, size, crc)
            begin = end

    @property
    def size(self) -> int:
        """Bytes of the file of the index."""
        return self.windows_at + WINDOW * int(np.count_nonzero(self.columns["bits"] != FRAME))

    @property
    def seekable(self) -> bool:
        """Whether the members can be read in any order."""
        return not self.shard.compression or bool(len(self.columns["content"]))

    def opened(self, url: str, access: Access | None) -> RandomFile:
        """Return the content of the archive, to be read by position."""
        file = open_file(url, access)
        if not self.shard.compression:
            return file
        sidecar, crcs = open_file(beside(url, SUFFIX), access), self.columns["window_crc"]
        within = np.flatnonzero(self.columns["bits"] != FRAME)

        def window(number: int) -> bytes:
            crc = int(crcs[within[number]])
            return Ref(sidecar, self.windows_at + number * WINDOW, WINDOW, crc=crc).read()

        compressed, content, bits = (self.columns[name] for name in PER_POINT[:3])
        form = detect(file.read_upto(0, 512), url)
        assert form is not None
        return SeekableFile(file, form, SeekPoints(compressed, content, bits, self.content, window))


def dumps(index: MemberIndex, windows: Sequence[bytes]) -> bytes:
    """Return the bytes of an index with its windows."""
    columns = {name: smallest(index.columns[name]) for name in (*PER_MEMBER, *PER_POINT)}
    body = b"".join([index.names, *(column.tobytes() for column in columns.values())])
    header = {
        "shard": vars(index.shard),
        "content": index.content,
        "names": len(index.names),
        "columns": {name: [column.dtype.str[1:], len(column)] for name, column in columns.items()},
        "body": len(body),
        "errors": [[e.reason, e.message, e.member, e.offset] for e in index.errors],
    }
    return framed(MAGIC, VERSION, header, body) + b"".join(windows)


def read_index(url: str, access: Access | None = None) -> MemberIndex | None:
    """Read the index of the archive at ``url``; None if there is none. Raises: ListError if it is damaged or stale."""
    if is_local(url) is not None and not has_index(url):
        return None
    name = beside(url, SUFFIX)
    file = open_file(name, access)
    try:
        data = file.read_upto(0, frame_size(file.read_upto(0, 1 << 16)))
        index = _loads(data, url)
    except DataError as error:
        if error.reason == "missing_file":
            return None
        raise ListError(f"cannot read the index {redact(name)}: {error.message}") from error
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise ListError(f"the index {redact(name)} is damaged, or not an index ({error}): {_remedy(url)}") from error
    size, stamp = identity(url, access)
    if index.shard.differs(size, stamp):
        was, now = f"{index.shard.size} bytes, {index.shard.stamp}", f"{size} bytes, {stamp}"
        raise ListError(f"the index of {redact(url)} is stale: it is of {was}; now there are {now}: {_remedy(url)}")
    return index


def has_index(url: str) -> bool:
    """Return whether a local archive has an index beside it, good or bad."""
    path = is_local(url)
    return path is not None and os.path.exists(path + SUFFIX)


def _remedy(url: str) -> str:
    return f"make it with uio index --members {redact(url)}"


def _loads(data: bytes, url: str) -> MemberIndex:
    header, at = unframed(data, MAGIC, VERSION)
    names, at = data[at : at + header["names"]], at + header["names"]
    columns = dict[str, IndexColumn]()
    for name in (*PER_MEMBER, *PER_POINT):
        dtype, count = header["columns"][name]
        columns[name] = np.frombuffer(data, f"<{dtype}", count, at)
        at += columns[name].nbytes
    if at != len(data):
        raise ValueError(f"it has {len(data)} bytes instead of {at}")
    errors = [DataError(reason, text, url=url, member=m, offset=o) for reason, text, m, o in header["errors"]]
    index = MemberIndex(ShardStamp(**header["shard"]), names, columns, header["content"], errors, at)
    _check(index)
    return index


def _check(index: MemberIndex) -> None:
    """Check the bounds of all columns. Raises: ValueError."""
    columns = index.columns
    ends = columns["ends"].astype(np.int64)
    if (int(ends[-1]) if len(ends) else 0) != len(index.names) or (np.diff(ends) < 0).any():
        raise ValueError("the ends of its names are out of bounds")
    lasts = columns["offset"].astype(np.int64) + columns["size"].astype(np.int64)
    if len(lasts) and int(lasts.max()) > index.content:
        raise ValueError("a member ends after the archive")
    for name, most in (("compressed", index.shard.size), ("content", index.content)):
        points = columns[name].astype(np.int64)
        if len(points) and (points[-1] > most or (np.diff(points) <= 0).any()):
            raise ValueError("its points are out of bounds")
