"""Opening paths and URLs, local, remote or cached, to be read in order or by position. Also early reads of references
into remote files, where neighbours share a request, and the identity of files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, cast
from zlib import crc32

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import folder_of, inside
from uio_pipes.io.access import Access
from uio_pipes.io.background import Job, submit
from uio_pipes.io.cache import FileCache
from uio_pipes.io.local import LocalFile, open_regular, os_failure
from uio_pipes.io.opened_ahead import LocalPath, read_ahead, settled
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead
from uio_pipes.io.references import RandomFile, Ref

SMALL = 64 << 20  # files up to here are cached whole when any part of them is read


def is_local(url: str) -> str | None:
    """Return the path if ``url`` is a plain path or a ``file://`` URL, otherwise None."""
    if url.startswith("file://"):
        return url.removeprefix("file://")
    return None if "://" in url else url


def beside(path: str, listed: str) -> str:
    """Return the place of the file ``path`` that the list ``listed`` names.

    A relative path starts at the list's folder or, if there is no such file, at the working directory, or else above
    the list's folder: ``/any/data/shards.list`` may name ``/any/data/shards/0.tar`` as ``data/shards/0.tar``. If there
    is no such file anywhere, the path is returned as it is; of a list at a URL, the URL beside it.
    """
    return str(settled(_sought(path, listed)))


def _sought(path: str, listed: str) -> LocalPath:
    if not path or path[0] in "/~{" or "://" in path or not listed:
        return LocalPath(path)
    folder = is_local(folder_of(listed))
    if folder is None:
        return LocalPath(path if os.path.exists(path) else inside(folder_of(listed), path))
    above = os.path.abspath(folder).split("/")
    named = [at for at, name in enumerate(above) if name == path.partition("/")[0]]
    upward = [os.path.join("/", *above[:at], path) for at in reversed(named)]
    return LocalPath(os.path.join(folder, path), [*[path] * bool(folder), *upward], path)


def open_file(url: str, access: Access | None = None) -> RandomFile:
    """Return the file at a path or URL, to be read by position. Nothing is opened yet."""
    path = is_local(url)
    if path is not None:
        return LocalFile(path)
    remote = RemoteFile(url, access)
    return CachedFile(remote) if remote.access.cache else remote


class CachedFile:
    """A remote file, read from its copy in the cache as long as that exists."""

    def __init__(self, remote: RemoteFile) -> None:
        self.remote, self.path = remote, remote.path
        self._local: LocalFile | None = None
        self._tried = False

    @property
    def cache(self) -> FileCache:
        return FileCache(self.remote.access.cache or "", self.remote.access.cache_size)

    @property
    def size(self) -> int:
        return self.remote.size

    @property
    def stamp(self) -> str:
        """The stamp of the remote file, since a state must not depend on the cache."""
        return self.remote.stamp

    def is_there(self) -> bool:
        """Return whether the cache has a copy of the current version on the server."""
        if self._local is None:
            found = self.cache.find(self.path, self.remote.identity)
            self._local = LocalFile(found) if found is not None else None
        return self._local is not None

    @property
    def far(self) -> bool:
        """Whether no copy has been found, so that it is worth while to read ahead."""
        return self._local is None

    def read(self, offset: int, size: int) -> bytes:
        return self._by(lambda file: file.read(offset, size))

    def read_upto(self, offset: int, size: int) -> bytes:
        return self._by(lambda file: file.read_upto(offset, size))

    def _by(self, read: Callable[[RandomFile], bytes]) -> bytes:
        if not self._tried:
            self._tried = True
            if not self.is_there() and self.size <= SMALL:
                self._fetch()
        if self._local is not None:
            try:
                return read(self._local)
            except DataError:
                self._local = None  # the copy was removed to make room
        return read(self.remote)

    def _fetch(self) -> None:
        if (filling := self.cache.begin(self.path, self.remote.identity)) is None:
            return
        try:
            filling.write(0, self.remote.fetch(0, self.size))
        finally:
            filling.discard()
        self.is_there()


def open_binary(url: str, access: Access | None = None) -> BinaryIO:
    """Open a file to be read from beginning to end; a remote file is read ahead.

    Raises ``DataError``: ``missing_file``, ``unreadable_file`` or ``unopenable`` (protocol unknown or not installed).
    """
    path = is_local(url)
    if path is not None:
        return open_regular(path, url)
    source = open_ahead(url, access)
    source.read_upto(0, 1)  # so that a file that cannot be read fails here
    return file_object(source)


