"""The ways to read a remote file: our own HTTP, or fsspec's file system for the protocol."""

from __future__ import annotations

import os
import time
from typing import Any, Protocol

import fsspec

from uio_pipes.base.errors import DataError
from uio_pipes.io.access import Access
from uio_pipes.io.connections import discreet
from uio_pipes.io.http import HttpObject
from uio_pipes.io.local import os_failure
from uio_pipes.io.retry import Fault, Identity, check_same, is_absent
from uio_pipes.io.s3fs_private import file_info, needs_s3fs, range_reader

SIGNED = 7200  # seconds for which a signed URL is valid
DEADLINE = 60.0  # seconds for one request, whatever the file system itself tries again
_PACKAGES = {
    "s3": "'uio_pipes[s3]'",
    "s3a": "'uio_pipes[s3]'",
    "oss": "'uio_pipes[oss]'",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "hdfs": "pyarrow",
}


class Stream(Protocol):
    """The bytes of a file from its beginning on."""

    at: int

    @property
    def identity(self) -> Identity: ...
    def fill(self, view: memoryview) -> int: ...
    def pass_over(self, offset: int) -> None: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """A way to read one remote file. Every method raises ``Fault`` for a failure that may pass, else ``DataError``."""

    def identity(self) -> Identity: ...
    def fill(self, view: memoryview, offset: int, known: Identity | None) -> tuple[int, Identity]: ...
    def tail(self, size: int) -> tuple[bytes, Identity] | None:
        """Return the last bytes with a single request, None where that is impossible; it does not raise."""

    def stream(self) -> Stream: ...


def transport(url: str, access: Access) -> Transport:
    """Return the way to read a remote file. Nothing is opened yet."""
    options = access.options(url)
    protocol = url.partition("://")[0]
    if protocol in ("http", "https") and set(options) <= {"headers"} and not fsspec.config.conf.get(protocol):
        return HttpObject(url, options.get("headers", {}))
    return S3Object(url, access) if protocol in ("s3", "s3a") else FsObject(url, access)


