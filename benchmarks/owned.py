"""The handles of a process: memory, descriptors, threads, children, shared memory files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["children", "owned", "proportional", "resident"]


def resident(pid: int) -> int:
    """Return the resident bytes of a process, without those of files; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def children(pid: int) -> list[int]:
    """Return the living children of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if _state(child) not in ("", "Z")]


def proportional(pid: int) -> int:
    """Return the memory of a process and all its descendants in bytes: what several map counts once (PSS)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        mine = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        return mine + sum(map(proportional, children(pid)))
    except OSError:  # it has ended
        return 0


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def owned() -> dict[str, int]:
    """Count the handles of this process."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,
        "threads": len(os.listdir("/proc/self/task")),
        "processes": len(children(os.getpid())),
        "shared memory files": sum(f"_{os.getpid()}_" in name for name in os.listdir("/dev/shm")),
    }
