"""The Ray cluster of this process, imported and joined when it is needed."""

from __future__ import annotations

import os
from typing import Any

from uio_pipes.base.errors import UioError


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
    if ray.is_initialized():
        return False
    local = {"address": "local", "num_cpus": cores, "include_dashboard": False}
    ray.init(logging_level="ERROR", log_to_driver=False, **({} if os.environ.get("RAY_ADDRESS") else local))
    return True
