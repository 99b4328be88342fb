"""Connections to HTTP servers, kept for the next request, and closed when an answer is too slow or too long."""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from typing import Any

from uio_pipes.io.addresses import Address, Proxy

STALL = 30.0  # seconds without a byte; also for everything before the body
SLOWEST = 10_000  # bytes of the body per second: less counts as a stall, too
HEAD = 1 << 18  # bytes that may come before the body
PIECE = 1 << 16
KEPT = 16  # connections to a host
_BUFFERED = io.DEFAULT_BUFFER_SIZE


class Paced(io.RawIOBase):
    """The bytes of a connection, if they come fast enough. (A socket's own timeout starts again at each byte.)"""

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
    """A response that must come fast enough."""

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
            if (self.chunk_left or 0) < 0:
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
