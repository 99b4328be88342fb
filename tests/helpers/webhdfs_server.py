"""A namenode and a datanode on local ports that speak WebHDFS for reading, as Hadoop documents it, and fail on request.

The namenode answers LISTSTATUS, GETFILESTATUS and GETCONTENTSUMMARY, and sends OPEN on to the datanode (307), which
sends the bytes from ``offset``, at most ``length``. Errors are RemoteExceptions in JSON.
"""

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

EXCEPTIONS = {  # status and package, as Hadoop's
    "FileNotFoundException": (404, "java.io"),
    "AccessControlException": (403, "org.apache.hadoop.security"),
    "StandbyException": (403, "org.apache.hadoop.ipc"),
    "InvalidToken": (403, "org.apache.hadoop.security.token.SecretManager$"),
    "IOException": (500, "java.io"),
}


class Hdfs:
    """``files`` by path. ``faults`` (of the namenode) and ``datanode_faults``: what the next requests meet, one each:
    the name of an exception, a status, ``"cut N"`` (the connection is closed after N bytes), ``"silence"`` or ``""``.
    ``asked``: operation, path and parameters of each request. ``direct``: a gateway (HttpFS), without datanodes.
    ``token``: what a request must have as ``delegation``."""

    def __init__(self, direct: bool = False, token: str = "") -> None:
        self.files: dict[str, bytes] = {}
        self.changed: dict[str, int] = {}
        self.faults: deque[str] = deque()
        self.datanode_faults: deque[str] = deque()
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.direct, self.token = direct, token
        self.ending = threading.Event()
        self.namenode, self.datanode = _Server(self, _NameNode), _Server(self, _DataNode)

    def add(self, path: str, data: bytes) -> str:
        """Write a file; its URL."""
        self.files[path] = data
        self.changed[path] = self.changed.get(path, 1_700_000_000_000) + 1
        return f"{self.url}{path}"

    @property
    def url(self) -> str:
        return f"webhdfs://127.0.0.1:{self.namenode.server_port}"

    def opened(self, path: str) -> list[tuple[int, int]]:
        """Offset and length of each OPEN that the namenode was asked for."""
        return [(int(p["offset"]), int(p["length"])) for op, name, p in self.asked if (op, name) == ("OPEN", path)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hdfs: Hdfs, handler: type[BaseHTTPRequestHandler]) -> None:
        self.hdfs = hdfs
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: object, client_address: object) -> None: ...


class _Node(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.hdfs = self.server.hdfs
        self.parameters = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.name = unquote(url.path).removeprefix("/webhdfs/v1") or "/"
        self.cut: int | None = None
        faults = self.faults()
        fault = faults.popleft() if faults else ""
        if self.hdfs.token and self.parameters.get("delegation") != self.hdfs.token:
            fault = "InvalidToken"
        if fault.isdigit():
            self.send(int(fault), b"<html>proxy</html>", "text/html")
        elif fault == "silence":
            self.hdfs.ending.wait(20)
        elif fault and not fault.startswith("cut"):
            self.fail(fault, f"{fault} as asked for")
        else:
            self.cut = int(fault.split()[1]) if fault else None
            self.answer()

    def faults(self) -> deque[str]:
        raise NotImplementedError

    def answer(self) -> None:
        raise NotImplementedError

    def fail(self, name: str, message: str) -> None:
        status, package = EXCEPTIONS[name]
        self.json(
            {"RemoteException": {"exception": name, "javaClassName": f"{package}.{name}", "message": message}}, status
        )

    def json(self, value: Any, status: int = 200) -> None:
        self.send(status, json.dumps(value).encode(), "application/json")

    def send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[: self.cut])
        if self.cut is not None:
            self.close_connection = True

    def send_bytes(self) -> None:
        data, offset = self.hdfs.files[self.name], int(self.parameters.get("offset", 0))
        length = int(self.parameters.get("length", len(data)))
        if offset > len(data):
            self.fail("IOException", f"Offset={offset} out of the range [0, {len(data)}]; OPEN, path={self.name}")
        else:
            self.send(200, data[offset : offset + length], "application/octet-stream")

    def log_message(self, format: str, *args: object) -> None: ...


class _NameNode(_Node):
    def faults(self) -> deque[str]:
        return self.hdfs.faults

    def answer(self) -> None:
        op = self.parameters.get("op", "").upper()
        self.hdfs.asked.append((op, self.name, self.parameters))
        if op == "LISTSTATUS" and (entries := self.entries()):
            self.json({"FileStatuses": {"FileStatus": entries}})
        elif self.name not in self.hdfs.files and not (op == "GETFILESTATUS" and self.entries()):
            self.fail("FileNotFoundException", f"File does not exist: {self.name}")
        elif op == "GETFILESTATUS":
            self.json({"FileStatus": self.status(self.name, "")})
        elif op == "GETCONTENTSUMMARY":
            size = len(self.hdfs.files[self.name])
            self.json({"ContentSummary": {"directoryCount": 0, "fileCount": 1, "length": size}})
        elif op == "OPEN" and self.hdfs.direct:
            self.send_bytes()
        elif op == "OPEN":
            to = f"http://127.0.0.1:{self.hdfs.datanode.server_port}{quote('/webhdfs/v1' + self.name)}?"
            kept = {
                k: v for k, v in self.parameters.items() if k in ("op", "offset", "length", "delegation", "user.name")
            }
            where = "&".join(f"{k}={quote(v)}" for k, v in {**kept, "namenoderpcaddress": "127.0.0.1:8020"}.items())
            self.send(307, b"", "application/octet-stream", Location=to + where)
        else:
            self.fail("IOException", f"no such operation: {op}")

    def entries(self) -> list[dict[str, Any]]:
        """What is in the folder."""
        folder = self.name.rstrip("/") + "/"
        below = [path.removeprefix(folder) for path in self.hdfs.files if path.startswith(folder)]
        names = sorted({path.partition("/")[0] for path in below})
        return [self.status(folder + name, name) for name in names]

    def status(self, path: str, suffix: str) -> dict[str, Any]:
        data = self.hdfs.files.get(path)
        return {
            "accessTime": 0, "blockSize": 0 if data is None else 134217728, "group": "supergroup",
            "length": len(data or b""), "modificationTime": self.hdfs.changed.get(path, 0), "owner": "hdfs",
            "pathSuffix": suffix, "permission": "644", "replication": 0 if data is None else 3,
            "type": "DIRECTORY" if data is None else "FILE",
        }  # fmt: skip


class _DataNode(_Node):
    def faults(self) -> deque[str]:
        return self.hdfs.datanode_faults

    def answer(self) -> None:
        if self.name in self.hdfs.files:
            self.send_bytes()
        else:
            self.fail("FileNotFoundException", f"File does not exist: {self.name}")


@contextlib.contextmanager
def serving_hdfs(**how: Any) -> Iterator[Hdfs]:
    """Until the block ends."""
    hdfs = Hdfs(**how)
    servers = (hdfs.namenode, hdfs.datanode)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hdfs
    finally:
        hdfs.ending.set()
        for server in servers:
            server.shutdown()
            server.server_close()
