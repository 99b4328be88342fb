"""Start a module on one or more ranks, pass signals on to it, and refuse a second one in the same folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from uio_pipes.base.processes import Busy, try_lock

__all__ = ["Busy", "Failed", "Stopped", "Topology", "launch", "sigterm_with_parent"]


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded now, since it is too late after a fork
_PR_SET_PDEATHSIG = 1


def sigterm_with_parent() -> None:
    """On Linux, have this process receive SIGTERM when its parent ends, even if that was killed by SIGKILL."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Failed(Exception):
    """The module ended with an error; it has printed the reason itself."""


class Stopped(Exception):
    """A signal ended the module; the message says that the same command continues it."""


@dataclass(frozen=True)
class Topology:
    """``nproc`` ranks on each of ``nnodes`` machines that meet at ``endpoint`` (HOST:PORT).

    Raises: ValueError if there are several machines and no endpoint.
    """

    nproc: int
    nnodes: int = 1
    endpoint: str = ""

    def __post_init__(self) -> None:
        if self.nnodes > 1 and ":" not in self.endpoint:
            raise ValueError("--nnodes above 1 needs --rdzv-endpoint HOST:PORT, the same on every machine")

    def command(self, module: str) -> list[str]:
        """Return the command that runs ``module``."""
        if self.nnodes > 1:
            meeting = ["--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint, "--rdzv_id", "uio_pipes"]
            where = ["--nnodes", str(self.nnodes), *meeting]
        elif self.nproc > 1:
            where = ["--standalone"]
        else:
            return [sys.executable, "-m", module]
        runner = [sys.executable, "-m", "torch.distributed.run", *where, "--nproc_per_node", str(self.nproc)]
        return [*runner, "-m", module]


def launch(topology: Topology, module: str, arguments: list[str], folder: Path) -> None:
    """Run ``python -m module arguments`` to its end. Ctrl-C and SIGTERM reach it as SIGTERM: a training saves first.

    Raises: Busy if a module that an earlier command started in ``folder`` is still running; Stopped after a signal;
    Failed.
    """
    # One thread each: ranks and their workers share the cores. torchrun only repeats what ranks say of a failure.
    environment = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **os.environ}
    with _lock(folder, topology) as descriptors:
        process = subprocess.Popen(
            [*topology.command(module), *arguments],
            env=environment,
            start_new_session=True,  # Ctrl-C reaches us alone
            pass_fds=descriptors,  # the lock lives as long as what was started
            preexec_fn=sigterm_with_parent,
        )
        with _signals_to(process) as signals:
            status = process.wait()
    if signals:
        name = signal.Signals(signals[0]).name
        raise Stopped(f"{module} was ended by {name}; the same command continues from what it has saved")
    if status:
        raise Failed(f"{module} ended with status {status}; what it printed above says why")


@contextlib.contextmanager
def _lock(folder: Path, topology: Topology) -> Iterator[list[int]]:
    if topology.nnodes > 1:  # the machines share the folder
        yield []
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "running").open("a+") as file:
        if not try_lock(file.fileno()):
            file.seek(0)
            raise Busy(f"{folder}: process {file.read() or '?'} is at work in it: wait for it, or end it")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield [file.fileno()]


@contextlib.contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass signals on to the process; yield the list of those that came."""
    came: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        came.append(number)
        process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
