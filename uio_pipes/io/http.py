"""HTTP range requests over kept connections: large blocks are read with little work for the processor."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import printable
from uio_pipes.io.connections import PIECE, Address, Answer, TunnelRefused, address, basic, connect, follow, keep
from uio_pipes.io.local import os_failure
from uio_pipes.io.retry import Fault, Identity, check_coding, check_same, is_absent, retry_after

REDIRECTS = 5
_OWN = {"Accept-Encoding": "identity", "User-Agent": "uio_pipes"}
_MOVED = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({404, 410})
_REFUSED = frozenset({401, 403, 407})
_PROXY_REFUSES = 407
_PASSING = frozenset({408, 425, 429})
_NETWORK = (OSError, http.client.HTTPException)
_RANGE = re.compile(r"bytes[ =]*([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.IGNORECASE)
_BEYOND = re.compile(r"bytes[ =]*\*/([0-9]{1,18})", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,18}")


class HttpObject:
    """A file on an HTTP server. Safe to use from threads and after a fork. Raises: DataError for a malformed URL."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self._home = address(url)
        given, parts = {**_OWN, **headers}, urlsplit(url)
        own = basic(parts.username, parts.password)
        if own and "authorization" not in map(str.lower, given):
            given["Authorization"] = own
        self._headers = given
        self._moved: str | None = None  # where a redirect led

    def is_home(self, to: Address) -> bool:
        """Return whether the user's headers may be sent to this server."""
        return to.origin == self._home.origin

    def identity(self) -> Identity:
        """Ask the server for size and tag. Raises: Fault, DataError."""
        with _Response(self, 0, 1) as response:
            response.check(None)
            if response.identity.ranges:
                response.fill(memoryview(bytearray(1)))
            return response.identity

    def fill(self, view: memoryview, offset: int, known: Identity | None) -> tuple[int, Identity]:
        """Read from ``offset`` into ``view``; return the number of bytes and the identity. Raises: Fault, DataError."""
        with _Response(self, offset, len(view)) as response:
            response.check(known)
            if response.starts < offset:
                response.pass_over(offset)
            return response.fill(view), response.identity

    def tail(self, size: int) -> tuple[bytes, Identity] | None:
        """Return the last ``size`` bytes, or all of a shorter file, and the identity; None if it takes another way."""
        data = bytearray(size)
        try:
            with _Response(self, -size, size) as response:
                total = response.identity.size
                if total is None or not response.identity.ranges or response.starts != max(0, total - size):
                    return None
                got = response.fill(memoryview(data))
                return (bytes(data[:got]), response.identity) if got == min(size, total) else None
        except (Fault, DataError):
            return None

    def stream(self) -> _Response:
        """Read from the beginning, for servers without ranges. Raises: Fault, DataError."""
        return _Response(self, 0, None)

    def ask(self, offset: int, size: int | None) -> tuple[Address, http.client.HTTPConnection, Answer]:
        """Send a request and follow redirects. ``offset``: of the first byte, below 0 as counted from the end."""
        url, remembered = self._moved or self.url, self._moved is not None
        for _ in range(REDIRECTS + 1):
            to = address(url)
            connection, answer = self._once(to, offset, size)
            if answer.status in _MOVED:
                connection.close()
                self._moved = url = follow(url, answer.headers.get("Location"))
            elif remembered and answer.status in _GONE | _REFUSED:
                connection.close()
                remembered, self._moved, url = False, None, self.url  # the redirect has expired: ask again
            else:
                return to, connection, answer
        self._moved = None
        raise DataError("unreadable_file", f"more than {REDIRECTS} redirects: correct the URL", url=self.url)

    def _once(self, to: Address, offset: int, size: int | None) -> tuple[http.client.HTTPConnection, Answer]:
        headers = dict(self._headers if self.is_home(to) else _OWN)
        if size is not None:
            headers["Range"] = f"bytes={offset}-{offset + size - 1}" if offset >= 0 else f"bytes={offset}"
        target = to.target
        if to.via and to.scheme == "http":
            target = to.whole
            headers.update(to.via.headers)
        while True:
            connection = None
            try:
                connection, kept = connect(to)
                connection.request("GET", target, headers=headers)
                return connection, cast(Answer, connection.getresponse())
            except Exception as error:
                if connection is not None:
                    connection.close()
                if isinstance(error, TunnelRefused):
                    raise refused_by_proxy(error.status, error.reason, to) from None
                if isinstance(error, http.client.InvalidURL) or not isinstance(error, _NETWORK):
                    if not isinstance(error, (http.client.InvalidURL, ValueError, TypeError, AttributeError)):
                        raise
                    what = f"the host, or a header of the storage_options, cannot be sent ({type(error).__name__})"
                    # its value is not shown, since it may be a secret
                    raise DataError("unopenable", f"{what}: correct it", url=self.url) from None
                if connection is None or not kept or isinstance(error, TimeoutError):
                    raise fault(error, to) from None  # it is not a failure if the server has closed a kept connection


