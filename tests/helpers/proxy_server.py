"""A real HTTP proxy on a local port: GET of whole URLs, and CONNECT. It notes what it was asked for."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from servers import running


class ProxyServer(ThreadingHTTPServer):
    """``asked``: method and target of each request; ``headers``: of the last one. ``credentials``: the value of
    Proxy-Authorization that it wants, None if it wants none. ``faults``: statuses that the next requests meet."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.credentials: str | None = None
        self.faults: list[int] = []

    def handle_error(self, request: object, client_address: object) -> None: ...


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ProxyServer

    def _is_let_through(self) -> bool:
        server = self.server
        server.asked.append((self.command, self.path))
        server.headers = dict(self.headers)
        wanted = server.credentials
        status = server.faults.pop(0) if server.faults else 0
        if not status and wanted is not None and self.headers.get("Proxy-Authorization") != wanted:
            status = 407
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        return not status

    def do_GET(self) -> None:
        if not self._is_let_through():
            return
        parts = urlsplit(self.path)
        assert parts.hostname, "a proxy is asked for whole URLs"
        onward = {name: value for name, value in self.headers.items() if not name.startswith("Proxy-")}
        with contextlib.closing(HTTPConnection(parts.hostname, parts.port or 80)) as there:
            there.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=onward)
            with there.getresponse() as answer:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.read())

    def do_CONNECT(self) -> None:
        if not self._is_let_through():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass_on, args=(there, self.connection), daemon=True)
            back.start()
            _pass_on(self.connection, there)
            back.join()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None: ...


def _pass_on(come: socket.socket, go: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := come.recv(1 << 16):
            go.sendall(data)
    with contextlib.suppress(OSError):
        go.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxying() -> Iterator[ProxyServer]:
    """Until the block ends."""
    server = ProxyServer()
    with running(server):
        yield server
