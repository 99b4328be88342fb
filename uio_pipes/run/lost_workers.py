"""What is said when the system ends a worker, or has no room for what it shares with the trainer."""

from __future__ import annotations

import errno
import shutil
import signal

SHARED = "/dev/shm"
_AGAIN = "load the last state to go on"


def lost(pids: str, exit_code: int | None) -> RuntimeError:
    """Return the error for a worker that ended without a message; ``exit_code``: a signal's is negative."""
    if exit_code == -signal.SIGBUS:
        return RuntimeError(f"worker process {pids} met the end of memory that it shares: {_room()}; {_AGAIN}")
    if exit_code in (None, 0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGALRM):
        return RuntimeError(f"worker process {pids} was killed (out of memory?); {_AGAIN}")
    if exit_code is not None and exit_code > 0:
        what = f"ended itself with exit status {exit_code} (a function of the pipeline calls exit?)"
    else:
        name = signal.Signals(-(exit_code or 0)).name
        what = f"crashed ({name}) in compiled code: python -X faulthandler shows where"
    return RuntimeError(f"worker process {pids} {what}; {_AGAIN}")


def explained(error: Exception) -> Exception:
    """Return the error, or one with cause and remedy if there was no room in the memory that workers share."""
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None
    full |= isinstance(error, RuntimeError) and "shared memory" in str(error) and "No space left" in str(error)
    full |= isinstance(error, RuntimeError) and "torch_" in str(error) and "No space left" in str(error)
    return RuntimeError(f"{_room()}; {_AGAIN}") if full else error


def _room() -> str:
    try:
        total, _, free = shutil.disk_usage(SHARED)
        size = f"is too small ({total / 1e6:,.1f} MB, of which {free / 1e6:,.1f} are free)"
    except OSError:
        size = "is not there"
    return (
        f"{SHARED}, by which workers hand data to the trainer, {size}: give the container more (docker run "
        "--shm-size=8g, or --ipc=host; in Kubernetes a volume emptyDir with medium: Memory), or use fewer workers"
    )
