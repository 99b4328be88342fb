"""Connections to HTTP servers, which are reused, and closed when an answer is too slow or too long. Also URLs, proxies
from the environment, and redirects, which carry credentials to no other host."""

from __future__ import annotations

import base64
import functools
import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import fsspec

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import remembers
from uio_pipes.io.retry import check_coding


@dataclass(frozen=True)
class Proxy:
    """A proxy. ``credentials``: the value of ``Proxy-Authorization``, "" if its URL has none."""

    host: str
    port: int
    credentials: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that only the proxy gets."""
        return {"Proxy-Authorization": self.credentials} if self.credentials else {}

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port}"


@functools.lru_cache(256)
def proxy_for(scheme: str, host: str, port: int) -> Proxy | None:
    """Return the proxy for a server, None if it is reached directly. The environment counts as it is at the first call.

    Raises: DataError ``unopenable`` for a proxy that cannot be used.
    """
    url = getproxies().get(scheme)
    if not url or proxy_bypass(f"{host}:{port}"):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme == "http" and parts.hostname:
            return Proxy(parts.hostname, parts.port or 80, basic(parts.username, parts.password))
    except ValueError:
        pass  # its text may hold the password
    remedy = (
        "name one as http://host:port, with user:password@ before the host if it asks for them (%XX for odd characters)"
    )
    message = f"the environment's {scheme.upper()}_PROXY is not an HTTP proxy: {remedy}, or add {host} to NO_PROXY"
    raise DataError("unopenable", message)


def basic(user: str | None, password: str | None) -> str:
    """Return the credentials of a URL as the value of a header; "" without a user."""
    if user is None:
        return ""
    secret = f"{unquote(user)}:{unquote(password or '')}".encode()
    return "Basic " + base64.b64encode(secret).decode()


_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:=&?~#+!$,;'@()*[]"


class Address(NamedTuple):
    """An HTTP URL in parts. ``target``: path and query, quoted as in a request."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: credentials for one origin are sent to no other."""
        return self[:3]

    @property
    def via(self) -> Proxy | None:
        """The proxy through which the server is reached. Raises: DataError ``unopenable``."""
        return proxy_for(*self.origin)

    @property
    def whole(self) -> str:
        """The URL, as requested from a proxy."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"  # a signature may be for the name alone
        return f"{self.scheme}://{host}{port}{self.target}"


def address(url: str) -> Address:
    """Take a URL apart. Raises: DataError ``unopenable``."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        why = str(error).partition(" as ")[0]  # after it, the port as it stands there: perhaps a password
        raise DataError("unopenable", f"the URL is malformed ({why}): correct it", url=url) from None
    if parts.scheme not in _PORTS:
        raise DataError("unopenable", f"{parts.scheme}:// is not HTTP: correct the URL", url=url)
    if not host:
        raise DataError("unopenable", "the URL names no host: correct it", url=url)
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, target)


def follow(url: str, location: str | None) -> str:
    """Return the URL that the ``Location`` header of an answer leads to. Raises: DataError ``unopenable``."""
    if not location:
        raise DataError("unopenable", "the server redirects without saying where to: correct the URL", url=url)
    try:
        to = urljoin(url, quote(location.encode("latin-1", "replace"), safe=_SAFE))
        address(to)
    except (ValueError, DataError) as error:
        why = error.message if isinstance(error, DataError) else f"the URL is malformed ({error})"
        raise DataError("unopenable", f"the server redirects to a URL that cannot be read: {why}", url=url) from None
    return to


_OWN = frozenset(["accept", "accept-encoding", "if-range", "range"])