def file_object(source: ReadAhead | RandomFile) -> BinaryIO:
    """Return a file object that reads from ``source``."""
    return cast(BinaryIO, io.BufferedReader(_Forward(source), 1 << 16))


def stamp(url: str, access: Access | None = None) -> str:
    """Return the text by which a saved state recognizes a file: ``etag:…``, else ``size:N``, or ``""`` if unknown.

    Raises ``DataError`` as ``open_binary``.
    """
    return open_file(url, access).stamp


def identity(url: str, access: Access | None = None) -> tuple[int, str]:
    """Return size and ``mtime:ns`` of a local file, size and ``etag:…`` of a remote one. Raises: DataError."""
    if (status := _status(url)) is not None:
        return status.st_size, f"mtime:{status.st_mtime_ns}"
    file = RemoteFile(url, access)
    tag = file.identity.tag
    return file.size, tag if not tag or tag.startswith("time:") else f"etag:{tag}"


def version(url: str, access: Access | None = None) -> tuple[int, str]:
    """Return :func:`identity` with the inode of a local file and its time of change. It detects a file that was
    replaced by one of the same size and time, but differs between machines. Raises: DataError."""
    if (status := _status(url)) is None:
        return identity(url, access)
    return status.st_size, f"mtime:{status.st_mtime_ns} {status.st_ino} {status.st_ctime_ns}"


def _status(url: str) -> os.stat_result | None:
    """Return what the system says of a local file; None for a remote one. Raises: DataError."""
    path = is_local(url)
    try:
        return None if path is None else os.stat(path)
    except OSError as error:
        raise os_failure(error, url) from error


def known_size(opened: Opened) -> int | None:
    """Return the size of a file in bytes, None if it is not known."""
    try:
        if isinstance(opened, LocalFile):
            return opened.size
        return (opened.file if isinstance(opened, ReadAhead) else opened.remote).identity.size
    except DataError:
        return None


Opened = ReadAhead | CachedFile | LocalFile


def open_ahead(url: str, access: Access | None = None, offset: int = 0) -> Opened:
    """Open a file to be read on from ``offset``. A remote one is read ahead, which begins at once, or from its cached
    copy; a local one is opened when it is read."""
    if (path := is_local(url)) is not None:
        return LocalFile(path)
    remote = RemoteFile(url, access)
    if remote.access.cache is None:
        return ReadAhead(remote, offset)
    cached = CachedFile(remote)
    if cached.is_there():
        return cached
    return ReadAhead(remote, offset, cached.cache.begin(url, remote.identity) if offset == 0 else None)


