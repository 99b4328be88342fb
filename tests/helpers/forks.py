"""``uio`` in forks of one process that has imported what takes seconds, for tests of what commands write and say.

All else is as in a process of its own: arguments, folder, environment, pipes, the end of the interpreter. Tests of how
a command starts, is interrupted or killed start it themselves.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing import util
from pathlib import Path

__all__ = ["Forks"]

HEAVY = ["soundfile", "torch", "torchdata.nodes", "uio_pipes.api", "uio_pipes.prep.convert", "uio_pipes.prep.verify"]
LONGEST = 1 << 17  # bytes of a request
FREE = 200  # file descriptors from here on are nobody's


class Forks:
    """Runs a script; the process that forks starts with its first run."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, arguments: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run ``script arguments``, until all that holds its output has ended."""
        if self.server is None:
            self._start()
        pipes = [os.pipe(), os.pipe()]
        request = json.dumps([[self.script, *arguments], str(cwd), env]).encode()
        with ThreadPoolExecutor(2) as pool:
            try:
                socket.send_fds(self.socket, [request], [end for _, end in pipes])
                for _, end in pipes:
                    os.close(end)
                out, err = pool.map(_read, (begin for begin, _ in pipes))
                code = int(self.socket.recv(LONGEST))
            except BaseException:  # pytest's timeout
                self.stop()
                raise
        return subprocess.CompletedProcess([self.script, *arguments], code, out, err)

    def _start(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = theirs.fileno()
        self.server = subprocess.Popen(
            [sys.executable, __file__, str(number)], pass_fds=[number], start_new_session=True
        )
        theirs.close()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the process, and what it has forked."""
        if self.server is not None:
            os.killpg(self.server.pid, signal.SIGKILL)
            self.server.wait()
            self.server = None
            self.socket.close()


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        return file.read()


def serve(client: socket.socket) -> None:
    """Fork for every request, one after the other; the fork does it, and returns as a script ends."""
    for name in HEAVY:
        import_module(name)
    gc.freeze()  # what is here is not looked through again in every fork
    while True:
        request, files, _, _ = socket.recv_fds(client, LONGEST, 2)
        if not request:
            return
        if not (child := os.fork()):
            client.close()
            _run(*json.loads(request), files)
            return
        for file in files:
            os.close(file)
        client.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(command: list[str], cwd: str, env: dict[str, str], files: list[int]) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = command[1:]
    sys.path[0] = str(Path(command[0]).parent)
    _fork_pool_server()
    runpy.run_path(command[0], run_name="__main__")


def _fork_pool_server() -> None:
    """Fork what becomes the fork server of a pool of helpers, if the command has one: now, while there is no thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not (child := os.fork()):
        ours.close()
        _be_pool_server(theirs)
        os._exit(0)
    theirs.close()
    spawn = util.spawnv_passfds

    def start(path: str, command: list[str], files: Sequence[int]) -> int:
        if "multiprocessing.forkserver" not in command[-1]:
            return spawn(path, command, files)
        socket.send_fds(ours, [json.dumps([command[-1], files]).encode()], files)
        return child

    util.spawnv_passfds = start


def _be_pool_server(parent: socket.socket) -> None:
    request, files, _, _ = socket.recv_fds(parent, LONGEST, 9)
    if request:  # else the command has ended
        code, numbers = json.loads(request)
        files = [fcntl.fcntl(file, fcntl.F_DUPFD, FREE) for file in files]
        for file, number in zip(files, numbers, strict=True):
            os.dup2(file, number)
            os.close(file)
        exec(code, {})


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
