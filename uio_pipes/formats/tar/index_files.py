"""The paths of shards' indexes, and the check that an index still fits its shard."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.redact import redact
from uio_pipes.base.urls import beside, path_of
from uio_pipes.formats.tar.index import ShardIndex, loads
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_binary
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.regular import os_failure
from uio_pipes.io.remote import is_local

SUFFIX = ".uioidx"
AT_ONCE = 32  # remote indexes that are fetched at the same time


def sidecar_path(url: str, folder: str | None = None) -> str:
    """Return the path of a shard's index: beside the shard, or under ``folder`` by the shard's whole path."""
    if folder is None:
        return beside(url, SUFFIX)
    inner = path_of(url).partition("://")[2] or url
    relative = posixpath.normpath("/" + inner).lstrip("/")  # never above the folder
    return posixpath.join(folder, relative) + SUFFIX


def identity(url: str, access: Access | None = None) -> tuple[int, str]:
    """Return size and ``mtime:ns`` of a local shard, size and ``etag:…`` of a remote one. Raises: DataError."""
    if (path := is_local(url)) is not None:
        try:
            status = os.stat(path)
        except OSError as error:
            raise os_failure(error, url) from error
        return status.st_size, f"mtime:{status.st_mtime_ns}"
    file = RemoteFile(url, access)
    tag = file.identity.tag
    return file.size, tag if not tag or tag.startswith("time:") else f"etag:{tag}"


def has_sidecar(url: str, access: Access | None = None, folder: str | None = None) -> bool:
    """Return whether the shard at ``url`` has an index, good or bad."""
    name = sidecar_path(url, folder)
    if (path := is_local(name)) is not None:
        return os.path.exists(path)
    try:
        open_binary(name, access).close()
    except DataError as error:
        return error.reason != "missing_file"
    return True


def _remedy(url: str, folder: str | None) -> str:
    return f"make it with uio index {redact(url)}" + (f" --into {folder}" if folder else "")


def read_sidecar(url: str, access: Access | None = None, folder: str | None = None) -> ShardIndex:
    """Read the index of the shard at ``url``. Raises: ListError if there is none, or it is damaged."""
    name, shown = sidecar_path(url, folder), redact(url)
    try:
        with open_binary(name, access) as file:
            data = file.read()
    except DataError as error:
        if error.reason == "missing_file":
            raise ListError(f"the shard {shown} has no index ({redact(name)}): {_remedy(url, folder)}") from error
        raise ListError(f"cannot read the index {redact(name)}: {error.message}") from error
    return loads(data, redact(name), url)


def open_sidecar(url: str, access: Access | None = None, folder: str | None = None) -> ShardIndex:
    """As :func:`read_sidecar`, for the shard as it is now. Raises: ListError also if the index is stale."""
    index = read_sidecar(url, access, folder)
    check_fresh(index, url, access, folder)
    return index


def check_fresh(index: ShardIndex, url: str, access: Access | None = None, folder: str | None = None) -> None:
    """Compare size and stamp of the shard with those of its index. Raises: ListError if they differ."""
    shown = redact(url)
    try:
        size, stamp = identity(url, access)
    except DataError as error:
        raise ListError(f"cannot read the shard {shown}, which is indexed: {error.message}") from error
    if index.shard.differs(size, stamp):
        was = f"{index.shard.size} bytes, {index.shard.stamp or 'no time'}"
        raise ListError(
            f"the index of {shown} is stale: it is of {was}; the shard is now of {size} bytes, {stamp or 'no time'}: "
            f"{_remedy(url, folder)}"
        )


@dataclass(frozen=True)
class Indexed:
    """A shard with its index."""

    url: str
    index: ShardIndex


def open_sidecars(urls: Sequence[str], access: Access | None = None, folder: str | None = None) -> list[Indexed]:
    """Open the indexes of all shards, in order. Raises: ListError for the first that cannot be used."""
    near = folder is not None and is_local(folder) is not None
    if all(is_local(url) is not None for url in urls) and (folder is None or near):
        return [Indexed(url, open_sidecar(url, access, folder)) for url in urls]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        indexes = pool.map(lambda url: open_sidecar(url, access, folder), urls)
        return [Indexed(url, index) for url, index in zip(urls, indexes, strict=True)]
