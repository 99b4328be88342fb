"""Checkpoints: there when complete, passed over when torn, the last K kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recipes.common import checkpoint


def save(exp: Path, step: int, ranks: int = 1, keep: int = 3, ended: bool = False) -> Path:
    for rank in reversed(range(ranks)):  # the first rank comes last: here nobody waits for it
        parts: dict[str, Any] = {f"rank_{rank}.pt": {"loader": {}, "weights": torch.full((1000,), float(step))}}
        if rank == 0:
            parts["model.pt"] = {"step": step, "world_size": ranks, "weights": torch.full((1000,), float(step))}
        name = checkpoint.name_of(step, ended)
        checkpoint.save(exp, name, parts, keep, first=rank == 0, barrier=lambda: None)
    return exp / "checkpoints" / name


def test_the_newest_is_found_and_the_last_k_are_kept(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        save(tmp_path, step, keep=2)
    last = save(tmp_path, 6, keep=2, ended=True)
    assert checkpoint.newest(tmp_path) == last
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step_00000006", "step_00000006_end"]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    checkpoint.clear(tmp_path, None)


def test_the_same_step_can_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 2)
    assert checkpoint.newest(tmp_path) == save(tmp_path, 2)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(torch.full((1000,), 4.0).numpy().tobytes()) + 2000] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["model.pt", "rank_0.pt", "rank_1.pt"])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_one_is_passed_over(tmp_path: Path, file: str, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    before, torn = save(tmp_path, 2, ranks=2), save(tmp_path, 4, ranks=2)
    damage(torn / file)
    assert checkpoint.newest(tmp_path) == before
    assert file in caplog.text
    checkpoint.clear(tmp_path, before)
    assert list((tmp_path / "checkpoints").iterdir()) == [before]


def test_what_a_killed_save_left_does_not_count(tmp_path: Path) -> None:
    before = save(tmp_path, 2)
    checkpoint.write(tmp_path / "checkpoints" / ".partial.step_00000004" / "model.pt", {"world_size": 1})
    assert checkpoint.newest(tmp_path) == before
    checkpoint.clear(tmp_path, before)
    assert list((tmp_path / "checkpoints").iterdir()) == [before]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a.pt", {"a": 1})
    with pytest.raises(Exception, match="pickle"):
        checkpoint.write(tmp_path / "a.pt", {"a": lambda: None})
    assert torch.load(tmp_path / "a.pt") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
