"""Servers on this machine for ``remote.py``: nginx, a server that answers late, and an S3."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fsspec

from benchmarks.common import sized

__all__ = ["BUCKET", "late", "moto", "nginx", "rate", "s3_options"]

BUCKET = "speech"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextlib.contextmanager
def nginx(www: Path) -> Iterator[str]:
    """Serve ``www`` over HTTP."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise SystemExit("nginx is needed: apt-get install nginx")
    port = _free_port()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        temporary = " ".join(f"{kind}_temp_path {root}/{kind};" for kind in ("fastcgi", "uwsgi", "scgi", "proxy"))
        (root / "nginx.conf").write_text(
            f"{'user root;' if os.geteuid() == 0 else ''} worker_processes 1; daemon off;\n"
            f"pid {root}/pid; error_log {root}/log;\n"
            f"events {{ worker_connections 256; }}\n"
            f"http {{ access_log off; sendfile on; client_body_temp_path {root}/body; {temporary}\n"
            f"  server {{ listen 127.0.0.1:{port}; root {www}; }} }}\n"
        )
        process = subprocess.Popen([program, "-p", name, "-c", str(root / "nginx.conf")], stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


class _Late(BaseHTTPRequestHandler):
    """A handler of ranges of files that delays each answer, as if from far away."""

    protocol_version = "HTTP/1.1"
    folder: Path
    seconds: float

    def do_GET(self) -> None:
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        time.sleep(self.seconds)
        with open(self.folder / self.path[1:], "rb") as file:
            total = os.fstat(file.fileno()).st_size
            first, last = (int(first), int(last)) if first else (max(0, total - int(last)), total - 1)
            last = min(last, total - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            self.wfile.flush()
            while first <= last:
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, last + 1 - first)

    def log_message(self, format: str, *args: object) -> None: ...


class _LateServer(ThreadingHTTPServer):
    request_queue_size = 256  # with the usual 5, some of many that come at once are let in a second later

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client may end at any time
            super().handle_error(request, client_address)


def _serve_late(folder: Path, seconds: float, port: int) -> None:
    _Late.folder, _Late.seconds = folder, seconds
    _LateServer(("127.0.0.1", port), _Late).serve_forever()


@contextlib.contextmanager
def late(folder: Path, seconds: float) -> Iterator[str]:
    """Serve ``folder`` with a delay before each answer."""
    port = _free_port()
    process = get_context("spawn").Process(target=_serve_late, args=(folder, seconds, port), daemon=True)
    process.start()
    time.sleep(2)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.join()


def _serve_s3(port: int) -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    ThreadedMotoServer("127.0.0.1", port, verbose=False).start()
    threading.Event().wait()


@contextlib.contextmanager
def moto(shards: list[str]) -> Iterator[dict[str, Any]]:
    """Start an S3 with ``shards`` in a bucket; yield the options for it."""
    port = _free_port()
    process = get_context("spawn").Process(target=_serve_s3, args=(port,), daemon=True)
    process.start()
    time.sleep(4)
    options = s3_options(f"http://127.0.0.1:{port}")
    fs = fsspec.filesystem("s3", **options)
    fs.mkdir(BUCKET)
    for shard in shards:
        fs.put(shard, f"{BUCKET}/tar/{Path(shard).name}")
    yield options
    process.terminate()
    process.join()


def s3_options(endpoint: str) -> dict[str, Any]:
    """Return the storage options for an S3."""
    return {"key": "key", "secret": "secret", "endpoint_url": endpoint}


def rate(url: str) -> float:
    """Return the MB/s of a server alone: one file in ranges of 4 MB, one after the other, unused."""
    block, got, began = 4 << 20, 0, time.perf_counter()
    for first in range(0, sized(64 << 20, block), block):
        asked = urllib.request.Request(url, headers={"Range": f"bytes={first}-{first + block - 1}"})
        with urllib.request.urlopen(asked) as answer:
            got += len(answer.read())
    return got / 1e6 / (time.perf_counter() - began)
