"""Under torchrun: its ranks end with it, keep others out of the folder, and tell a problem once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from command import forked

from recipes.common import checkpoint, keylog, ranks

pytest.importorskip("tensorboard")
ROOT = Path(__file__).parents[2]


def torchrun(root: Path, *override: str) -> list[str]:
    """What tells ``python`` to train on two ranks."""
    runner = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    trainer = ["-m", "recipes.common.train", str(root / "data"), str(root / "exp"), "--log-keys"]
    return [*runner, *trainer, "--config", str(root / "config.yaml"), *(f"--set={text}" for text in override)]


def wait_until(condition: object, what: str) -> None:
    assert callable(condition)
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux'")
def test_ranks_save_and_end_when_torchrun_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.prepare(tmp_path)
    monkeypatch.setattr(ranks, "PATIENCE", 0.2)
    exp, command = tmp_path / "exp", torchrun(tmp_path, "train.epochs=1000", "train.save_every=100000")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: keylog.progress(exp)[1] >= 3, "no step was done")
        with (
            pytest.raises(ranks.Busy, match=r"exp: another training .process [0-9]+. is at work in it"),
            ranks.hold(exp),
        ):
            pass
    finally:
        process.kill()
        process.wait()
    pids = [run.pid for run in keylog.runs(exp)]
    try:
        wait_until(lambda: not any(map(lives, pids)), "ranks live on")
    finally:
        for pid in filter(lives, pids):
            os.kill(pid, signal.SIGKILL)
    newest = checkpoint.to_resume(exp)
    assert newest is not None
    assert int(newest.name.split("_")[1]) == keylog.progress(exp)[1]
    monkeypatch.setattr(ranks, "PATIENCE", 5.0)
    with ranks.hold(exp):
        pass


def test_a_problem_of_all_ranks_is_told_once(tmp_path: Path) -> None:
    tiny.prepare(tmp_path)
    (tmp_path / "data" / "train" / "shards.list").unlink()
    done = forked(*torchrun(tmp_path))
    assert done.returncode == 1
    log = done.stdout + done.stderr
    assert log.count("rank 0: ") == 1
    assert "rank 1: " not in log
    assert "shards.list" in log
