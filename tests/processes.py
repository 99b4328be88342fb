"""Runs a test file as a script in processes of its own, bounded in time, and leaves none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["launch"]

TESTS = Path(__file__).parent


def launch(command: list[str], timeout: float = 90) -> str:
    """The output of ``python command``. Its children end with it. Raises: AssertionError if it fails."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
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
