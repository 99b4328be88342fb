"""Real servers on local ports, for as long as a block runs."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer

import pytest


@contextmanager
def running(server: BaseServer) -> Iterator[None]:
    """Run a server in a thread until the block ends."""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the endpoint of an S3 server. The test is skipped without Moto or s3fs."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
