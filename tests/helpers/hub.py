"""A server that answers as the Hugging Face hub does, as far as ``huggingface_hub`` asks to read a data set's files."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub(ThreadingHTTPServer):
    """``files`` of the data set ``me/speech`` by path; ``ranges``: path, first and last byte of each request."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.ranges: list[tuple[str, int, int]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        path, _, _ = self.path.partition("?")
        if path.startswith("/datasets/me/speech/resolve/main/"):
            self._file(path.removeprefix("/datasets/me/speech/resolve/main/"))
        elif path.startswith("/api/datasets/me/speech/tree/main"):
            folder = path.removeprefix("/api/datasets/me/speech/tree/main").strip("/")
            self._answer(200, json.dumps(self._listed(folder)).encode())
        elif path.startswith("/api/datasets/me/speech"):
            info = {"id": "me/speech", "sha": "1" * 40, "siblings": [], "tags": [], "private": False}
            self._answer(200, json.dumps(info).encode())
        else:
            self._answer(404, b"")

    def _listed(self, folder: str) -> list[dict[str, object]]:
        names = [name for name in self.server.files if name.startswith(folder)]
        if not folder:
            tops = sorted({name.partition("/")[0] for name in names})
            return [{"type": "directory", "path": top, "size": 0, "oid": "0" * 40} for top in tops]
        return [{"type": "file", "path": n, "size": len(self.server.files[n]), "oid": "0" * 40} for n in names]

    def _file(self, name: str) -> None:
        data = self.server.files[name]
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        self.server.ranges.append((name, first, last))
        self._answer(206, data[first : last + 1], f"bytes {first}-{last}/{len(data)}")

    def _answer(self, status: int, body: bytes, ranged: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if ranged:
            self.send_header("Content-Range", ranged)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def hub(files: dict[str, bytes]) -> Iterator[Hub]:
    """Serve a data set until the end of the block."""
    server = Hub(files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
