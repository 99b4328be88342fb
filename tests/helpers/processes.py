"""Runs a test file as a script in processes of its own, bounded in time, and leaves none behind."""

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """The environment of this process, with these helpers, the examples of stages, ``folders``, and ``variables``."""
    here = Path(__file__).parent
    path = [str(here), str(here.parent), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}


def launch(command: list[str], timeout: float = 90, folders: Sequence[Path] = ()) -> str:
    """Run ``python command``, with ``folders`` on its path; return what it prints. Its children end with it.

    Raises: AssertionError if it fails.
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


def children(zombies: bool = False, of: int | None = None) -> set[int]:
    """The processes that this one, or ``of``, has started, in any of its threads; ``zombies``: ended ones, too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if int(parent) == (of or os.getpid()) and (zombies or state != "Z"):
            found.add(int(stat.parent.name))
    return found


def kill_inside(folder: Path) -> None:
    """Kill all whose working directory is ``folder``, the youngest first: forks before what waits for them."""
    while found := _inside(folder):
        for pid in sorted(found, reverse=True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _inside(folder: Path) -> list[int]:
    """Those that have ended have no working directory."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if cwd.samefile(folder):
                found.append(int(cwd.parent.name))
    return found


def left(loader: Any) -> None:
    """End the workers of another loader, which was left in the middle.

    A StatefulDataLoader and its iterator are a circle, and so are frames of an error in a worker. Left to the garbage
    collector, the iterator waits 5 seconds for each worker, in vain: the queue that would tell it has gone before.
    """
    loader._iterator = None


@contextlib.contextmanager
def raises(kind: type[Exception] | tuple[type[Exception], ...], match: str, loader: Any) -> Iterator[None]:
    """As ``pytest.raises``, of an error in a worker of another loader, whose workers end now."""
    with pytest.raises(kind, match=match) as caught:
        yield
    traceback.clear_frames(caught.tb)
    left(loader)
