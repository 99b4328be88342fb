"""The number of cores: by affinity, quota and ranks."""

import os
from pathlib import Path

import pytest

from uio_pipes.base import processes as cores


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
