"""Retries after temporary faults, and the identity of a remote file, which shows that it was changed.

The jitter comes from the operating system, so that no generator of reproducible draws is touched.
"""

from __future__ import annotations

import email.utils
import logging
import mimetypes
import random
import socket
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import NamedTuple
from urllib.parse import urlsplit

from uio_pipes.base.errors import DataError
from uio_pipes.base.memory import READ

ATTEMPTS = 8  # in a row without a byte
FEW = 3  # the same after hasty(), if nothing listens at a host that was never reached
FIRST = 0.5  # seconds: the mean wait after the first failure is 3/4 of it, then twice as long each time
LONGEST = 30.0
ASKED_LONGEST = 120.0  # the longest delay that a server can ask for
TOTAL = 600.0  # seconds for one block, even if bytes keep coming
ENOUGH = 4096  # bytes of a short answer: after fewer we wait before asking for the rest

_hasty = False
_reached: set[str] = set()  # hosts (and protocols) that have answered this process

logger = logging.getLogger("uio_pipes")
_jitter = random.SystemRandom()


class Fault(Exception):
    """A failure that may be temporary. ``got``: bytes that came before it; ``after``: the delay in seconds that the
    server asks for; ``absent``: there was no connection, as with a mistyped host or port."""

    soon = False  # True if we may ask for the rest at once

    def __init__(
        self, cause: str, got: int = 0, after: float = 0.0, reason: str = "unreadable_file", absent: bool = False
    ) -> None:
        super().__init__(cause)
        self.cause, self.got, self.after, self.reason, self.absent = cause, got, after, reason, absent


class Short(Fault):
    """Fewer bytes came than requested, which servers are allowed to send: the rest is requested."""

    def __init__(self, got: int, wanted: int) -> None:
        super().__init__(f"the server sent {got} of {wanted} bytes, and the file does not end there", got)
        self.soon = got >= ENOUGH


def hasty() -> None:
    """Give up soon on hosts that refuse the first connection or have no address, since someone waits at a terminal.

    Training does not call this: there a server that restarts is likelier than a mistyped name.
    """
    global _hasty
    _hasty = True


def is_absent(error: BaseException | None) -> bool:
    """Return whether an error comes from a refused connection or a host without an address."""
    while error is not None and not isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        error = error.__cause__ or error.__context__
    return error is not None


def keep_trying(
    step: Callable[[int], int], wanted: int, url: str, offset: int, wait: Callable[[float], object] | None = None
) -> int:
    """Call ``step(reached)`` until it returns, after each ``Fault`` with the bytes reached. Return the bytes in all.

    ``wait`` sleeps; it may raise to give up. Raises: DataError with URL, offset, attempts and the last cause.
    """
    reached = attempts = in_a_row = 0
    host = "/".join(url.split("/", 3)[:3])
    begun = time.monotonic()
    while True:
        try:
            got = step(reached)
            READ[0] += got
            _reached.add(host)
            return reached + got
        except Fault as fault:
            last = fault
        reached += last.got
        READ[:] = READ[0] + last.got, READ[1] + 1
        if reached >= wanted > 0:
            return reached
        attempts += 1
        in_a_row = 1 if last.got else in_a_row + 1
        delay = max(min(LONGEST, FIRST * 2 ** (in_a_row - 1)) * _jitter.uniform(0.5, 1), min(last.after, ASKED_LONGEST))
        delay = 0.0 if last.soon else delay
        spent = time.monotonic() - begun
        few = _hasty and last.absent and host not in _reached
        if in_a_row >= (FEW if few else ATTEMPTS) or spent + delay > TOTAL:
            changed = last.reason == "changed_file"
            remedy = "start again when the files no longer change" if changed else "check the server and the connection"
            message = f"given up after {attempts} attempts in {spent:.1f} s, the last one: {last.cause}; {remedy}"
            raise DataError(last.reason, message, url=url, offset=offset + reached)
        if in_a_row > 1:
            where = f"{url}, byte {offset + reached}"
            logger.warning(
                "%s", DataError("retry", f"{last.cause}: attempt {attempts + 1} in {delay:.1f} s", url=where)
            )
        (wait or time.sleep)(delay)


def retry_after(header: str | None) -> float:
    """Return the seconds that a ``Retry-After`` header asks for, in either of its forms; 0 without one."""
    if not header:
        return 0.0
    try:
        if header.strip().isdecimal():
            return float(header)
        when = email.utils.parsedate_to_datetime(header)
        when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):  # servers send all sorts of things
        return 0.0


class Identity(NamedTuple):
    """A remote file as the server describes it.

    ``size``: bytes; ``tag``: its ETag, or ``time:`` and the time of its last change; ``ranges``: whether the server
    sends parts of it.
    """

    size: int | None
    tag: str
    ranges: bool = True

    @property
    def stamp(self) -> str:
        """A short text by which a saved state recognizes the file."""
        if self.tag and not self.tag.startswith("time:"):
            return f"etag:{self.tag}"
        return "" if self.size is None else f"size:{self.size}"


def check_coding(coding: str | None, url: str) -> None:
    """Raise Fault if ``Content-Encoding`` says that other bytes came than the file's, or parts of them: a proxy may
    compress what nobody asked it to. Of ``a.tar.gz``, many servers say gzip and send the file as it is."""
    name = (coding or "").strip().lower().removeprefix("x-")
    if name in ("", "identity", "aws-chunked") or name == mimetypes.guess_type(urlsplit(url).path)[1]:
        return
    raise Fault(
        f"the server sends the file compressed, though it was asked not to (Content-Encoding: {name[:40]!r}): switch "
        "that off for such files"
    )


def check_same(known: Identity | None, now: Identity) -> None:
    """Raise Fault if the file has changed since the first opening. Missing details do not count as a change."""
    if known is None or (known.size, known.tag) == (now.size, now.tag):
        return
    pairs = zip(("size", "ETag"), known, now, strict=False)
    changes = [f"{n} {a} -> {b}" for n, a, b in pairs if a != b and None not in (a, b) and b != ""]
    if not changes:
        return
    raise Fault(f"the file changed while in use ({', '.join(changes)})", reason="changed_file")
