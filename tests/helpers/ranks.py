"""Ranks of a script, as torchrun starts them, but forked from one process that has imported all that it imports.

``ranks.py WORLD SCRIPT ARGUMENTS``: once a rank has failed, the others are killed, and its exit status is that of all.
"""

import os
import runpy
import signal
import socket
import sys
from pathlib import Path

import torch

from uio_pipes.base.processes import end_with_parent


def main(world: int, command: list[str]) -> int:
    """Run the script on ``world`` ranks. Returns in each of these, too, when its script has ended."""
    script = Path(command[0])
    sys.path[:0] = map(str, (Path(__file__).parent, Path(__file__).parents[1], script.parent))
    sys.argv = command
    torch.set_num_threads(1)
    runpy.run_path(str(script), run_name="imported")
    if torch.__version__.startswith("2.6."):
        # There it can wait for ever for gloo's threads, which wait for the GIL that it holds.
        torch.distributed.destroy_process_group = lambda *_: None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world)
    )
    pids = set[int]()
    for rank in range(world):
        if not (pid := os.fork()):
            end_with_parent()
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            runpy.run_path(str(script), run_name="__main__")
            return 0
        pids.add(pid)
    return _wait(pids)


def _wait(pids: set[int]) -> int:
    """Wait for all; the exit status of the first that failed, or 0."""
    failed = 0
    while pids:
        pid, status = os.wait()
        if pid not in pids:
            continue
        pids.remove(pid)
        if status and not failed:
            failed = os.waitstatus_to_exitcode(status)
            for other in pids:
                os.kill(other, signal.SIGKILL)
    return abs(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
