"""Everything that we use of the internals of fsspec and s3fs, which their documentation does not promise.

``tests/io/test_s3fs_private.py`` pins each of them, and says what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fsspec

from uio_pipes.io.background import within

__all__ = ["file_info", "needs_s3fs", "range_reader"]


def file_info(fs: Any, path: str, timeout: float) -> dict[str, Any]:
    """Return fsspec's entry for a file: ``size``, ``ETag`` and the like. Raises: TimeoutError or FSTimeoutError."""
    if fs.async_impl:
        asked = {"refresh": True} if "s3" in fs.protocol else {}  # not what a listing said of it before
        return dict(fsspec.asyn.sync(fs.loop, fs._info, path, timeout=timeout, **asked))
    return dict(within(timeout, lambda: fs.info(path)))


def range_reader(fs: Any, path: str, timeout: float) -> Callable[[int, int], bytes]:
    """Return a function that reads the bytes from its first argument to before its second, as ``file_info`` does."""
    if fs.async_impl:
        sync = fsspec.asyn.sync
        return lambda start, end: sync(fs.loop, fs._cat_file, path, start=start, end=end, timeout=timeout)
    exactly = {"cache_type": "none"} if fs.protocol == "hf" else {}  # else 5 MB beyond each range come along
    return lambda start, end: within(timeout, lambda: fs.cat_file(path, start=start, end=end, **exactly))


def needs_s3fs(fs: Any, path: str) -> bool:
    """Return whether a request is more than a signed URL can say: headers, a version, and the like."""
    own = set(fs.client_kwargs) - {"endpoint_url", "region_name"} or fs.req_kw or fs.s3_additional_kwargs
    return bool(own or "proxies" in fs.config_kwargs or fs.version_aware or fs.split_path(path)[2])
