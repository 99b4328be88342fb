"""A real HTTP server on a local port: ranges, and on request slow, cut off, failing or without ranges."""

import http.server
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import running


class RangeServer(http.server.ThreadingHTTPServer):
    """Serves ``folder``. ``starts``: the offset of each request."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.starts = folder, list[int]()
        self.cut_after: int | None = None  # bytes of an answer, then the connection is closed
        self.failures: list[int] = []  # statuses of the next answers
        self.ranges = True
        self.pause = 0.0  # seconds before each block

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: RangeServer

    def do_GET(self) -> None:
        server, path = self.server, self.server.folder / self.path[1:]
        if server.failures or not path.is_file():
            self.send_error(server.failures.pop(0) if server.failures else 404)
            return
        data, wanted = path.read_bytes(), self.headers.get("Range", "")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
        server.starts.append(start)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        end = len(data) if server.cut_after is None else start + server.cut_after
        for block in range(start, min(end, len(data)), 1 << 14):
            time.sleep(server.pause)
            self.wfile.write(data[block : min(block + (1 << 14), end)])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[RangeServer]:
    """Until the block ends."""
    server = RangeServer(folder)
    with running(server):
        yield server
