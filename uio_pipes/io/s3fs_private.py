"""All that we use of the inside of fsspec, s3fs and WebHDFS, in one place: names that their documentation does not
promise.

fsspec's own files read 5 MB more than they are asked for, take a datanode's error message for data, and wait for ever
for a server that has fallen silent. Names inside fsspec are used for it; ``tests/io/test_webhdfs.py`` reads by them.

``tests/io/test_s3fs_private.py`` pins each of them, and says what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fsspec

from uio_pipes.io.background import within

THREADS = 32  # connections kept to a host: every thread that reads ahead uses one
SILENCE = 30.0  # seconds without a byte
_KINDS = {
    "FileNotFoundException": FileNotFoundError,
    "AccessControlException": PermissionError,
    "SecurityException": PermissionError,
}


def webhdfs_reader(fs: Any, path: str) -> Callable[[int, int], bytes]:
    """Return a function that reads the bytes from its first argument to before its second."""
    _expect_answers(fs.session)

    def read(start: int, end: int) -> bytes:
        answer = fs._call("OPEN", path=path, offset=start, length=end - start, redirect=False)
        if "Location" in answer.headers:  # not from a gateway (HttpFS), which sends the bytes itself
            answer = fs.session.get(fs._apply_proxy(answer.headers["Location"]))
        _check(answer)
        return bytes(answer.content)

    return read


def _check(answer: Any) -> None:
    """Raises: OSError that says what is wrong, if the answer is an error."""
    if answer.status_code == 200:
        return
    try:
        error = answer.json()["RemoteException"]
        kind, message = str(error["exception"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        answer.raise_for_status()
        raise OSError(f"the datanode answers with status {answer.status_code}") from None
    raise _KINDS.get(kind, OSError)(f"{kind}: {message}")


def _expect_answers(session: Any) -> None:
    """Have all requests of a session fail if the server falls silent."""
    from requests.adapters import HTTPAdapter

    class Impatient(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> Any:
            return super().send(*args, **{**options, "timeout": options.get("timeout") or SILENCE})

    if type(session.get_adapter("http://")) is HTTPAdapter:
        for scheme in ("http://", "https://"):
            session.mount(scheme, Impatient(pool_connections=THREADS, pool_maxsize=THREADS))


__all__ = ["file_info", "get_object", "needs_s3fs", "range_reader"]


def file_info(fs: Any, path: str, timeout: float) -> dict[str, Any]:
    """Return fsspec's entry for a file: ``size``, ``ETag`` and the like. Raises: TimeoutError or FSTimeoutError."""
    if fs.async_impl:
        return dict(fsspec.asyn.sync(fs.loop, fs._info, path, timeout=timeout))
    return dict(within(timeout, lambda: fs.info(path)))


def range_reader(fs: Any, path: str, timeout: float) -> Callable[[int, int], bytes]:
    """Return a function that reads the bytes from its first argument to before its second, as ``file_info`` does."""
    if fs.async_impl:
        sync = fsspec.asyn.sync
        return lambda start, end: sync(fs.loop, fs._cat_file, path, start=start, end=end, timeout=timeout)
    if "webhdfs" in fs.protocol:
        return webhdfs_reader(fs, path)
    exactly = {"cache_type": "none"} if fs.protocol == "hf" else {}  # else 5 MB beyond each range come along
    return lambda start, end: within(timeout, lambda: fs.cat_file(path, start=start, end=end, **exactly))


def needs_s3fs(fs: Any, path: str) -> bool:
    """Return whether a request is more than a signed URL can say: headers, a version, and the like."""
    own = set(fs.client_kwargs) - {"endpoint_url", "region_name"} or fs.req_kw or fs.s3_additional_kwargs
    return bool(own or "proxies" in fs.config_kwargs or fs.version_aware or fs.split_path(path)[2])


async def get_object(fs: Any, path: str, first: int, last: int) -> dict[str, Any]:
    """Return S3's answer to a request for the bytes ``first`` to ``last`` (included) of an object."""
    bucket, key, version = fs.split_path(path)
    wanted = {"VersionId": version} if version else {}
    answer: dict[str, Any] = await fs._call_s3(
        "get_object", Bucket=bucket, Key=key, Range=f"bytes={first}-{last}", **wanted
    )
    return answer
