"""Who is at work in a folder: locks that go with the process that holds them, whatever ends it."""

from __future__ import annotations

import fcntl
import time

__all__ = ["Busy", "taken"]


class Busy(Exception):
    """Another process is at work in the folder."""


def taken(descriptor: int, patience: float = 0.0) -> bool:
    """Lock an open file for this process alone. False if another still holds it after ``patience`` seconds: one that
    was killed a moment ago may live a little longer than what started it."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        else:
            return True
