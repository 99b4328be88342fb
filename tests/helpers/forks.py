"""Programs in forks of one process that has imported what takes seconds, for tests of what commands write and say.

All else is as in a process of its own: arguments, folder, environment, streams, threads and exit functions at the end.
Tests of how a command starts, is interrupted or killed start it themselves.
"""

import atexit
import contextlib
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
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import util
from pathlib import Path
from typing import NoReturn

import call
import huge_pages
from fsspec.config import conf, set_conf_env

HEAVY = [  # torch._dynamo: the first optimizer imports it; typer._adapters: the first option with a value, and pydantic
    *("torch._dynamo", "torch", "torchdata.nodes", "torch.utils.data", "torch.distributed.run"),
    *("numpy.random", "soundfile", "rich.progress", "rich.table", "typer._adapters"),
    *("uio_pipes.api", "uio_pipes.tools.cli.main", "uio_pipes.tools.reports.inspect"),
    *(f"uio_pipes.tools.data.{name}" for name in ("cmvn", "pack", "verify")),
]
FREE = 200  # file descriptors from here on are nobody's


class Forks:
    """Runs scripts; the process that forks starts with the first of them, and ends with this one."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run what may come after ``python`` (SCRIPT, -m MODULE, -c CODE) until all that holds its output has ended."""
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
                env = {**os.environ, "PYTHONHASHSEED": "77"}  # sets of strings have another order than in this process
                self.server = subprocess.Popen(
                    command, stdin=subprocess.PIPE, pass_fds=[number], start_new_session=True, env=env
                )
            atexit.register(self.stop)
        return str(self.folder / "socket")

    def prepare(self, *modules: str) -> None:
        """Let the process that forks import more, so that no fork that comes after it need do so."""
        self.address()
        assert self.server is not None
        assert self.server.stdin is not None
        self.server.stdin.write("".join(f"{module}\n" for module in modules).encode())
        self.server.stdin.flush()

    def stand_ins(self) -> Path:
        """A folder of programs that do in forks what the environment's do: uio, torchrun and python.

        torchrun runs ranks by the one that ``PYTHON_EXEC`` names; ``sys.executable`` is that of ``FORKS_PYTHON``.
        """
        begin, bin = f"exec {sys.executable} -SE {call.__file__} {self.address()}", Path(sys.executable).parent
        for name, script in (("uio", bin / "uio"), ("torchrun", bin / "torchrun"), ("python", "")):
            program = self.folder / name
            if not program.exists():
                program.write_text(f'#!/bin/sh\n{begin} {script} "$@"\n')
                program.chmod(0o755)
        return self.folder

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
    """Answer requests until stdin ends; each of its lines is a module to import."""
    _import(HEAVY)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who answer end by themselves
    told = b""
    while True:
        ready = select.select([listener, 0], [], [])[0]
        if 0 in ready:  # first: whoever asks now may have told what to import before
            if not (more := os.read(0, 1 << 16)):
                return
            *lines, told = (told + more).split(b"\n")
            _import(name for line in lines if (name := line.decode()) not in sys.modules)
            continue
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _end(partial(_answer, connection))
        connection.close()


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):  # another release of typer, or a trainer that is not installed
            import_module(name)
    gc.collect()
    gc.freeze()  # what is here is not looked through again by every fork
    huge_pages.collapse()


def _end(run: Callable[[], None]) -> NoReturn:
    """Run, and end as the interpreter does, but do not take apart torch and all other modules: it takes 0.4 s."""
    code: object = 0
    try:
        run()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255)


def _answer(connection: socket.socket) -> None:
    """Run what is asked for in a child, which returns; the parent tells its exit code."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    command, cwd, env = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    if child := os.fork():
        for file in files:
            os.close(file)
        code = _wait(connection, child)
        with contextlib.suppress(BrokenPipeError):  # nobody asks for it any more
            connection.send(b"%d" % code)
        os._exit(0)
    connection.close()
    _move(files, [0, 1, 2])
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    set_conf_env(conf)  # which fsspec did from another environment, when it was imported
    tempfile.tempdir = None  # it follows the environment
    sys.executable = env.get("FORKS_PYTHON", sys.executable)
    _fork_pool_server()
    _python(command)


def _wait(connection: socket.socket, child: int) -> int:
    """The child's exit code, once it has ended; it is told to if the program that stands for it was ended."""
    either = select.poll()
    either.register(connection, 0)  # its hang-up is told unasked
    either.register(os.pidfd_open(child), select.POLLIN)
    if connection.fileno() in dict(either.poll()):
        os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _python(command: list[str]) -> None:
    """Do what ``python`` does with these arguments."""
    sys.path[1:1] = folders = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if own := next(filter(Path.is_file, (Path(folder, "sitecustomize.py") for folder in folders)), None):
        runpy.run_path(str(own), run_name="sitecustomize")
    if command[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        command = command[1:]
    if command[0] == "-m":
        sys.argv, sys.path[0] = command[1:], os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *command[2:]], ""
        exec(command[1], {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = command, str(Path(command[0]).resolve().parent)
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
