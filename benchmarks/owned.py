"""What a process owns: resident memory, descriptors, threads, children, shared memory files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["children", "owned", "resident"]

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def children(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if _state(child) not in ("", "Z")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def owned() -> dict[str, int]:
    """Handles of this process; files in /dev/shm are those of everybody who runs here."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,
        "threads": len(os.listdir("/proc/self/task")),
        "processes": len(children(os.getpid())),
        "shared memory files": sum(f"_{os.getpid()}_" in name for name in os.listdir("/dev/shm")),
    }
