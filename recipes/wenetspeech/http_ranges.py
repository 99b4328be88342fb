"""A plain HTTP server for the files of a folder, with ranges, which the standard library's server lacks."""

from __future__ import annotations

import contextlib
import io
import re
import threading
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

__all__ = ["CannotServe", "http_server", "taken"]

_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


class CannotServe(Exception):
    """No server can be started; the message says why and what to do."""


class _Part(io.RawIOBase):
    """The next ``size`` bytes of an open file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class RangeHandler(SimpleHTTPRequestHandler):
    """A handler of files over HTTP/1.1, with ``Range: bytes=a-b`` and ``bytes=a-``."""

    protocol_version = "HTTP/1.1"

    def send_head(self) -> IO[bytes] | None:  # type: ignore[override]
        wanted = _RANGE.match(self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if not wanted or not path.is_file():
            return super().send_head()
        size = path.stat().st_size
        first, last = int(wanted[1]), min(int(wanted[2] or size - 1), size - 1)
        if first >= size or last < first:
            self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return None
        file = path.open("rb")
        file.seek(first)
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        return io.BufferedReader(_Part(file, last - first + 1))

    def end_headers(self) -> None:
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextlib.contextmanager
def http_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve a folder; yield its URL. Raises: CannotServe if the port is taken."""
    try:
        server = _Server(("127.0.0.1", port), partial(RangeHandler, directory=str(folder)))
    except OSError as error:
        raise CannotServe(taken(port, error)) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def taken(port: int, error: OSError) -> str:
    """Return the message for a port that cannot be used."""
    remedy = "end the process that uses it, perhaps another run of the recipe"
    return f"port {port} on 127.0.0.1 cannot be used ({error}): {remedy}"
