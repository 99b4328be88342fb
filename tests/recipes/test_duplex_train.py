"""The duplex model: it sees nothing of the future, learns, talks by itself, and goes on after a kill as before."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import duplex_data
import pytest
import torch
import typer
from command import programs
from invoked import invoked
from processes import environment

pytest.importorskip("tensorboard")

import uio_pipes as uio
from recipes.common import checkpoint
from recipes.common.experiment import NotTrained
from recipes.duplex.codec import encode_all
from recipes.duplex.config import settings_of
from recipes.duplex.data import TOKENIZER, batches
from recipes.duplex.evaluate import Said, Score, Turn, evaluate, in_one_go, turns, words_in
from recipes.duplex.evaluate import main as evaluate_command
from recipes.duplex.model import DuplexLM
from recipes.duplex.run import main as run
from recipes.duplex.script import MODEL, USER
from recipes.duplex.train import main
from uio_pipes.audio.timeline import Event, Timeline

ROOT = Path(__file__).parents[2]
SETTINGS = settings_of(duplex_data.TINY)
Losses = dict[int, float]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = duplex_data.prepare(tmp_path_factory.mktemp("duplex"))
    encode_all(data, SETTINGS)
    return data


def made() -> DuplexLM:
    torch.manual_seed(0)
    return DuplexLM(SETTINGS.model, TOKENIZER.vocab_size).eval()


def test_no_frame_sees_a_later_one(folder: Path) -> None:
    model, codes = made(), next(iter(uio.Loader(batches(folder, "test", SETTINGS))))["codes"]
    changed = codes.clone()
    changed[:, :, 30:] = 5
    before, after = (model(one)[0] for one in (codes, changed))
    assert all(torch.equal(one[:, :30], other[:, :30]) for one, other in zip(before, after, strict=True))
    assert not torch.equal(before[0][:, 30:], after[0][:, 30:])


def test_what_it_says_by_itself_is_the_likeliest_after_all_before(folder: Path) -> None:
    model, codes = made(), next(iter(uio.Loader(batches(folder, "test", SETTINGS))))["codes"]
    said = model.converse(codes[:, 3:])
    whole = torch.cat([said, codes[:, 3:]], dim=1)
    likeliest = torch.stack([logits.argmax(-1) for logits in model(whole)[0]], dim=1)
    assert torch.equal(said[:, :, 1:], likeliest[:, :, :-1])
    assert (said[:, :, 0] == -1).all()


def test_the_loss_weighs_each_stream(folder: Path) -> None:
    model, batch = made(), next(iter(uio.Loader(batches(folder, "test", SETTINGS))))
    loss, frames = model.losses(batch)
    assert int(frames) == int((batch["codes_lengths"] - 1).sum())
    text = batch["loss"].clone()
    text[:, 1:] = 0
    codes = batch["loss"].clone()
    codes[:, 0] = 0
    parts = [model.losses(batch | {"loss": weights})[0] for weights in (text, codes)]
    assert float(loss.detach()) == pytest.approx(float(sum(parts).detach()), rel=1e-5)  # type: ignore[union-attr]
    assert all(float(part.detach()) > 0 for part in parts)


def test_one_step_makes_the_loss_of_its_batch_smaller(folder: Path) -> None:
    model, batch = made(), next(iter(uio.Loader(batches(folder, "test", SETTINGS))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before, frames = model.losses(batch)
    torch.autograd.backward(before / frames)
    optimizer.step()
    assert float(model.losses(batch)[0].detach()) < 0.99 * float(before.detach())


def test_words_are_joined_to_what_is_said_in_one_go() -> None:
    four, comes = (TOKENIZER.tokenize(word)[1][0] for word in ("four", "comes"))
    tokens = torch.tensor([-1, 3, 0, four, 3, 3, 0, comes, 3, *[3] * 15, 0, four])
    assert words_in(tokens) == [(0.24, "four"), (0.56, "comes"), (2.0, "four")]
    assert in_one_go(words_in(tokens)) == [Said(0.24, "four comes"), Said(2.0, "four")]


def test_a_score_counts_turns_that_are_answered_in_time_and_rightly() -> None:
    asked = [(0.5, 1.0, "what"), (1.1, 1.5, "snow"), (2.2, 2.6, "thanks"), (4.0, 4.4, "grass"), (7.0, 7.5, "coal")]
    events = [Event(*times, word, USER, 1) for *times, word in asked]
    answers = [(1.8, 2.1, "snow"), (2.15, 2.4, "is"), (4.7, 5.0, "grass"), (7.9, 8.3, "coal")]
    timeline = Timeline.of([*events, *(Event(*times, word, MODEL, 0) for *times, word in answers)])
    found = turns(timeline)
    assert found == [
        Turn(1.5, Said(1.8, "snow is")),
        Turn(4.4, Said(4.7, "grass")),
        Turn(7.5, Said(7.9, "coal")),
    ], "the thanks within the answer end no turn"
    score = Score()
    score.add(found, [Said(1.6, "snow is"), Said(3.0, "grass"), Said(5.3, "snow")], 8.0)
    assert (score.turns, score.answered, score.right, score.starts, score.meant) == (3, 2, 1, 3, 2)
    assert score.soon == pytest.approx(1 + 1 + 0.5)
    score.words.update([7, 7, 8])
    assert "2 of 3 (67%); at random times they would be 31%" in str(score)


def command(folder: Path, exp: Path, *values: str) -> list[str]:
    options = [word for value in (*duplex_data.TINY, *values) for word in ("--set", value)]
    return ["-m", "recipes.duplex.train", str(folder), str(exp), *options]


def losses(said: str) -> Losses:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+)  loss ([\d.]+)", said)}


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
def calm(folder: Path) -> Losses:
    """Train without workers, and without a break."""
    return losses(programs(*command(folder, folder / "calm")))


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_same_losses_and_weights(folder: Path, calm: Losses) -> None:
    epoch, exp = len(calm) // 3, folder / "killed"
    before = killed(folder, exp, epoch + 3, "data.num_workers=1")
    after = losses(programs(*command(folder, exp, "data.num_workers=2")))
    assert epoch < min(after) <= max(before) + 1, "in the middle of the second epoch"
    assert before | after == calm
    assert {step: after[step] for step in before.keys() & after.keys()}.items() <= before.items()
    one, other = weights(folder / "calm"), weights(exp)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_the_loss_falls_and_the_model_is_scored(folder: Path, calm: Losses, capsys: pytest.CaptureFixture[str]) -> None:
    assert calm[max(calm)] < 0.8 * calm[1]
    score = evaluate(folder, folder / "calm")
    assert score.turns > 4
    assert score.words.total() >= 2 * score.turns
    assert len((folder / "calm" / "test.jsonl").read_text().splitlines()) == 4
    evaluate_command(folder, folder / "calm")
    assert str(score) in capsys.readouterr().out
    with pytest.raises(NotTrained, match=r"train first"):
        evaluate(folder, folder / "nothing")


@pytest.mark.slow
def test_other_codebooks_need_another_folder(folder: Path, calm: Losses, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        main(folder, folder / "calm", [*duplex_data.TINY, "model.hidden=16"])
    assert "the block model must be {'codebooks': 2, 'dim': 16, 'hidden': 32," in capsys.readouterr().err


@pytest.mark.slow
def test_from_nothing_to_answers(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    options = ["--out", tmp_path, "--dialogues", "8", "--set", "train.epochs=1"]
    options += [word for value in duplex_data.TINY[:-3] for word in ("--set", value)]
    result = invoked(run, options)
    assert result.exit_code == 0, result.output
    assert "questions after which the model speaks within 1 s: " in result.output
    again = invoked(run, options)
    assert again.exit_code == 0
    assert "loss" not in again.output, "there was nothing left to do"
    assert again.output.splitlines()[-1] == result.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("model.dims=3", "there is no key model.dims"),
        ("model.dropout=1.0", "model.dropout must be from 0 to below 1"),
        ("data.batch=0", "data.batch must be 1 or more"),
    ],
)
def test_wrong_settings_say_what_is_right(tmp_path: Path, option: str, words: str) -> None:
    result = invoked(run, ["--out", tmp_path, "--set", option])
    assert result.exit_code == 1
    assert words in result.output
    assert not (tmp_path / "data").exists()