def filesystem(url: str, access: Access) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it. Raises: DataError ``unopenable``."""
    if "webhdfs://" in url:  # fsspec's reader of it hands a datanode's error page on as data
        raise DataError("unopenable", "webhdfs:// is not supported: use hdfs://, a mount, or a copy on S3", url=url)
    try:
        fs, path = fsspec.core.url_to_fs(url, **discreet(url, access.options(url)))
    except Exception as error:
        raise failure(error, url, access) from None
    return fs, path


class FsObject:
    """A file read by ranges through fsspec."""

    def __init__(self, url: str, access: Access) -> None:
        self.url, self._access = url, access
        self._opened: tuple[int, Any, str, Any] | None = None  # process, file system, path, function that reads a range

    def identity(self) -> Identity:
        fs, path, _ = self._open()
        try:
            info = file_info(fs, path, DEADLINE)
        except Exception as error:
            raise self._fault(error) from None
        changed = (info.get(name) for name in ("LastModified", "mtime", "modificationTime"))
        tag = info.get("ETag") or info.get("etag") or f"time:{next(filter(None, changed), '')}"
        size = info.get("size")
        return Identity(None if size is None else int(size), str(tag))

    def fill(self, view: memoryview, offset: int, known: Identity | None) -> tuple[int, Identity]:
        identity = known or self.identity()
        if identity.size is not None:
            view = view[: max(0, identity.size - offset)]
        if not len(view):
            return 0, identity
        _, _, read = self._open()
        try:
            data = read(offset, offset + len(view))
        except Exception as error:
            if identity.size is None and getattr(error, "status", 0) == 416:
                return 0, identity  # the end
            raise self._fault(error) from None
        if len(data) > len(view) and len(data) != identity.size:
            raise Fault(f"{len(data)} bytes came instead of {len(view)}")
        if len(data) > len(view):
            data = data[offset : offset + len(view)]  # the whole file, from a server without ranges
        view[: len(data)] = data
        return len(data), identity

    def tail(self, size: int) -> tuple[bytes, Identity] | None:
        return None

    def stream(self) -> Stream:
        raise AssertionError("fsspec's file systems read by ranges")

    def _open(self) -> tuple[Any, str, Any]:
        """Open the file system once in each process, since it keeps connections and threads."""
        if self._opened is None or self._opened[0] != os.getpid():
            fs, path = filesystem(self.url, self._access)
            try:
                self._opened = (os.getpid(), fs, path, range_reader(fs, path, DEADLINE))
            except Exception as error:
                raise self._fault(error) from None
        return self._opened[1:]

    def _fault(self, error: Exception) -> Exception:
        for known in (error, error.__cause__):
            if isinstance(known, Fault):
                return known
        found = failure(error, self.url, self._access)
        if found.reason != "unreadable_file" or isinstance(error, PermissionError) or _is_final(error):
            return found
        return Fault(self._access.redact(f"{type(error).__name__}: {error}"), absent=is_absent(error))


class S3Object(FsObject):
    """A file on S3, read by URLs that s3fs signs, at half the cost, or by s3fs itself where these do not suffice."""

    def __init__(self, url: str, access: Access) -> None:
        super().__init__(url, access)
        self._signed: tuple[float, HttpObject] | None = None
        self._by_s3fs = False

    def identity(self) -> Identity:
        if (signed := self._sign()) is not None:
            try:
                return signed.identity()
            except DataError:
                self._by_s3fs = True  # s3fs may succeed, or say better what is wrong
        return super().identity()

    def fill(self, view: memoryview, offset: int, known: Identity | None) -> tuple[int, Identity]:
        if (signed := self._sign()) is not None:
            try:
                return signed.fill(view, offset, known)
            except DataError:
                self._by_s3fs = True
        got, _ = super().fill(view, offset, known)
        identity = self.identity()  # the bytes come without it
        check_same(known, identity)
        return got, identity

    def tail(self, size: int) -> tuple[bytes, Identity] | None:
        try:
            signed = self._sign()
        except (Fault, DataError):
            return None  # reading tries again, and says what is wrong
        return None if signed is None else signed.tail(size)

    def _sign(self) -> HttpObject | None:
        if self._by_s3fs:
            return None
        if self._signed is None or time.monotonic() > self._signed[0] + SIGNED // 2:
            fs, path, _ = self._open()
            if needs_s3fs(fs, path):
                self._by_s3fs = True
                return None
            try:
                url = fs.sign(path, expiration=SIGNED)
            except Exception as error:
                raise self._fault(error) from None
            if url.startswith("https:") and "AWS_CA_BUNDLE" in os.environ:
                self._by_s3fs = True  # only botocore knows these certificates
                return None
            self._signed = (time.monotonic(), HttpObject(url, {}))
        return self._signed[1]


def _is_final(error: Exception) -> bool:
    """Return whether it makes no sense to ask again."""
    status, name = getattr(error, "status", 0) or 0, type(error).__name__
    status = status or getattr(getattr(error, "response", None), "status_code", 0)
    return (
        "Credentials" in name
        or name == "ParamValidationError"
        or (400 <= status < 500 and status not in (408, 425, 429))
    )


def failure(error: Exception, url: str, access: Access) -> DataError:
    """Return the ``DataError`` for an error of fsspec's, without credentials."""
    if isinstance(error, DataError):
        return error
    error = _http_cause(error) if url.startswith(("http://", "https://")) else error
    if isinstance(error, DataError):
        return error
    text = access.redact(str(error) or repr(error))
    if isinstance(error, ImportError):
        package = _PACKAGES.get(url.partition("://")[0].rpartition("::")[2])
        remedy = f": pip install {package}" if package else ""
        return DataError("unopenable", f"a package for this protocol is not installed ({text}){remedy}", url=url)
    if isinstance(error, ValueError | TypeError):
        return DataError("unopenable", f"{text}: correct the URL, or install the fsspec package for it", url=url)
    if isinstance(error, OSError):
        return os_failure(type(error)(text) if isinstance(error, _NAMED) else OSError(text), url)
    message = f"{type(error).__name__}: {text}: check the URL, the connection and the credentials"
    return DataError("unreadable_file", message, url=url)


_NAMED = (FileNotFoundError, NotADirectoryError, PermissionError)


def _http_cause(error: Exception) -> Exception:
    """Return the cause of an error: fsspec's http says "not found" of refused connections and of status 500, too."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
    status = getattr(cause, "status", None)
    if status in (401, 403):
        return PermissionError(f"status {status}")
    return cause if isinstance(cause, Exception) and status not in (404, 410) else error
