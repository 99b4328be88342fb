"""Claim: from a local HTTP or S3 server, the whole pipeline keeps at least 90 % of its speed on local files.

The pipeline is that of ``throughput.py`` (tar, fbank, spec-augment, shuffle, sort, batches), in one process,
``num_workers=0``. It reads the shards six times, so that the time before the first batch does not weigh too much. HTTP
is nginx, with ranges; then a server that waits 20 ms before each answer. S3 is read by s3fs: from nginx, which answers
its requests for objects as S3 does, and from moto, whose own speed is shown beside it: ``python -m benchmarks.remote``.
The shares are judged by wall time; on a busy machine compare the work per second of CPU, which includes the reading
threads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import socket
import subprocess
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

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.remote"
SEED = 777
DELAY = 0.02
BUCKET = "speech"
ROUNDS = sized(6, 1)


def measure(urls: list[str], options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Measure one epoch, in a process of its own."""
    import uio_pipes as uio
    from benchmarks.peers.uio import features
    from uio_pipes.io.access import Access
    from uio_pipes.io.opening import open_file

    graph = features(uio.from_shard_list(urls * ROUNDS, shuffle=True, storage_options=options))
    open_file(urls[0], Access(options or {})).read(0, 1)  # s3fs needs a second to be imported and to make its client
    frames = 0
    began, cpu = time.perf_counter(), time.process_time()
    for batch in uio.Loader(graph, seed=SEED, on_error="raise"):
        frames += int(batch["feats_lengths"].sum())
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "speed": frames / 100 / took,
        "cpu_speed": frames / 100 / cpu,
        "frames": frames,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


# Servers


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

    def do_GET(self) -> None:
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        time.sleep(DELAY)
        with open(self.folder / self.path[1:], "rb") as file:
            total = os.fstat(file.fileno()).st_size
            last = min(last, total - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            self.wfile.flush()
            while first <= last:
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, last + 1 - first)

    def log_message(self, format: str, *args: object) -> None: ...


def _serve_late(folder: Path, port: int) -> None:
    _Late.folder = folder
    ThreadingHTTPServer(("127.0.0.1", port), _Late).serve_forever()


@contextlib.contextmanager
def late(folder: Path) -> Iterator[str]:
    """Serve ``folder`` with a delay."""
    port = _free_port()
    process = get_context("spawn").Process(target=_serve_late, args=(folder, port), daemon=True)
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
    options = _s3_options(f"http://127.0.0.1:{port}")
    fs = fsspec.filesystem("s3", **options)
    fs.mkdir(BUCKET)
    for shard in shards:
        fs.put(shard, f"{BUCKET}/tar/{Path(shard).name}")
    yield options
    process.terminate()
    process.join()


def _s3_options(endpoint: str) -> dict[str, Any]:
    return {"key": "key", "secret": "secret", "endpoint_url": endpoint}


def _rate(url: str) -> float:
    """Return the MB/s of a server alone: one file in ranges of 4 MB, one after the other, unused."""
    block, got, began = 4 << 20, 0, time.perf_counter()
    for first in range(0, sized(64 << 20, block), block):
        asked = urllib.request.Request(url, headers={"Range": f"bytes={first}-{first + block - 1}"})
        with urllib.request.urlopen(asked) as answer:
            got += len(answer.read())
    return got / 1e6 / (time.perf_counter() - began)


def main() -> None:
    """Measure all and write results/remote.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    corpus = prepare(arguments.data)
    shards = [shard for shard in corpus.shards("tar") if shard.endswith(".tar")]  # indexes are beside them
    names = [Path(shard).name for shard in shards]
    report = Report("remote", "Shards from servers on this machine")
    with tempfile.TemporaryDirectory() as www, nginx(Path(www)) as http, late(Path(www)) as far, moto(shards) as s3:
        os.chmod(www, 0o755)
        (Path(www) / BUCKET).symlink_to(corpus.folder.resolve())
        by_nginx = _s3_options(http)
        jobs: dict[str, dict[str, object]] = {
            "local files": {"urls": shards},
            "HTTP": {"urls": [f"{http}/{BUCKET}/tar/{name}" for name in names]},
            "HTTP, 20 ms late": {"urls": [f"{far}/{BUCKET}/tar/{name}" for name in names]},
            "S3 (nginx)": {"urls": [f"s3://{BUCKET}/tar/{name}" for name in names], "options": by_nginx},
            "S3 (moto)": {"urls": [f"s3://{BUCKET}/tar/{name}" for name in names], "options": s3},
        }
        results = rounds(MODULE, jobs, arguments.repeats)
        signed = fsspec.filesystem("s3", **s3).sign(f"{BUCKET}/tar/{names[0]}")
        rates = {"HTTP": _rate(f"{http}/{BUCKET}/tar/{names[0]}"), "S3 (moto)": _rate(signed)}
    local = median(results["local files"], "speed")
    rows = []
    for name, found in results.items():
        for error in (str(result["error"]) for result in found if "error" in result):
            report.text(f"{name} failed: {error}")
        numbers = [
            spread(found, "speed", ".0f"),
            ratio(median(found, "speed"), local),
            spread(found, "cpu_speed", ".0f"),
        ]
        rows.append([name, *numbers, f"{median(found, 'memory'):.0f}", f"{rates[name]:.0f}" if name in rates else ""])
    columns = ["", "s of audio per s", "of local", "per s of CPU", "MiB", "server alone, MB/s"]
    report.table("Six rounds, 18,000 utterances", columns, rows, plot=[1, 3])
    for name in ("HTTP", "HTTP, 20 ms late", "S3 (nginx)"):  # moto is slower than the pipeline
        share = median(results[name], "speed") / local
        report.target(f"{name}: at least 90 % of the speed on local files", share >= 0.9, f"{100 * share:.0f} %")
    if len({result.get("frames") for found in results.values() for result in found}) != 1:
        report.text("The epochs differ: the comparison is void.")
    report.write()


if __name__ == "__main__":
    main()
