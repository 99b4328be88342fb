"""Stages and what they start: signals are handed on, a second command is kept out, problems are told in a line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from recipes.common.launch import Busy, Failed, Topology, launch
from recipes.common.stages import Stage, check_order, run_stages

HERE = Path(__file__).parent
LAUNCH = "import sys; from pathlib import Path; from recipes.common.launch import Topology, launch;"
LAUNCH += "launch(Topology(int(sys.argv[2])), 'launched', [sys.argv[1], '-1'], Path(sys.argv[1]))"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[1])]))


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.02)


@pytest.mark.parametrize("nproc", [1, 2])
def test_runs_a_module_on_every_rank(tmp_path: Path, nproc: int) -> None:
    launch(Topology(nproc), "launched", [str(tmp_path), "0"], tmp_path)
    assert sorted(path.name for path in tmp_path.glob("ready.*")) == [f"ready.{rank}" for rank in range(nproc)]


def test_a_failure_is_one(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="status 3"):
        launch(Topology(1), "launched", [str(tmp_path), "3"], tmp_path)


def test_several_machines_meet_by_c10d() -> None:
    command = " ".join(Topology(8, 2, "host:29400").command("m"))
    meeting = "--rdzv_backend c10d --rdzv_endpoint host:29400 --rdzv_id uio_pipes"
    assert f"--nnodes 2 {meeting} --nproc_per_node 8 -m m" in command


@pytest.mark.parametrize("endpoint", ["", "node1"])
def test_several_machines_need_a_place_to_meet(endpoint: str) -> None:
    with pytest.raises(ValueError, match="--rdzv-endpoint HOST:PORT"):
        Topology(8, 2, endpoint)


@pytest.mark.parametrize(("number", "nproc"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_signals_reach_every_rank_as_sigterm(tmp_path: Path, number: int, nproc: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", LAUNCH, str(tmp_path), str(nproc)], stderr=subprocess.DEVNULL)
    for rank in range(nproc):
        wait_for(tmp_path / f"ready.{rank}")
    process.send_signal(number)
    assert process.wait(60) == 1
    assert len(list(tmp_path.glob("saved.*"))) == nproc


def test_a_second_command_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", LAUNCH, str(tmp_path), "1"], stderr=subprocess.DEVNULL)
    wait_for(tmp_path / "ready.0")
    with pytest.raises(Busy, match=f"process {process.pid} is at work"):
        launch(Topology(1), "launched", [str(tmp_path), "0"], tmp_path)
    process.kill()  # SIGKILL: what it started hears of it, and saves
    process.wait()
    wait_for(tmp_path / "saved.0")
    for _ in range(100):
        try:
            return launch(Topology(1), "launched", [str(tmp_path), "0"], tmp_path)
        except Busy:
            time.sleep(0.05)
    raise AssertionError("the folder stays locked")


def test_stages_run_in_order_and_say_what_they_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    stages = [Stage(n, f"title{n}", lambda n=n: f"wrote{n}") for n in range(-1, 4)]
    assert list(run_stages(stages, 0, 2, ["run.sh"])) == ["0: title0", "1: title1", "2: title2"]
    out = capsys.readouterr().out
    assert out.index("wrote0") < out.index("wrote1") < out.index("wrote2")
    assert "wrote-1" not in out
    assert "wrote3" not in out


@pytest.mark.parametrize(
    "command",
    [
        "run.sh --corpus x --set a.b=1 --stop-stage 4",
        "run.sh --corpus x --stage -1 --set a.b=1 --stop-stage 4",
        "run.sh --stage=2 --corpus x --set a.b=1 --stop-stage 4",
    ],
)
def test_a_known_problem_ends_in_its_words_and_the_command_to_go_on(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> str:
        raise OSError(28, "No space left on device")

    with pytest.raises(typer.Exit):
        run_stages([Stage(3, "shards", full)], -1, 6, command.split())
    out = capsys.readouterr().out
    assert "No space left on device" in out
    assert "go on with: run.sh --corpus x --set a.b=1 --stop-stage 4 --stage 3\n" in out
    with pytest.raises(ZeroDivisionError):  # a bug shows where it is
        run_stages([Stage(3, "shards", lambda: str(1 / 0))], -1, 6, [""])


def test_a_missing_stage_is_named_and_gone_back_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def never() -> str:
        raise AssertionError("run without what it needs")

    stages = [
        Stage(0, "lists", never),
        Stage(3, "shards", never, ((0, tmp_path / "list"),)),
        Stage(4, "training", never, ((3, tmp_path / "shards"),)),
    ]
    with pytest.raises(typer.Exit):
        run_stages(stages, 4, 6, ["run.sh", "--stage", "4"])
    out = capsys.readouterr().out
    assert f"there is no {tmp_path / 'list'}: run stage 0 first" in out
    assert "go on with: run.sh --stage 0" in out
    (tmp_path / "list").touch()
    with pytest.raises(typer.Exit):
        run_stages(stages, 4, 6, ["run.sh"])
    assert "run stage 3 first" in capsys.readouterr().out


def test_stages_the_wrong_way_round_are_refused() -> None:
    check_order(3, 3)
    with pytest.raises(ValueError, match="--stage 5 comes after --stop-stage 3"):
        check_order(5, 3)