class _Response:
    """An answer with the bytes from ``starts`` on. Its connection is kept if the body is read to its end."""

    def __init__(self, file: HttpObject, offset: int, size: int | None) -> None:
        self._file = file
        self._to, self._connection, self._answer = file.ask(offset, size)
        self._answer.pace.body()
        try:
            self.starts, self._ends, total = self._place(offset)
        except BaseException:
            self.close()
            raise
        self.at = self.starts
        headers = self._answer.headers
        tag = headers.get("ETag") or f"time:{headers.get('Last-Modified', '')}"
        if self._answer.status == 416:
            tag = ""  # it would belong to the error page
        self.identity = Identity(total, tag, size is not None and self._answer.status != 200)

    def _place(self, offset: int) -> tuple[int, int | None, int | None]:
        """Return the first byte, the last one + 1, and the size of the file. Raises: Fault, DataError."""
        place = self._answer.headers.get("Content-Range", "").strip()
        length = _number("" if self._answer.chunked else self._answer.headers.get("Content-Length", ""))
        if self._answer.status in (200, 206):
            check_coding(self._answer.headers.get("Content-Encoding"), self._file.url)
        if self._answer.status == 200:
            return 0, length, length
        if self._answer.status == 416:
            beyond = _BEYOND.fullmatch(place)
            empty = 0 if offset == 0 else None  # only an empty file has no first byte
            return offset, offset, int(beyond[1]) if beyond else empty
        if self._answer.status != 206:
            self._refused(self._answer.status)
        if (found := _RANGE.fullmatch(place)) is None:
            raise Fault(f"the server does not say which bytes it sends (Content-Range: {printable(place)[:80]!r})")
        first, last, total = int(found[1]), int(found[2]), _number(found[3])
        if first != offset >= 0:
            raise Fault(f"the server sent bytes from {first} on instead of {offset}")
        if last < first or (total is not None and last >= total):
            raise Fault(f"the server sent an impossible Content-Range ({place})")
        end = last + 1 if length is None else min(last + 1, first + length)
        return first, end, total

    def check(self, known: Identity | None) -> None:
        """Raise Fault if the file is not the ``known`` one, or if none is known and the answer says nothing."""
        if known is None and self._answer.status == 416 and self.identity.size is None:
            raise Fault("status 416, which does not give the size of the file")
        check_same(known, self.identity)

    def fill(self, view: memoryview) -> int:
        """Fill ``view`` as far as there are bytes. Raises: Fault with the number that came."""
        self._answer.pace.body()
        return self._fill(view)

    def _fill(self, view: memoryview) -> int:
        wanted = len(view) if self._ends is None else min(len(view), self._ends - self.at)
        got = 0
        try:
            while got < wanted and (count := self._answer.take(view[got:wanted])):
                got += count
        except _NETWORK as error:
            raise fault(error, self._to, got) from None
        if got < wanted and self._ends is not None:
            raise Fault(f"the body ended after {self.at + got - self.starts} of {self._ends - self.starts} bytes", got)
        self.at += got
        return got

    def pass_over(self, offset: int) -> None:
        """Skip to ``offset``, for servers without ranges."""
        rest = memoryview(bytearray(PIECE))
        self._answer.pace.body()
        try:
            while self.at < offset and self._fill(rest[: min(PIECE, offset - self.at)]):
                pass
        except Fault as error:
            raise Fault(error.cause) from None  # nothing of what was wanted came

    def close(self) -> None:
        if self._answer.length == 0:
            self._answer.close()
            keep(self._to, self._connection)
        else:
            self._connection.close()

    def __enter__(self) -> _Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refused(self, status: int) -> None:
        cause = f"status {status} {printable(self._answer.reason)[:80]}".rstrip()
        if status in _PASSING or status >= 500:
            raise Fault(cause + _through(self._to), after=retry_after(self._answer.headers.get("Retry-After")))
        if status in _GONE:
            raise os_failure(FileNotFoundError(cause), self._file.url)
        if status == _PROXY_REFUSES and self._to.via and self._to.scheme == "http":
            raise refused_by_proxy(status, self._answer.reason, self._to)
        if status in _REFUSED:
            if not self._file.is_home(self._to):
                message = (
                    f"{cause} of {self._to.scheme}://{self._to.host}, where a redirect led: headers and credentials "
                    "are not sent to another server; name the file's URL there"
                )
                raise DataError("unreadable_file", message, url=self._file.url)
            raise os_failure(PermissionError(cause), self._file.url)
        raise DataError("unreadable_file", f"{cause}: correct the URL, or check the server", url=self._file.url)


def refused_by_proxy(status: int, reason: str, to: Address) -> Fault | DataError:
    """Return the error for a proxy that refuses our credentials, or to connect us with the server."""
    cause = f"status {status} {printable(reason)[:80]}".rstrip() + f" of {to.via}"
    if status in _PASSING or status >= 500:
        return Fault(cause)
    name = f"{to.scheme.upper()}_PROXY"
    remedy = f"give its user and password in {name}, as user:password@ before the host"
    if status != _PROXY_REFUSES:
        remedy = f"allow it to connect to {to.host}:{to.port}, or add {to.host} to NO_PROXY"
    return DataError("unreadable_file", f"{cause}: {remedy}")


def _through(to: Address) -> str:
    return f", through {to.via}" if to.via else ""


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text.strip()) else None


def fault(error: Exception, to: Address, got: int = 0) -> Fault:
    """Return the Fault for a failed connection. Raises: DataError if the server has no valid certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        raise DataError("unreadable_file", f"{error}: correct the URL, or install the server's certificate")
    if isinstance(error, TimeoutError):
        return Fault(f"stalled: {error}{_through(to)}", got)
    kind = "cannot connect: " if isinstance(error, ConnectionRefusedError) else ""
    return Fault(f"{kind}{type(error).__name__}: {error}{_through(to)}", got, absent=is_absent(error))