class _Forward(io.RawIOBase):
    """The raw file object of ``file_object``."""

    def __init__(self, source: ReadAhead | RandomFile) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read_upto(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if isinstance(self._source, ReadAhead):
            self._source.close()
        super().close()


GAP = 64 << 10  # bytes between two neighbours that are read along
MOST = 4 << 20  # bytes of one request for several references; of longer audio only a segment may be wanted
HEAD = 256 << 10  # first request for a file of unknown size: holds most files whole


class PrefetchedRef(Ref):
    """A reference that knows what to fetch early. ``far``: whether it is to a remote file."""

    __slots__ = ()

    @property
    def far(self) -> bool:
        return True

    def fetch_early(self) -> int:
        """Begin to fetch, and return the number of bytes that this takes at most."""
        raise NotImplementedError


class RemoteFileRef(PrefetchedRef):
    """A whole remote file of unknown size. Its first 256 KB, mostly all of it, are read once and kept."""

    __slots__ = ("_begun", "_job")

    def __init__(self, file: RandomFile) -> None:
        self.file, self.offset = file, 0
        self.head, self.info, self.crc = b"", None, None
        self._begun: bytes | None = None
        self._job: Job[bytes] | None = None

    def fetch_early(self) -> int:
        if self._job is None and self._begun is None:
            self._job = submit(lambda _: self.file.read_upto(0, HEAD))
        return HEAD

    @property
    def size(self) -> int:  # type: ignore[override]
        begun = self._first()
        return len(begun) if len(begun) < HEAD else self.file.size

    @property
    def nbytes(self) -> int:
        return len(self._begun or b"")

    def read(self) -> bytes:
        begun = self._first()
        return begun + self.file.read(len(begun), self.size - len(begun)) if self.size > len(begun) else begun

    def read_at(self, start: int, size: int) -> bytes:
        size = max(0, min(size, self.size - start))
        begun = self._first()
        return begun[start : start + size] if start + size <= len(begun) else self.file.read(start, size)

    def _first(self) -> bytes:
        if self._begun is None:
            self._begun = self._job.result() if self._job is not None else self.file.read_upto(0, HEAD)
            self._job = None
        return self._begun


def reference(url: str, access: Access | None = None, listed: str = "") -> LocalPath | RemoteFileRef:
    """Return a local path (also for ``file://``), or a reference to a remote file. Nothing is opened. ``listed``: the
    list that names it; a local path is that of :func:`beside` once it is ``settled``."""
    found = _sought(url, listed)
    path = is_local(found)
    return RemoteFileRef(open_file(found, access)) if path is None else found if found.others else LocalPath(path)


class Coming(Ref):
    """A reference whose bytes are being fetched: they begin at ``first`` in the result of ``job``."""

    __slots__ = ("_first", "_job")

    def __init__(self, ref: Ref, job: Job[bytes], first: int) -> None:
        super().__init__(ref.file, ref.offset, ref.size, ref.head, ref.info, ref.crc)
        self._job, self._first = job, first

    @property
    def nbytes(self) -> int:
        return self.size

    def read(self) -> bytes:
        data = self._bytes()
        right = self.crc is None or crc32(data) == self.crc
        return data if right else super().read()  # which raises the error, or gets the right bytes this time

    def read_at(self, start: int, size: int) -> bytes:
        if start + size <= len(self.head):
            return self.head[start : start + size]
        return self._bytes()[start : start + max(0, size)]

    def _bytes(self) -> bytes:
        return self._job.result()[self._first : self._first + self.size]


def is_far(value: object) -> bool:
    """Return whether it is a reference into a remote file."""
    if isinstance(value, PrefetchedRef):
        return value.far
    if not isinstance(value, Ref) or hasattr(value, "local_paths"):  # nobody has looked yet where that is
        return False
    return isinstance(of := value.file, RemoteFile) or (isinstance(of, CachedFile) and of.far)


def fetch_early(samples: Iterable[dict[str, Any]], needed: bool = False) -> int:
    """Start fetching what the fields refer to in remote files, and return the number of bytes that this takes at most;
    and reading local files of a slow disk, which have a bound of their own, unless they are ``needed`` at once."""
    found: list[_Entry] = []
    fetched = sum(_look(fields, fields.items(), found) for fields in samples)
    read_ahead([path for _, _, path in found if isinstance(path, LocalPath) and path.wanted(needed)], needed)
    for group in _merged([entry for entry in found if isinstance(entry[2], Ref)]):
        begin = group[0][2].offset
        end = max(ref.offset + ref.size for _, _, ref in group)
        job = submit(_reading(group[0][2].file, begin, end - begin))
        fetched += end - begin
        for place, name, ref in group:
            place[name] = ref.reading(Coming(ref, job, ref.offset - begin))
    return fetched


def _look(place: Any, values: Iterable[tuple[Any, Any]], found: list[_Entry]) -> int:
    """Start what knows by itself how, and return the bytes that it takes; add other far references, and the paths of
    local files, to ``found``."""
    fetched = 0
    for name, value in values:
        if isinstance(value, Ref | LocalPath):
            found += [(place, name, path) for path in getattr(value, "local_paths", ())]
        if isinstance(value, Ref):
            if isinstance(value, PrefetchedRef):
                fetched += value.fetch_early()
            elif is_far(value) and value.early and not isinstance(value, Coming) and _is_small(value):
                found.append((place, name, value))
        elif type(value) is list and value and isinstance(value[0], Ref | LocalPath):
            place[name] = several = list(value)  # which this sample has for its own
            fetched += _look(several, enumerate(value), found)
    return fetched


def _is_small(ref: Ref) -> bool:
    try:
        return ref.size <= MOST
    except DataError:  # its place is not known: it fails again when it is read
        return False


_Entry = tuple[Any, Any, Any]  # what holds the reference or path, its name or number there, itself


def _reading(file: RandomFile, offset: int, size: int) -> Callable[[object], bytes]:
    return lambda _: file.read(offset, size)


def _merged(found: list[_Entry]) -> list[list[_Entry]]:
    """Group neighbours in a file."""
    groups: list[list[_Entry]] = []
    last: tuple[str, int, int] = ("", 0, 0)  # file, first and last byte of the group under way
    for entry in sorted(found, key=lambda entry: (entry[2].file.path, entry[2].offset)):
        ref = entry[2]
        url, begin, end = last
        near = ref.file.path == url and ref.offset - end <= GAP and ref.offset + ref.size - begin <= MOST
        if near:
            groups[-1].append(entry)
        else:
            groups.append([entry])
            begin = ref.offset
        last = (ref.file.path, begin, max(end if near else 0, ref.offset + ref.size))
    return groups
