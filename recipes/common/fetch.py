"""Downloads that continue where they were interrupted (by HTTP ranges), and are checked before they get their name."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from uio_pipes.base.processes import try_lock

__all__ = ["FetchFailed", "Remote", "bring", "check", "fetch", "mirrored"]

BLOCK = 1 << 20
TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 6  # in a row without a byte
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that may soon be over


class FetchFailed(Exception):
    """The file could not be downloaded, or it is another file; the message says what to do."""


@dataclass(frozen=True)
class Remote:
    """A published file, with its length in bytes and its MD5 in hexadecimal."""

    url: str
    size: int
    md5: str

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]


def fetch(remote: Remote, path: Path, pause: float = 1.0) -> bool:
    """Download ``remote`` to ``path``; return False if it is there already (then only its length is compared).

    The part that has arrived is kept in ``path`` + ``.partial``, and the next call continues it, after a kill too.
    ``pause``: seconds before the second attempt, doubled for each further one. Raises: FetchFailed.
    """
    if path.is_file() and path.stat().st_size == remote.size:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("ab") as file, _locked(file, partial), _bar() as bar:
        if partial.stat().st_size > remote.size:
            file.truncate(0)
        _check_space(remote, partial)
        _bring(remote, file, bar, pause)
        file.flush()
        try:
            check(remote, partial, bar)
        except FetchFailed:
            partial.unlink()
            raise
        partial.rename(path)
    return True


def bring(remote: Remote, path: Path) -> None:
    """Download ``remote`` to ``path``, or check the file that is there by other ways. Raises: FetchFailed."""
    if not fetch(remote, path):
        with _bar() as bar:
            check(remote, path, bar)


def mirrored(remotes: Iterable[Remote], address: str) -> tuple[Remote, ...]:
    """Return the same files at another address."""
    return tuple(replace(remote, url=f"{address.rstrip('/')}/{remote.name}") for remote in remotes)


def check(remote: Remote, path: Path, bar: Progress) -> None:
    """Compare length and MD5. Raises: FetchFailed."""
    digest, size = hashlib.md5(usedforsecurity=False), path.stat().st_size
    task = bar.add_task(f"checking {remote.name}", total=size)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            bar.advance(task, len(block))
    if (size, digest.hexdigest()) != (remote.size, remote.md5):
        raise FetchFailed(
            f"{path} is damaged, or not the file at {remote.url}: {size} bytes, MD5 {digest.hexdigest()}, instead of "
            f"{remote.size} bytes, MD5 {remote.md5}. Delete it, and the same command fetches it again"
        )


@contextmanager
def _locked(file: BinaryIO, path: Path) -> Iterator[None]:
    if not try_lock(file.fileno()):
        raise FetchFailed(f"another process is downloading {path}; wait for it, or end it")
    yield


def _check_space(remote: Remote, partial: Path) -> None:
    missing, free = remote.size - partial.stat().st_size, shutil.disk_usage(partial.parent).free
    if missing > free:
        raise FetchFailed(
            f"{partial.parent} has {free / 1e9:.1f} GB left, {remote.name} needs {missing / 1e9:.1f} GB more; make "
            "room, or choose another folder"
        )


def _bring(remote: Remote, file: BinaryIO, bar: Progress, pause: float) -> None:
    """Append the missing part. After a failure begin again, at most ``ATTEMPTS`` times in a row without a byte."""
    task = bar.add_task(remote.name, total=remote.size, completed=file.tell())
    failures = 0
    while (have := file.seek(0, 2)) < remote.size:
        problem = ""
        try:
            for size in _receive(remote, file, have):
                bar.update(task, completed=size)
        except (OSError, http.client.HTTPException) as error:
            problem = _problem(error, remote)
        file.flush()
        failures = 0 if file.tell() > have else failures + 1
        if file.tell() < remote.size and failures == ATTEMPTS:
            raise FetchFailed(
                f"{remote.url} cannot be fetched: {problem or 'the server ends too early'}. The same command goes on "
                f"after {file.tell()} bytes; or put the file into {Path(file.name).parent} yourself"
            )
        if failures:
            time.sleep(pause * 2 ** (failures - 1))


def _problem(error: Exception, remote: Remote) -> str:
    """Describe the failure if another attempt may help. Raises: FetchFailed if not."""
    if isinstance(error, urllib.error.HTTPError) and error.code not in PASSING:
        raise FetchFailed(f"{remote.url}: the server says {error.code} {error.reason}; try another mirror") from error
    return str(getattr(error, "reason", error)) or repr(error)


def _receive(remote: Remote, file: BinaryIO, have: int) -> Iterator[int]:
    """Send one request; yield the number of bytes that are there so far."""
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(remote.url, headers={**headers, "Accept-Encoding": "identity"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if have and response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = file.truncate(0)  # a server without ranges: from the beginning
        _check_length(remote, have, response.headers.get("Content-Length"))
        while block := response.read1(BLOCK):
            file.write(block)
            have += len(block)
            yield have


def _check_length(remote: Remote, have: int, announced: str | None) -> None:
    if announced is not None and have + int(announced) != remote.size:
        raise FetchFailed(
            f"{remote.url} is {have + int(announced)} bytes long instead of {remote.size}: another file; try another "
            "mirror"
        )


def _bar() -> Progress:
    """Return a bar that counts bytes."""
    columns = (TextColumn("{task.description:<28}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True))
