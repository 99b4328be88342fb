"""Processes of a pool, and what Ctrl-C does to them; the number of cores, by affinity, quota and ranks."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from uio_pipes.base import processes as cores
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


# Cores


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 cores without limits."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "OF_PROCESS", tmp_path / "of_process")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_limits(groups: Path) -> None:
    assert cores.cores() == 16
    write(groups / "of_process", "0::/job\n")
    write(groups / "job/cpu.max", "max 100000\n")
    assert cores.cores() == 16


@pytest.mark.parametrize(("where", "count"), [("job/step/cpu.max", 3), ("job/cpu.max", 3), ("cpu.max", 3)])
def test_a_quota_of_the_group_or_of_one_around_it(groups: Path, where: str, count: int) -> None:
    write(groups / "of_process", "0::/job/step\n")
    write(groups / where, "350000 100000\n")
    assert cores.cores() == count


def test_a_quota_of_version_1(groups: Path) -> None:
    write(groups / "of_process", "5:memory:/job\n4:cpu,cpuacct:/job\n")
    write(groups / "cpu/job/cpu.cfs_quota_us", "50000\n")
    write(groups / "cpu/job/cpu.cfs_period_us", "100000\n")
    assert cores.cores() == 1
    write(groups / "cpu/job/cpu.cfs_quota_us", "-1\n")
    assert cores.cores() == 16


def test_ranks_of_a_machine_share_its_cores(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ranks, count in (("1", 16), ("8", 2), ("64", 1), ("", 16)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert cores.cores_of_rank() == count
