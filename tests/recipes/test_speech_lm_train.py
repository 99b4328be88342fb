"""Training the speech language model: killed anywhere it goes on as before, and packing changes no loss."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import speech_lm_data
import torch
import typer
from command import programs
from invoked import invoked
from processes import environment

pytest.importorskip("tensorboard")
pytest.importorskip("jiwer")

from recipes.common import checkpoint
from recipes.speech_lm.run import main as run
from recipes.speech_lm.train import main

ROOT = Path(__file__).parents[2]
Losses = dict[int, float]


def command(folder: Path, exp: Path, *values: str) -> list[str]:
    options = [word for value in (*speech_lm_data.TINY, *values) for word in ("--set", value)]
    return ["-m", "recipes.speech_lm.train", str(folder), str(exp), *options]


def losses(said: str) -> Losses:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+)  loss ([\d.]+)", said)}


def trained(folder: Path, exp: Path, *values: str) -> Losses:
    return losses(programs(*command(folder, exp, *values)))


def killed(folder: Path, exp: Path, after: int, *values: str) -> Losses:
    """Train until that step is reported, then kill the trainer and its workers."""
    process = subprocess.Popen(
        [sys.executable, *command(folder, exp, *values)],
        env=environment(ROOT, OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        while f"step {after} " not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
    return losses(said)


def weights(exp: Path) -> dict[str, torch.Tensor]:
    newest = checkpoint.newest(exp)
    assert newest is not None
    model: dict[str, torch.Tensor] = checkpoint.load_model(newest, torch.device("cpu"))["model"]
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech_lm_data.prepare(tmp_path_factory.mktemp("speech_lm"))


@pytest.fixture(scope="module")
def calm(folder: Path) -> Losses:
    """Train without workers, and without a break."""
    return trained(folder, folder / "calm")


def test_a_killed_training_goes_on_with_the_same_losses_and_weights(folder: Path, calm: Losses) -> None:
    epoch = len(calm) // 3
    exp = folder / "killed"
    before = killed(folder, exp, epoch + 3, "data.num_workers=1")
    after = trained(folder, exp, "data.num_workers=2")
    assert epoch < min(after) <= max(before) + 1  # in the middle of the second epoch
    assert before | after == calm
    assert {step: after[step] for step in before.keys() & after.keys()}.items() <= before.items()
    assert (exp / "tensorboard").is_dir()
    one, other = weights(folder / "calm"), weights(exp)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_rows_without_packing_reach_the_same_losses(folder: Path, calm: Losses) -> None:
    unpacked = trained(folder, folder / "unpacked", "train.packed=false")
    assert list(unpacked.values()) == pytest.approx(list(calm.values()), abs=2e-3)
    assert calm[max(calm)] < 0.9 * calm[1]


def test_another_model_or_other_rows_need_another_folder(
    folder: Path, calm: Losses, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        main(folder, folder / "calm", [*speech_lm_data.TINY, "model.dim=32"])
    assert "the block model must be {'frames': 7, 'stride': 4, 'dim': 16," in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        main(folder, folder / "calm", [*speech_lm_data.TINY, "data.max_tokens=200"])
    told = capsys.readouterr().err
    assert "calm has begun with other settings or data; give another folder (--out of run.sh, EXP)" in told
    assert "max_tokens=192" in told


def test_utterances_that_are_longer_than_a_row_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = [*speech_lm_data.TINY, "train.epochs=1"]
    with pytest.raises(typer.Exit):
        main(folder, folder / "none", [*once, "data.max_tokens=5"])
    told = "pack(5, rows=3, window=10, overflow='drop') left out 40 as overflow"
    assert told in capsys.readouterr().err
    main(folder, folder / "some", [*once, "data.max_tokens=50"])
    left_out = re.findall(r"epoch 0: (\d+) utterances of (\w+) are longer than a row", capsys.readouterr().out)
    assert [part for _, part in left_out] == ["train", "dev"]
    assert all(0 < int(count) < of for (count, _), of in zip(left_out, (40, 4), strict=True))


def test_from_nothing_to_an_error_rate(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    options = ["--out", tmp_path, "--hours", "0.01", "--set", "train.epochs=1", "--set", "data.max_tokens=256"]
    options += [word for value in speech_lm_data.TINY[:5] for word in ("--set", value)]
    result = invoked(run, options)
    assert result.exit_code == 0, result.output
    assert "test.cer: CER " in result.output
    assert len((tmp_path / "exp" / "test.hyp").read_text().splitlines()) == 10
    again = invoked(run, options)
    assert again.exit_code == 0
    assert "loss" not in again.output  # there was nothing left to do
    assert again.output.splitlines()[-1] == result.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("model.dims=3", "there is no key model.dims"),
        ("data.rows=0", "data.rows must be 1 or more"),
        ("data.num_workers=-1", "data.num_workers must be 0 or more"),
    ],
)
def test_wrong_settings_say_what_is_right(tmp_path: Path, option: str, words: str) -> None:
    result = invoked(run, ["--out", tmp_path, "--set", option])
    assert result.exit_code == 1
    assert words in result.output
    assert not (tmp_path / "corpus").exists()
