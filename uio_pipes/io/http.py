"""HTTP by ranges, over connections that are kept: what reads in large blocks with little work for the processor."""

from __future__ import annotations

import base64
import http.client
import io
import os
import ssl
import threading
import time
from collections.abc import Mapping
from typing import cast
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from uio_pipes.errors import DataError
from uio_pipes.io.identity import Identity, check_same
from uio_pipes.io.local import os_failure
from uio_pipes.io.retry import Fault, is_absent, retry_after

__all__ = ["HttpObject"]

STALL = 30.0  # seconds without a byte
SLOWEST = 10_000  # bytes a second: less is a stall, too
PIECE = 1 << 16
BUFFERED = io.DEFAULT_BUFFER_SIZE
REDIRECTS = 5
_GONE = frozenset({404, 410})
_REFUSED = frozenset({401, 403, 407})
_PASSING = frozenset({408, 425, 429})
_SAFE = "%/:=&?~#+!$,;'@()*[]"
_NETWORK = (OSError, http.client.HTTPException)


class HttpObject:
    """One file on an HTTP server. Safe to use from threads and after a fork."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "uio_pipes", **headers}
        self._moved: str | None = None  # where a redirect led

    def identity(self) -> Identity:
        """Raises: Fault, DataError."""
        with _Response(self, 0, 1) as response:
            if response.identity.ranges:
                response.fill(memoryview(bytearray(1)))
            return response.identity

    def fill(self, view: memoryview, offset: int, known: Identity | None) -> tuple[int, Identity]:
        """Bytes from ``offset`` on into ``view``; how many there were, and of which file. Raises: Fault, DataError."""
        with _Response(self, offset, len(view)) as response:
            check_same(known, response.identity)
            if response.starts < offset:
                response.pass_over(offset)
            return response.fill(view), response.identity

    def stream(self) -> _Response:
        """From the beginning: for servers without ranges. Raises: Fault, DataError."""
        return _Response(self, 0, None)

    def ask(self, offset: int, size: int | None) -> tuple[http.client.HTTPConnection, _Answer]:
        """Send a request, and follow where it leads."""
        url = self._moved or self.url
        for _ in range(REDIRECTS):
            connection, response = self._once(url, offset, size)
            if response.status not in (301, 302, 303, 307, 308):
                if url == self.url or response.status not in _GONE | _REFUSED:
                    return connection, response
                if self._moved is None:
                    return connection, response
                self._moved, to = None, self.url  # what it led to has expired: ask again
            else:
                self._moved = to = urljoin(url, response.headers.get("Location", ""))
            connection.close()
            url = to
        raise DataError("unreadable_file", f"more than {REDIRECTS} redirects: correct the URL", url=self.url)

    def _once(self, url: str, offset: int, size: int | None) -> tuple[http.client.HTTPConnection, _Answer]:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise DataError("unopenable", f"a redirect leads to {parts.scheme}://: correct the URL", url=self.url)
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        headers = self._allowed(parts)
        if size is not None:
            headers["Range"] = f"bytes={offset}-{offset + size - 1}"
        while True:
            connection, kept = _connection(parts)
            try:
                connection.request("GET", target, headers=headers)
                return connection, cast(_Answer, connection.getresponse())
            except _NETWORK as error:
                connection.close()
                if kept and not isinstance(error, TimeoutError):
                    continue  # the server had closed it: no failure yet
                raise fault(error) from None
            except ValueError as error:
                connection.close()
                raise DataError("unopenable", f"{error}: correct the URL", url=self.url) from None

    def _allowed(self, parts: SplitResult) -> dict[str, str]:
        """Headers for this host: what lets in at home is told to nobody else."""
        home = urlsplit(self.url)
        headers = dict(self._headers)
        if (parts.scheme, parts.hostname, parts.port) != (home.scheme, home.hostname, home.port):
            return {name: v for name, v in headers.items() if name.lower() not in ("authorization", "cookie")}
        if home.username is not None:
            secret = f"{unquote(home.username)}:{unquote(home.password or '')}"
            headers.setdefault("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
        return headers


class _Answer(http.client.HTTPResponse):
    begun = False

    def take(self, view: memoryview) -> int:
        """What has come, without a copy: ``readinto`` would wait for more, and lose it at a fault."""
        if self.length is None:
            data = self.read1(min(PIECE, len(view)))
            view[: len(data)] = data
            return len(data)
        most = self.length if self.begun else min(self.length, BUFFERED)  # it waits after what came with the headers
        count, self.begun = self.fp.readinto1(view[:most]) if most else 0, True
        self.length -= count
        return count


class _Response:
    """An answer with bytes from ``starts`` on. Its connection is kept if the body is read to its end."""

    def __init__(self, file: HttpObject, offset: int, size: int | None) -> None:
        self._url = file.url
        self._connection, self._response = file.ask(offset, size)
        try:
            self._begin(offset, size)
        except BaseException:
            self.close()
            raise

    def _begin(self, offset: int, size: int | None) -> None:
        response, headers = self._response, self._response.headers
        ranged = response.status == 206
        if response.status not in (200, 206, 416):
            self._refused(response.status)
        place = headers.get("Content-Range", "").removeprefix("bytes ").strip()
        total = place.partition("/")[2] if response.status != 200 else headers.get("Content-Length", "")
        self.starts = self.at = int(place.partition("-")[0]) if ranged and place[:1].isdigit() else 0
        if ranged and self.starts != offset:
            raise Fault(f"the server sent bytes from {self.starts} on instead of {offset}")
        length = headers.get("Content-Length", "")
        self._ends = self.starts + int(length) if length.isdigit() else None
        if response.status == 416:
            self._ends = self.starts = self.at = offset
        tag = headers.get("ETag") or f"time:{headers.get('Last-Modified', '')}"
        ranges = size is not None and response.status != 200
        self.identity = Identity(int(total) if total.isdigit() else None, tag, ranges)

    def fill(self, view: memoryview) -> int:
        """As many bytes as fit, and there are. Raises: Fault with how many came."""
        wanted = len(view) if self._ends is None else min(len(view), self._ends - self.at)
        got, begun = 0, time.monotonic()
        try:
            while got < wanted:
                count = self._response.take(view[got:wanted])
                if not count:
                    break
                got += count
                if time.monotonic() - begun > STALL + got / SLOWEST:
                    raise Fault(f"stalled: {got} bytes in {time.monotonic() - begun:.0f} s", got)
        except _NETWORK as error:
            raise fault(error, got) from None
        if got < wanted and self._ends is not None:
            raise Fault(f"the body ended after {self.at + got - self.starts} of {self._ends - self.starts} bytes", got)
        self.at += got
        return got

    def pass_over(self, offset: int) -> None:
        """Read on to ``offset``, for servers without ranges."""
        rest = memoryview(bytearray(PIECE))
        try:
            while self.at < offset and self.fill(rest[: min(PIECE, offset - self.at)]):
                pass
        except Fault as error:
            raise Fault(error.cause) from None  # nothing of what was wanted came

    def close(self) -> None:
        if self._response.length == 0:
            self._response.close()
            _keep(self._connection)
        else:
            self._connection.close()

    def __enter__(self) -> _Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refused(self, status: int) -> None:
        cause = f"status {status} {self._response.reason}"
        if status in _PASSING or status >= 500:
            raise Fault(cause, after=retry_after(self._response.headers.get("Retry-After")))
        if status in _GONE:
            raise os_failure(FileNotFoundError(cause), self._url)
        if status in _REFUSED:
            raise os_failure(PermissionError(cause), self._url)
        raise DataError("unreadable_file", f"{cause}: correct the URL, or check the server", url=self._url)


def fault(error: Exception, got: int = 0) -> Fault:
    """What a failing connection is: it may pass, unless the server is not who it says."""
    if isinstance(error, ssl.SSLCertVerificationError):
        raise DataError("unreadable_file", f"{error}: correct the URL, or install the server's certificate")
    if isinstance(error, TimeoutError):
        return Fault(f"stalled: no byte for {STALL:.0f} s", got)
    kind = "cannot connect: " if isinstance(error, ConnectionRefusedError) else ""
    return Fault(f"{kind}{type(error).__name__}: {error}", got, absent=is_absent(error))


_idle: dict[tuple[str, str | None, int | None], list[http.client.HTTPConnection]] = {}
_lock = threading.Lock()
_context: ssl.SSLContext | None = None
KEPT = 16  # connections to a host


def _connection(parts: SplitResult) -> tuple[http.client.HTTPConnection, bool]:
    """To a host, and whether it had been used before."""
    global _context
    with _lock:
        if kept := _idle.get((parts.scheme, parts.hostname, parts.port)):
            return kept.pop(), True
        if parts.scheme == "https" and _context is None:
            _context = ssl.create_default_context()
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=STALL, context=_context)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=STALL)
    )
    connection.response_class = _Answer
    return connection, False


def _keep(connection: http.client.HTTPConnection) -> None:
    if connection.sock is None:
        return
    scheme = "https" if isinstance(connection, http.client.HTTPSConnection) else "http"
    port = None if connection.port == connection.default_port else connection.port
    with _lock:
        kept = _idle.setdefault((scheme, connection.host, port), [])
        if len(kept) < KEPT:
            kept.append(connection)
            return
    connection.close()


def _forget() -> None:
    """A forked child must not speak on its parent's connections."""
    global _idle, _lock
    _idle, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)
