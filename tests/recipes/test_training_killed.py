"""Killed at random moments, by SIGKILL and SIGTERM, in a save too: the weights come out as if nothing had been."""

import random
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from command import programs

pytest.importorskip("tensorboard")
SCRIPT = Path(__file__).with_name("rank_processes.py")


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Return the places where two nested values differ in any bit."""
    if isinstance(one, torch.Tensor):
        return [] if torch.equal(one, other) else [where]
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        return [found for key in one for found in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, (list, tuple)):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for i, (a, b) in pairs for found in differences(a, b, f"{where}/{i}")]
    return [] if one == other else [where]


def test_same_weights_bit_by_bit_whatever_killed_it(tmp_path: Path) -> None:
    tiny.prepare(tmp_path)
    seed = random.randrange(1_000_000)
    out = programs(SCRIPT, tmp_path, 2, seed)
    print(f"seed {seed}\n{out}")  # shown if it fails
    assert out.count("attempt") >= 2
    assert "epoch 0, before its validation; the same command" in (tmp_path / "killed" / "rank0.log").read_text()
    files = sorted(path.relative_to(tmp_path / "calm") for path in (tmp_path / "calm").rglob("*.pt"))
    assert len([file for file in files if file.parts[0] == "epochs"]) == 3
    for file in files:
        calm, killed = (torch.load(tmp_path / name / file) for name in ("calm", "killed"))
        calm.pop("loader", None), killed.pop("loader", None)  # it counts how long the trainer waited
        assert not differences(calm, killed), file
    assert not list((tmp_path / "killed" / "checkpoints").glob(".*"))  # nothing half-written is left
