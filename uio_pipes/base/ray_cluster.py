"""The Ray cluster of this process, imported and joined when it is needed."""

from __future__ import annotations

import os
from typing import Any

from uio_pipes.base.errors import UioError

_started = False  # Ray, by join_cluster


def import_ray(what: str) -> Any:
    """Return the package ``ray``. Raises: UioError if it is missing, which names ``what`` needs it."""
    try:
        import ray
    except ImportError as error:
        raise UioError(f"{what} needs the package: pip install 'uio_pipes[ray]'") from error
    return ray


def join_cluster(ray: Any, cores: int) -> bool:
    """Join the cluster that ``RAY_ADDRESS`` names, or start Ray with ``cores`` cores on this machine.

    Returns False if this process has joined one before.
    """
    global _started
    if ray.is_initialized():
        return False
    local = {"address": "local", "num_cpus": cores, "include_dashboard": False}
    _started = not os.environ.get("RAY_ADDRESS")
    ray.init(logging_level="ERROR", log_to_driver=False, **(local if _started else {}))
    return True


def started_here() -> bool:
    """Return whether the cluster is one that ``join_cluster`` started, for this process alone."""
    return _started
