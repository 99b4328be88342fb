"""An HTTP server on a local port that can fail in every way there is, on schedule; it notes what it was asked for."""

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from servers import running

from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead


@dataclass
class Served:
    """One file. ``faults``: what the next requests meet, one each:

    ``"500"``, ``"503 2"`` (Retry-After: seconds), ``"429 date"`` (an HTTP date in a second), ``"403"``, ``"reset N"``
    (the connection is reset after N bytes of the body), ``"short N"`` (closed in order after N), ``"stall N"``,
    ``"trickle N"`` (then a wrong byte from time to time), ``""``.

    ``cap``: most bytes of a range that one answer holds, and says so. ``lie``: what answers instead, this time or each
    time, with all that goes over the wire (see ``lies.py``).
    """

    data: bytes
    faults: deque[str] = field(default_factory=deque)
    etag: str = '"one"'
    ranges: bool = True
    redirect: str = ""
    latency: float = 0.0
    cap: int | None = None
    lie: "Lie | None" = None


Lie = Callable[
    [Any, Served, int, "int | None"], bool
]  # handler, file, first and last byte; False: the answer is honest


class FaultServer(ThreadingHTTPServer):
    """``files`` by path; ``asked``: path and first byte of each request, and when; ``headers`` of the last."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.files: dict[str, Served] = {}
        self.asked: list[tuple[str, int, float]] = []
        self.headers: dict[str, str] = {}
        self.lock = threading.Lock()
        self.ending = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None: ...

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, path: str, data: bytes, *faults: str, **how: object) -> str:
        """Serve ``data``; its URL."""
        self.files[path] = Served(data, deque(faults), **how)  # type: ignore[arg-type]
        return f"{self.url}/{path}"

    def offsets(self, path: str) -> list[int]:
        return [offset for name, offset, _ in self.asked if name == path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body does not wait for the head's receipt
    server: FaultServer

    def do_GET(self) -> None:
        server, path = self.server, self.path[1:].partition("?")[0]
        file = server.files.get(path)
        first, last = self._range(len(file.data) if file else 0)
        with server.lock:
            server.asked.append((path, first, time.monotonic()))
            server.headers = dict(self.headers)
            fault = file.faults.popleft() if file and file.faults else ""
        if file is None:
            self._plain(404)
            return
        time.sleep(file.latency)
        if file.lie and file.lie(self, file, first, last):
            self.close_connection = True
        elif file.redirect:
            self._plain(302, Location=file.redirect)
        elif fault[:3].isdigit():
            self._refuse(fault)
        else:
            self._body(file, first, last, fault)

    def _range(self, total: int) -> tuple[int, int | None]:
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        if last and not first:
            return max(0, total - int(last)), None
        return int(first or 0), int(last) if last else None

    def _refuse(self, fault: str) -> None:
        status, _, after = fault.partition(" ")
        when = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=2), usegmt=True)
        self._plain(int(status), **({"Retry-After": when if after == "date" else after} if after else {}))

    def _plain(self, status: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self, file: Served, first: int, last: int | None, fault: str) -> None:
        total = len(file.data)
        ranged = file.ranges and "Range" in self.headers
        if ranged and first >= total:
            self._plain(416, **{"Content-Range": f"bytes */{total}"})
            return
        begin, end = (first, min(total, total if last is None else last + 1)) if ranged else (0, total)
        end = min(end, begin + file.cap) if ranged and file.cap else end
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", file.etag)
        if ranged:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{total}")
        self.end_headers()
        kind, _, count = fault.partition(" ")
        cut = begin + int(count) if count else end
        with contextlib.suppress(ConnectionError):
            self.wfile.write(file.data[begin : min(end, cut)])
            if kind:
                self._break(kind)

    def _break(self, kind: str) -> None:
        self.close_connection = True
        while kind == "trickle" and not self.server.ending.wait(0.05):
            self.wfile.write(b"?")
            self.wfile.flush()
        if kind == "stall":
            self.server.ending.wait(20)
        if kind == "reset":
            self.wfile.flush()
            time.sleep(0.05)  # what was sent arrives before the reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def serving() -> Iterator[FaultServer]:
    """Until the block ends."""
    server = FaultServer()
    with running(server):
        try:
            yield server
        finally:
            server.ending.set()


def read_on(file: RemoteFile, step: int = 70_000) -> bytes:
    """All of the file, read ahead."""
    ahead, out = ReadAhead(file), bytearray()
    while piece := ahead.read_upto(len(out), step):
        out += piece
    ahead.close()
    return bytes(out)
