"""Ranges of files by WebHDFS: fsspec's file system talks to the namenode, and this reads from the datanode.

fsspec's own files read 5 MB more than they are asked for, take a datanode's error message for data, and wait for ever
for a server that has fallen silent. Names inside fsspec are used for it; ``tests/io/test_webhdfs.py`` reads by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

THREADS = 32  # connections kept to a host: every thread that reads ahead uses one
SILENCE = 30.0  # seconds without a byte
_KINDS = {
    "FileNotFoundException": FileNotFoundError,
    "AccessControlException": PermissionError,
    "SecurityException": PermissionError,
}


def range_reader(fs: Any, path: str) -> Callable[[int, int], bytes]:
    """Return a function that reads the bytes from its first argument to before its second."""
    _expect_answers(fs.session)

    def read(start: int, end: int) -> bytes:
        answer = fs._call("OPEN", path=path, offset=start, length=end - start, redirect=False)
        if "Location" in answer.headers:  # not from a gateway (HttpFS), which sends the bytes itself
            answer = fs.session.get(fs._apply_proxy(answer.headers["Location"]))
        _check(answer)
        return bytes(answer.content)

    return read


def _check(answer: Any) -> None:
    """Raises: OSError that says what is wrong, if the answer is an error."""
    if answer.status_code == 200:
        return
    try:
        error = answer.json()["RemoteException"]
        kind, message = str(error["exception"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        answer.raise_for_status()
        raise OSError(f"the datanode answers with status {answer.status_code}") from None
    raise _KINDS.get(kind, OSError)(f"{kind}: {message}")


def _expect_answers(session: Any) -> None:
    """Have all requests of a session fail if the server falls silent."""
    from requests.adapters import HTTPAdapter

    class Impatient(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> Any:
            return super().send(*args, **{**options, "timeout": options.get("timeout") or SILENCE})

    if type(session.get_adapter("http://")) is HTTPAdapter:
        for scheme in ("http://", "https://"):
            session.mount(scheme, Impatient(pool_connections=THREADS, pool_maxsize=THREADS))
