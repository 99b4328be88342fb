"""Checkpoints: there when complete, passed over when torn, the last K kept."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes.common import checkpoint


def save(exp: Path, step: int, ranks: int = 1, keep: int = 3, moment: checkpoint.Moment = "") -> Path:
    for rank in reversed(range(ranks)):  # the first rank comes last: here nobody waits for it
        parts: dict[str, Any] = {f"rank_{rank}.pt": {"loader": {}, "weights": torch.full((1000,), float(step))}}
        if rank == 0:
            parts["model.pt"] = {"step": step, "world_size": ranks, "weights": torch.full((1000,), float(step))}
        name = checkpoint.name_of(step, moment)
        checkpoint.save(exp, name, parts, keep, first=rank == 0, barrier=lambda: None)
    return exp / "checkpoints" / name


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
    for _ in range(2):
        checkpoint.clear(tmp_path, before)  # never removes what may be of use to somebody
    aside = torn.with_name(".damaged." + torn.name)
    assert sorted((tmp_path / "checkpoints").iterdir()) == [aside, before]
    damage_again = save(tmp_path, 4, ranks=2)
    damage(damage_again / file)
    checkpoint.clear(tmp_path, before)
    assert aside.exists()
    assert aside.with_name(aside.name + ".1").exists()


def test_none_intact_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    assert checkpoint.to_resume(tmp_path) is None
    for step in (2, 4):
        cut(save(tmp_path, step) / "model.pt")
    with pytest.raises(checkpoint.Damaged, match=r"checkpoints: no checkpoint in it is intact; move it away"):
        checkpoint.to_resume(tmp_path)
    assert len(list((tmp_path / "checkpoints").glob("step_*"))) == 2


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), MemoryError(), RuntimeError("not enough memory: you tried to allocate")]
)
def test_an_error_that_may_pass_is_no_damage(tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    save(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", fail)
        with pytest.raises(type(error)):
            checkpoint.to_resume(tmp_path)
    if isinstance(error, RuntimeError):
        return
    monkeypatch.setattr(zipfile.ZipFile, "testzip", fail)
    with pytest.raises(type(error)):
        checkpoint.to_resume(tmp_path)


def test_the_one_before_the_validation_gives_way(tmp_path: Path) -> None:
    save(tmp_path, 4, keep=2)
    before = save(tmp_path, 6, keep=2, moment="_dev")
    assert checkpoint.newest(tmp_path) == before
    assert checkpoint.newest(tmp_path) != save(tmp_path, 6, keep=2, moment="_end")
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step_00000004", "step_00000006_end"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a.pt", {"a": 1})
    with pytest.raises(Exception, match="pickle"):
        checkpoint.write(tmp_path / "a.pt", {"a": lambda: None})
    assert torch.load(tmp_path / "a.pt") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
