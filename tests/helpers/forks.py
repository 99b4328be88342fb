"""Scripts in forks of one process that has imported what takes seconds, for tests of what commands write and say.

All else is as in a process of its own: arguments, folder, environment, streams, the end of the interpreter. Tests of
how a command starts, is interrupted or killed start it themselves.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing import util
from pathlib import Path

import call

__all__ = ["Forks"]

HEAVY = ["soundfile", "rich.progress", "torch", "torchdata.nodes", "torch.utils.data", "uio_pipes.api"]
FREE = 200  # file descriptors from here on are nobody's


class Forks:
    """Runs scripts; the process that forks starts with the first of them, and ends with this one."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a Python script with arguments, until all that holds its output has ended."""
        address = self.address()
        out, err = os.pipe(), os.pipe()
        with ThreadPoolExecutor(2) as pool:
            try:
                connection = call.call(address, command, str(cwd), env, [0, out[1], err[1]])
                os.close(out[1])
                os.close(err[1])
                texts = list(pool.map(_read, (out[0], err[0])))
                with connection:
                    code = int(connection.recv(9))
            except BaseException:  # pytest's timeout
                self.stop()
                raise
        return subprocess.CompletedProcess(command, code, *texts)

    def address(self) -> str:
        """The address of the process that forks; it starts if it has not."""
        if self.server is None:
            self.folder = Path(tempfile.mkdtemp())
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self.folder / "socket"))
                listener.listen()
                number = listener.fileno()
                command = [sys.executable, __file__, str(number)]
                self.server = subprocess.Popen(
                    command, stdin=subprocess.PIPE, pass_fds=[number], start_new_session=True
                )
            atexit.register(self.stop)
        return str(self.folder / "socket")

    def stand_in(self, script: str) -> Path:
        """A program that does what ``script`` does, in a folder of its own."""
        program = Path(self.address()).with_name(Path(script).name)
        if not program.exists():
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {call.__file__} {self.address()} {script} "$@"\n')
            program.chmod(0o755)
        return program

    def stop(self) -> None:
        """End the process that forks, and the forks."""
        if self.server is not None:
            os.killpg(self.server.pid, signal.SIGKILL)
            self.server.communicate()
            self.server = None
            shutil.rmtree(self.folder)


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        return file.read()


def serve(listener: socket.socket) -> None:
    """Answer requests until stdin ends. Returns in a fork too, whose script has ended."""
    for name in HEAVY:
        import_module(name)
    gc.freeze()  # what is here is not looked through again by every fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who answer end by themselves
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(connection)
            return
        connection.close()


def _answer(connection: socket.socket) -> None:
    """Run what is asked for in a child, which returns; the parent tells its exit code."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    command, cwd, env = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    if child := os.fork():
        for file in files:
            os.close(file)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    connection.close()
    _move(files, [0, 1, 2])
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    _fork_pool_server()
    runpy.run_path(command[0], run_name="__main__")


def _move(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give open files these numbers."""
    for file, number in zip([fcntl.fcntl(file, fcntl.F_DUPFD, FREE) for file in files], numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    for file in {*files} - {*numbers}:
        os.close(file)


def _fork_pool_server() -> None:
    """Fork what becomes the fork server of a pool of helpers, if the command has one: now, while there is no thread."""
    ours, theirs = socket.socketpair()
    if not (child := os.fork()):
        ours.close()
        request, files, _, _ = socket.recv_fds(theirs, 1 << 16, 9)
        if request:  # else the command has ended
            code, numbers = json.loads(request)
            _move(files, numbers)
            exec(code, {})
        os._exit(0)
    theirs.close()
    spawn, owner, waiting = util.spawnv_passfds, os.getpid(), [ours]

    def start(path: str, command: list[str], files: Sequence[int]) -> int:
        if not waiting or os.getpid() != owner or "multiprocessing.forkserver" not in command[-1]:
            return spawn(path, command, files)
        socket.send_fds(waiting.pop(), [json.dumps([command[-1], files]).encode()], files)
        return child

    util.spawnv_passfds = start


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
