"""The trainer: precisions, uneven ends, other topologies, torn checkpoints, what it writes."""

from collections import Counter
from pathlib import Path

import pytest
import tiny
import torch
from command import programs

from recipes.common import checkpoint, keylog
from recipes.common.config import Config, ConfigError
from recipes.common.experiment import set_up
from recipes.common.lists import read_lines

pytest.importorskip("tensorboard")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training")
    tiny.prepare(root)
    programs(Path(__file__).with_name("training_scenarios.py"), root)
    return root


def all_keys(root: Path) -> list[str]:
    return [f"K{number:04d}" for number in range(sum(tiny.SIZES))]


def steps(exp: Path) -> int:
    newest = checkpoint.newest(exp)
    assert newest is not None
    return int(checkpoint.load_model(newest, torch.device("cpu"))["schedule"]["step"])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_trains_in_half_precision(ran: Path, precision: str) -> None:
    saved = torch.load(ran / precision / "epochs" / "epoch_000.pt")
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in saved["model"].values())
    newest = checkpoint.newest(ran / precision)
    assert newest is not None
    scaler = checkpoint.load_model(newest, torch.device("cpu"))["scaler"]
    assert bool(scaler) == (precision == "fp16")


def test_each_way_to_end_leaves_out_what_it_says(ran: Path) -> None:
    for epoch in range(2):
        joined, stopped, shared = (
            keylog.check_epoch(ran / way, epoch, all_keys(ran)) for way in ("join", "stop", "share")
        )
        assert joined.exact
        assert len(stopped.missing) > len(shared.missing) <= 8  # at most one batch, of a step for one rank alone
        assert not stopped.repeated
        assert not shared.repeated
    assert steps(ran / "stop") < steps(ran / "share") < steps(ran / "join")


def test_goes_on_with_one_rank_and_two_workers(ran: Path) -> None:
    runs = keylog.runs(ran / "moved")
    assert Counter((run.world_size, run.num_workers) for run in runs) == {(2, 1): 2, (1, 2): 1}
    assert max(run.resumed_step for run in runs) >= 3
    for epoch in range(3):
        assert keylog.check_epoch(ran / "moved", epoch, all_keys(ran)).exact


def test_a_torn_checkpoint_is_passed_over(ran: Path) -> None:
    log = (ran / "torn" / "rank0.log").read_text()
    assert "is passed over: model.pt" in log
    saved = torch.load(ran / "torn" / "epochs" / "epoch_000.pt")
    assert steps(ran / "torn") == saved["step"]
    assert len(list((ran / "torn" / "checkpoints").glob(".damaged.step_*"))) == 1


def test_more_ranks_than_lanes_wait_for_the_next_epoch(ran: Path) -> None:
    last = read_lines(ran / "wider" / "rank0.log")[-1]
    assert last.startswith("rank 0: the checkpoint's epoch was dealt to 1 lane; go on with at most 1 rank until")


def test_keeps_the_last_checkpoints_and_every_epoch(ran: Path) -> None:
    names = sorted(path.name for path in (ran / "moved" / "checkpoints").iterdir())
    assert len(names) == 2
    assert names[-1].endswith("_end")
    assert [path.name for path in sorted((ran / "moved" / "epochs").iterdir())] == [f"epoch_00{i}.pt" for i in range(3)]


def test_writes_a_line_every_n_steps_and_a_summary(ran: Path) -> None:
    log = (ran / "join" / "rank0.log").read_text().splitlines()
    lines = [line for line in log if line.startswith("epoch") and "frames/s" in line]
    assert [line.split()[3] for line in lines] == [str(step) for step in range(2, steps(ran / "join") + 1, 2)]
    assert all(word in lines[0] for word in ("loss", "ctc", "attention", "lr", "padding", "waiting"))
    assert any(line.startswith("best epoch:") for line in log)
    assert not [line for line in read_lines(ran / "join" / "rank1.log") if "frames/s" in line]


def test_writes_curves(ran: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(ran / "join" / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    wanted = {"train/loss", "train/learning_rate", "speed/frames_per_second", "speed/padding_ratio"}
    assert wanted | {"speed/waiting_share", "valid/loss", "data/hours"} <= tags
    assert [event.step for event in events.Scalars("train/loss")] == list(range(2, steps(ran / "join") + 1, 2))


def test_another_model_or_dictionary_does_not_fit_an_experiment(ran: Path, tmp_path: Path) -> None:
    other = Config.load(ran / "config.yaml", ["model.dim=32"])
    with pytest.raises(ConfigError, match=r"dim: 16 then, 32 now"):
        set_up(ran / "join", ran / "data", other)
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "lang_char.txt").write_text("<blank> 0\n<unk> 1\n<sos/eos> 2\n")
    with pytest.raises(ConfigError, match="which the experiment began with"):
        set_up(ran / "join", tmp_path, Config.load(ran / "config.yaml"))
