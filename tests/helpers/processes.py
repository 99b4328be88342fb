"""Runs a test file as a script in processes of its own, bounded in time, and leaves none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["environment", "launch"]


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """The environment of this process, with these helpers and ``folders`` on Python's path, and with ``variables``."""
    path = [str(Path(__file__).parent), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}


def launch(command: list[str], timeout: float = 90, *folders: Path) -> str:
    """The output of ``python command``, which finds ``folders`` too; its children end with it. Raises: AssertionError
    if it fails.
    """
    process = subprocess.Popen(
        [sys.executable, *command],
        env=environment(*folders, OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of its session
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, out
    return out
