"""Locks on a folder that end with the process that holds them, whatever ends it."""

from __future__ import annotations

import fcntl
import time


class Busy(Exception):
    """Another process is at work in the folder."""


def taken(descriptor: int, patience: float = 0.0) -> bool:
    """Lock an open file for this process alone; return False if another one still holds it after ``patience`` seconds.
    (A process killed a moment ago may outlive its parent a little.)"""
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
