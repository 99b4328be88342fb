"""Killed and resumed on a GPU: the batches and the losses are bit by bit those of an undisturbed training."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from corpus import Corpus
from processes import environment
from trained_and_killed import SAVED, Training

SCRIPT = Path(__file__).with_name("trained_and_killed.py")


@pytest.mark.usefixtures("deterministic")
def test_losses_after_a_kill_are_bit_equal(plain_corpus: Corpus, device: torch.device, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    command = [sys.executable, SCRIPT, device.type, plain_corpus.list, checkpoint]
    threads = str(torch.get_num_threads())  # sums depend on it
    killed = subprocess.run(
        command, env=environment(OMP_NUM_THREADS=threads), stderr=subprocess.PIPE, text=True, check=False
    )
    assert killed.returncode == -9, killed.stderr[-2000:]
    calm = list(Training(device.type, str(plain_corpus.list)).steps())
    resumed = Training(device.type, str(plain_corpus.list))
    resumed.load(checkpoint)
    assert len(calm) == 13
    assert list(resumed.steps()) == calm[SAVED:]
