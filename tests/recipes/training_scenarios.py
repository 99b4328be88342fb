"""As a script, with a prepared folder: trainings whose outcome ``test_training.py`` looks at."""

import signal
import sys
from pathlib import Path

import torch
from rank_processes import kill, start, wait, wait_for_step


def run(root: Path, name: str, world: int, *override: str) -> None:
    """One training, to its end."""
    statuses = wait(start(root, root / name, world, override))
    assert statuses == [0] * world, (statuses, (root / name / "rank0.log").read_text())


def main(root: Path) -> None:
    """All of them."""
    for precision in ("bf16", "fp16"):
        run(root, precision, 1, f"train.precision={precision}", "train.epochs=1", "data.num_workers=0")
    for uneven in ("stop", "join", "share"):
        run(root, uneven, 2, f"train.uneven={uneven}", "train.epochs=2", "train.accumulate=1")
    # Stopped in the middle of an epoch on two ranks, and on with one rank and two workers.
    pids = start(root, root / "moved", 2, ("train.uneven=join", "train.save_every=1"))
    wait_for_step(root / "moved", 1, 3, pids)
    kill(pids, signal.SIGTERM)
    wait(pids)
    run(root, "moved", 1, "data.num_workers=2", "train.uneven=join")
    # Stopped in the middle of an epoch of one lane, and on with two ranks.
    pids = start(root, root / "wider", 1)
    wait_for_step(root / "wider", 1, 3, pids)
    kill(pids, signal.SIGTERM)
    wait(pids)
    assert wait(start(root, root / "wider", 2)) == [1, 1]
    # A checkpoint that the disk has torn.
    run(root, "torn", 1, "train.epochs=1")
    newest = max((root / "torn" / "checkpoints").glob("step_*")) / "model.pt"
    newest.write_bytes(newest.read_bytes()[:-500])
    run(root, "torn", 1, "train.epochs=1")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
