"""Ranks of a training as children of this process, forked after the imports, so that starting them takes no time.

As a script: ``rank_processes.py ROOT WORLD SEED`` trains undisturbed to ROOT/calm, then to ROOT/killed, where it kills
everything at random moments: by both signals, and while a checkpoint is being written.
"""

import contextlib
import io
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as the first optimizer would, in each rank
import typer

sys.path.insert(0, str(Path(__file__).parents[2]))
from recipes.common import checkpoint, train
from recipes.common.ranks import SIGTERM_STATUS
from recipes.common.steps import Stepper


def start(root: Path, exp: Path, world: int, override: tuple[str, ...] = (), torn_save: int = 0) -> list[int]:
    """Pids of ``world`` ranks. ``torn_save``: rank 0 kills itself in the middle of writing that file; -1: rank 0 gets
    SIGTERM in its first validation."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            _be_rank(root, exp, rank, world, port, override, torn_save)
        pids.append(pid)
    return pids


def _be_rank(root: Path, exp: Path, rank: int, world: int, port: int, override: tuple[str, ...], torn: int) -> None:
    os.setsid()
    exp.mkdir(parents=True, exist_ok=True)
    log = os.open(exp / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR="127.0.0.1")
    train.VALID_BATCHES = 1
    if torn < 0 and rank == 0:
        _end_in_validation()
    elif torn and rank == 0:
        checkpoint.torch.save = _Torn(torn)  # type: ignore[attr-defined]
    status = 99
    try:
        train.main(root / "data", exp, root / "config.yaml", "shard", "", "", list(override), log_keys=True)
    except typer.Exit as end:
        status = end.exit_code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(status)


def _end_in_validation() -> None:
    losses = Stepper.losses

    def with_signal(stepper: Any, batch: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return losses(stepper, batch)

    setattr(Stepper, "losses", with_signal)  # noqa: B010 (mypy forbids the other)


class _Torn:
    """``torch.save`` whose n-th call is killed half-way."""

    def __init__(self, number: int) -> None:
        self.left, self.save = number, torch.save

    def __call__(self, value: Any, file: Any) -> None:
        self.left -= 1
        if self.left:
            self.save(value, file)
            return
        buffer = io.BytesIO()
        self.save(value, buffer)
        file.write(buffer.getvalue()[: buffer.tell() // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def wait(pids: list[int], seconds: float = 60) -> list[int]:
    """Exit statuses; a signal's is negative. When one rank was killed, the others are killed too."""
    statuses: dict[int, int] = {}
    end = time.monotonic() + seconds
    while len(statuses) < len(pids):
        for pid in set(pids) - statuses.keys():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        if -signal.SIGKILL in statuses.values() or time.monotonic() > end:
            kill(pids, signal.SIGKILL)
        time.sleep(0.005)
    kill(pids, signal.SIGKILL)  # workers
    return [statuses[pid] for pid in pids]


def kill(pids: list[int], number: int) -> None:
    """SIGKILL to the ranks with their workers; another signal to the ranks, one after the other."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
                time.sleep(0.02)


def disturb(root: Path, exp: Path, world: int, rng: random.Random) -> None:
    """Train, killed at random moments, until it ends."""
    plan = ["term", "kill", "torn"]
    rng.shuffle(plan)
    for attempt, how in enumerate(["valid", *plan, "none"]):
        pids = start(root, exp, world, torn_save={"torn": rng.randint(1, 4), "valid": -1}.get(how, 0))
        if how in ("term", "kill"):
            wait_for_step(exp, attempt + 1, rng.randint(1, 5), pids)
            time.sleep(rng.uniform(0, 0.05))
            kill(pids, signal.SIGTERM if how == "term" else signal.SIGKILL)
        statuses = wait(pids)
        print(f"attempt {attempt}: {how}, exit statuses {statuses}", flush=True)
        allowed = {"term": {0, SIGTERM_STATUS}, "valid": {SIGTERM_STATUS}, "none": {0}}.get(how)
        assert allowed is None or set(statuses) <= allowed, (exp / "rank0.log").read_text()
        if set(statuses) == {0}:
            return


def wait_for_step(exp: Path, run: int, count: int, pids: list[int]) -> None:
    """Until this run has done ``count`` steps, or has ended."""
    log, end = exp / f"keys.rank0.run{run}.log", time.monotonic() + 60
    while not (log.exists() and log.read_text().count('"step"') >= count) and time.monotonic() < end:
        if os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.002)


def main(root: Path, world: int, seed: int) -> None:
    """See above."""
    assert wait(start(root, root / "calm", world)) == [0] * world, (root / "calm" / "rank0.log").read_text()
    disturb(root, root / "killed", world, random.Random(seed))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