def discreet(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Extend the options of the file system of ``url``: redirects to another origin lose the user's headers, and no
    compression is asked for."""
    protocol = url.partition("://")[0]
    if protocol not in ("http", "https") or "get_client" in options:
        return dict(options)
    known = fsspec.config.conf.get(protocol, {}).get("client_kwargs", {})
    client = {**known, **(options.get("client_kwargs") or {})}
    client["headers"] = {"Accept-Encoding": "identity", **(client.get("headers") or {})}
    client["trace_configs"] = [*client.get("trace_configs", ()), _watch()]
    return {**options, "client_kwargs": client}


@functools.cache
def _watch() -> Any:
    """Return the TraceConfig that watches redirects and answers. The process shares one, because fsspec compares
    options, and reuses a file system only if they are equal."""
    import aiohttp

    watch = aiohttp.TraceConfig()
    watch.on_request_redirect.append(_on_redirect)
    watch.on_request_end.append(_on_answer)
    return watch


async def _on_answer(session: Any, _: object, end: Any) -> None:
    if end.method == "GET":
        check_coding(end.response.headers.get("Content-Encoding"), str(end.url))


async def _on_redirect(session: Any, _: object, redirect: Any) -> None:
    from yarl import URL

    try:
        to = redirect.url.join(URL(redirect.response.headers.get("Location", "")))
        if to.origin() == redirect.url.origin():
            return
    except ValueError:
        return  # malformed: aiohttp raises the error
    if session.auth is not None or any(not cookie["domain"] for cookie in session.cookie_jar):
        message = (
            f"a redirect leads to {to.scheme}://{to.host}, which would be sent the auth or the cookies of "
            "client_kwargs: give them as headers, or name the file's URL there"
        )
        raise DataError("unopenable", message)
    for name in [name for name in redirect.headers if name.lower() not in _OWN]:
        redirect.headers.popall(name, None)


STALL = 30.0  # seconds without a byte; also for everything before the body
SLOWEST = 10_000  # bytes of the body per second: less counts as a stall, too
HEAD = 1 << 18  # bytes that may come before the body
PIECE = 1 << 16
KEPT = 64  # connections to a host
_BUFFERED = io.DEFAULT_BUFFER_SIZE


class Paced(io.RawIOBase):
    """The bytes of a connection, which must arrive fast enough. (A socket's own timeout starts again at each byte.)"""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        self._in_head = True
        self._begun, self._got = time.monotonic(), 0

    def body(self) -> None:
        """Start the clock of the body."""
        self._in_head = False
        self._begun, self._got = time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._in_head and self._got > HEAD:
            raise http.client.HTTPException(f"more than {HEAD} bytes came before the body")
        left = STALL - (time.monotonic() - self._begun) + (0 if self._in_head else self._got / SLOWEST)
        try:
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(min(left, STALL))
            count: int = self._raw.readinto(buffer) or 0
        except TimeoutError:
            what = "before the body" if self._in_head else "of the body"
            raise TimeoutError(f"{self._got} bytes {what} in {time.monotonic() - self._begun:.1f} s") from None
        self._got += count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class Answer(http.client.HTTPResponse):
    """A response that must arrive fast enough."""

    begun = False

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.pace = Paced(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self.pace)

    def _read_status(self) -> tuple[str, int, str]:
        """Read the status of the answer itself, after hints and the like (1xx), of which several may come."""
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 101 < status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)

    def take(self, view: memoryview) -> int:
        """Read what has arrived, without a copy. (``readinto`` would wait for more, and lose all of it at a fault.)"""
        if self.length is None:
            data = self.read1(min(PIECE, len(view)))
            if self.chunked and (self.chunk_left or 0) < 0:
                raise http.client.HTTPException("a chunk of negative size")
            view[: len(data)] = data
            return len(data)
        most = (
            self.length if self.begun else min(self.length, _BUFFERED)
        )  # the first read would wait for more than has come
        count, self.begun = self.fp.readinto1(view[:most]) if most else 0, True
        self.length -= count
        return count


class TunnelRefused(Exception):
    """A proxy does not connect us with a server, and gives this status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason


class _Tunnel(Answer):
    """The answer of a proxy that is asked to connect us with a server."""

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()
        if status != http.HTTPStatus.OK:
            self.close()  # Python 3.10 leaves it open
            raise TunnelRefused(status, reason)
        return version, status, reason


_idle: dict[tuple[str, str, int, Proxy | None], list[http.client.HTTPConnection]] = {}
_lock = threading.Lock()
_context: ssl.SSLContext | None = None


def connect(to: Address) -> tuple[http.client.HTTPConnection, bool]:
    """Return a connection, and whether it had been used before. Raises: TunnelRefused, and errors of the network."""
    global _context
    with _lock:
        kept = _idle.get((*to.origin, to.via), [])
        while kept:
            if _is_quiet(connection := kept.pop()):
                connection.sock.settimeout(STALL)
                return connection, True
            connection.close()
        if to.scheme == "https" and _context is None:
            _context = ssl.create_default_context()
    host, port = (to.via.host, to.via.port) if to.via else (to.host, to.port)
    connection = (
        http.client.HTTPSConnection(host, port, timeout=STALL, context=_context)
        if to.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=STALL)
    )
    if to.scheme == "https" and to.via:
        _tunnel(connection, to, to.via.headers)
    connection.response_class = Answer
    return connection, False


def _tunnel(connection: http.client.HTTPConnection, to: Address, headers: dict[str, str]) -> None:
    """Have a proxy connect us with a server. Raises: TunnelRefused."""
    connection.set_tunnel(to.host, to.port, headers)
    connection.response_class = _Tunnel
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Return whether it is open, and the server has sent no more than was asked for."""
    if connection.sock.fileno() < 0:
        return False  # the garbage collector has closed the socket with the stream that gave it back
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def keep(to: Address, connection: http.client.HTTPConnection) -> None:
    """Keep a connection for the next request, once the answer to this one has been read to its end."""
    if connection.sock is None:
        return
    with _lock:
        kept = _idle.setdefault((*to.origin, to.via), [])
        if len(kept) < KEPT:
            kept.append(connection)
            return
    connection.close()


def _forget() -> None:
    """Start without connections in a forked child: they belong to its parent."""
    global _idle, _lock
    _idle, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)
remembers("idle connections", lambda: sum(map(len, list(_idle.values()))), KEPT, "connections")  # to a host
