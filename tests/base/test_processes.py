"""Processes of a pool: what Ctrl-C does to them."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from uio_pipes.base.processes import uninterrupted


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_fork_server_never_sees_ctrl_c() -> None:
    code = """
from multiprocessing import forkserver
from uio_pipes.base.processes import pool_context
pool_context([])
print(open(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    blocked = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("SigBlk"))
    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1


def test_a_temporary_folder_with_a_long_name_is_no_place_for_a_fork_server() -> None:
    """Its socket lies there, whose name may have 108 bytes."""
    code = """
from uio_pipes.base.processes import pool_context
if __name__ == "__main__":
    context = pool_context([])
    process = context.Process(target=print, args=(context.get_start_method(),))
    process.start()
    process.join()
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        script, long = Path(short) / "script.py", Path(short) / ("long" * 20)
        script.write_text(code)
        long.mkdir()
        for folder, method in ((short, "forkserver"), (str(long), "spawn")):
            command, environment = [sys.executable, str(script)], {**os.environ, "TMPDIR": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            assert done.stdout == f"{method}\n", done.stderr


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, though CI may run with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_is_raised_behind_what_must_not_be_interrupted() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012 (it is raised at the end)
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.usefixtures("heeded")
def test_a_process_that_is_forked_meanwhile_heeds_ctrl_c() -> None:
    with uninterrupted():
        if not (child := os.fork()):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(7)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
