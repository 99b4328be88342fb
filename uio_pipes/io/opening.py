"""Opening a path or URL: built-in open for local files, fsspec for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import fsspec

from uio_pipes.errors import DataError
from uio_pipes.io.local import LocalFile, os_failure

__all__ = ["is_local", "open_binary", "stamp"]

Options = Mapping[str, Any]


def is_local(url: str) -> str | None:
    """The path, if ``url`` is a plain path or ``file://`` URL, otherwise None."""
    if url.startswith("file://"):
        return url.removeprefix("file://")
    return None if "://" in url else url


def open_binary(url: str, storage_options: Options | None = None) -> BinaryIO:
    """A file object to be read from beginning to end.

    Raises ``DataError``: ``missing_file``, ``unreadable_file`` or ``unopenable`` (protocol unknown or not installed).
    """
    path = is_local(url)
    try:
        if path is not None:
            return open(path, "rb")
        filesystem, inner = fsspec.core.url_to_fs(url, **_options(url, storage_options))
        # One streaming request: fsspec's http blocks need ranges, which not every server has.
        extra = {"block_size": 0} if _is_http(url) else {}
        return cast(BinaryIO, filesystem.open(inner, "rb", **extra))
    except Exception as error:  # each fsspec backend raises classes of its own
        raise _failure(error, url) from error


def stamp(url: str, storage_options: Options | None = None) -> str:
    """What a saved state remembers of a file: ``etag:…``, otherwise ``size:N``, or ``""`` where neither is known.

    Raises ``DataError`` as ``open_binary``.
    """
    if (path := is_local(url)) is not None:
        return LocalFile(path).stamp
    try:
        filesystem, inner = fsspec.core.url_to_fs(url, **_options(url, storage_options))
        info = filesystem.info(inner)
    except Exception as error:
        raise _failure(error, url) from error
    if etag := info.get("ETag") or info.get("etag"):
        return f"etag:{etag}"
    return "" if info.get("size") is None else f"size:{info['size']}"


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _options(url: str, storage_options: Options | None) -> dict[str, Any]:
    options = dict(storage_options or {})
    if _is_http(url) and "client_kwargs" not in options:
        import aiohttp  # fsspec needs it for these URLs anyway

        # The default gives up after 5 minutes in all; a shard is read for as long as training takes to consume it.
        options["client_kwargs"] = {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=60)}
    return options


def _failure(error: Exception, url: str) -> DataError:
    if _is_http(url):
        error = _http_cause(error)
    if isinstance(error, ImportError):
        return DataError("unopenable", f"a package for this protocol is not installed: {error}", url=url)
    if isinstance(error, ValueError):
        return DataError("unopenable", f"{error}: correct the URL, or install the fsspec package for it", url=url)
    if isinstance(error, OSError):
        return os_failure(error, url)
    return DataError("unreadable_file", f"{error!r}: check the URL, the connection and the credentials", url=url)


def _http_cause(error: Exception) -> Exception:
    """fsspec's http says "not found" of a refused connection and of status 500 too; what it wraps knows better."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
    status = getattr(cause, "status", None)
    if status in (401, 403):
        return PermissionError(str(cause))
    return cause if isinstance(cause, Exception) and status not in (404, 410) else error
