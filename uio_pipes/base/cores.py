"""The CPU cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def cores() -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quota of its control group."""
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(free, int(_quota())))


def cores_of_rank() -> int:
    """Return this rank's share of the cores, where ranks started by torchrun share those of a machine."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores() // max(1, int(ranks) if ranks.isdecimal() else 1))


def _quota() -> float:
    """Return the cores that control groups (of version 2, or 1) leave this process; a large number without a limit."""
    found = [1e9]
    for line in _text(OF_PROCESS).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds:
            found += [_share(*_text(CGROUPS / where / "cpu.max").split()) for where in _upwards(path)]
        elif "cpu" in kinds.split(","):
            for where in _upwards(path):
                folder = CGROUPS / "cpu" / where
                found.append(_share(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")))
    return min(found)


def _upwards(path: str) -> list[Path]:
    """Return a group and those around it, relative to the root of all groups."""
    here = Path(path.lstrip("/"))
    return [here, *here.parents]


def _share(quota: str = "", period: str = "") -> float:
    quota, period = quota.strip(), period.strip()
    limited = quota.isdecimal() and period.isdecimal() and int(period) > 0  # otherwise "max", or -1
    return int(quota) / int(period) if limited else 1e9


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
