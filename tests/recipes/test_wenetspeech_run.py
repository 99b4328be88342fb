"""The recipe as its users run it: stage by stage, interrupted, again, and without a corpus."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import programs
from invoked import invoked

pytest.importorskip("espeakng_loader")
pytest.importorskip("ijson")
pytest.importorskip("moto")

from recipes.common.lists import read_lines
from recipes.wenetspeech.recipe import Recipe
from recipes.wenetspeech.run import main

ROOT = Path(__file__).parents[2]
TINY = """\
model: {channels: 4, dim: 16, heads: 2, feed_forward: 16, layers: 1, kernel: 3, decoder_layers: 1,
        decoder_feed_forward: 16, dropout: 0.0}
data: {max_frames: 1200, speeds: [], shuffle: 20, sort: 0, batch: {type: static, size: 4}, num_workers: 0}
optim: {warm_up: 5}
train: {epochs: 1, log_every: 2, save_every: 2, uneven: stop}
"""
MINI = ["--hours", "0.01", "--minutes", "0.25", "--jobs", "2"]
CTC_ALONE = ["--set", "model.decoder_layers=0", "--set", "model.ctc_weight=1"]
ALL = {"train", "dev", "test_net", "test_meeting"}


def run(*options: object) -> tuple[int, str]:
    return invoked(main, options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data stages, each on its own."""
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "tiny.yaml").write_text(TINY)
    for stage in range(-1, 4):
        options = ["--out", folder, "--stage", stage, "--stop-stage", stage, "--config", folder / "tiny.yaml"]
        status, output = run(*options, *MINI, "--shard-size", 3, "--group", "10:250", "--group", "250:1200")
        assert status == 0, output
        assert str(folder) in output.replace("\n", ""), "a stage says what it wrote"
    return folder


def test_data_stages_write_what_training_needs(folder: Path) -> None:
    data = folder / "data"
    assert {path.parent.name for path in data.glob("*/data.list")} == ALL
    assert {path.parent.name for path in data.glob("*/shards.list")} == ALL
    assert (data / "global_cmvn").is_file()
    assert read_lines(data / "dict/lang_char.txt")[:3] == ["<blank> 0", "<unk> 1", "<sos/eos> 2"]
    assert {path.parent.name for path in data.glob("train/shards/*/*.tar")} == {"10_250", "250_1200"}


def test_a_stage_can_be_run_again(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    options = ["--out", folder, "--stop-stage", 3, "--config", folder / "tiny.yaml", *MINI, "--shard-size", 3]
    status, output = run(*options, "--group", "10:250", "--group", "250:1200")
    assert status == 0, output
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path for path in before if before[path] != after[path]} == set()


def test_trains_from_s3_decodes_and_scores(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    for path in (tmp_path / "run/data").glob("*/shards.list"):
        path.write_text(path.read_text().replace(str(folder), str(tmp_path / "run")))
    options = ["--out", tmp_path / "run", "--config", folder / "tiny.yaml", "--stage", 4, "--stop-stage", 5]
    options += ["--from", "s3", "--group", "10:250", "--group", "250:1200", "--train-group", "10:250"]
    options += ["--nproc", 1, "--mode", "ctc_greedy_search", "--average", 1]
    out = programs("-m", "recipes.wenetspeech.run", *options)
    assert "s3://wenetspeech/train/shards/10_250/*.tar" in out
    assert "CER %" in out
    assert {"test_net", "exp_shard"} <= set(out[out.index("Summary") :].split())
    for part in ALL - {"train"}:
        texts = read_lines(tmp_path / "run/data" / part / "text")
        hypotheses = (tmp_path / f"run/exp_shard/{part}.ctc_greedy_search.hyp").read_text().splitlines()
        assert [line.split()[0] for line in hypotheses] == [line.split()[0] for line in texts]


@pytest.mark.parametrize("shell", [True, False])
def test_a_missing_corpus_gets_the_page_and_no_stack_trace(tmp_path: Path, shell: bool) -> None:
    options = ["--corpus", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    if shell:
        command = ["bash", str(ROOT / "recipes/wenetspeech/run.sh"), *options]
        environment = {**os.environ, "PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60)
        status, output = done.returncode, done.stdout + done.stderr
    else:
        status, output = run(*options)
    assert status == 1
    assert "https://wenet.org.cn/WenetSpeech/" in output
    assert "python -m recipes.wenetspeech.mini" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--group", "500:10"], "LOW below HIGH"),
        (["--train-group", "10:99"], "none of the groups"),
        (["--from", "s3", "--data-type", "raw"], "take --data-type shard"),
        (["--from", "http", "--group", "1:2", "--group", "2:3", "--train-group", "1:2"], "HTTP does not have"),
        (["--nnodes", "2"], "HOST:PORT"),
        (["--stage", "5", "--stop-stage", "3"], "nothing would be run"),
        (["--mode", "greedy"], "--mode must be one of ctc_greedy_search"),
        (["--mode", "attention", *CTC_ALONE], "needs a decoder"),
        (["--config", "none.yaml"], "cannot read the configuration none.yaml"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(tmp_path: Path, options: list[str], message: str) -> None:
    status, output = run("--out", tmp_path / "out", *options)
    assert status == 2
    assert message in " ".join(output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "modes"),
    [
        ([], ("ctc_greedy_search", "attention_rescoring")),
        (CTC_ALONE, ("ctc_greedy_search", "ctc_prefix_beam_search")),
        (["--mode", "attention"], ("attention",)),
    ],
)
def test_modes_are_those_that_the_model_can_do(
    folder: Path, options: list[str], modes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Recipe] = []
    monkeypatch.setattr("recipes.wenetspeech.run.print_summary", lambda recipe, seconds: told.append(recipe))
    status, output = run("--out", folder, "--stop-stage", -1, *MINI, "--num-workers", 3, *options)
    assert status == 0, output
    assert told[0].modes == modes
    assert told[0].settings.data.num_workers == 3


def test_another_subset_is_kept_out_of_the_folder(folder: Path) -> None:
    before = (folder / "data/train/data.list").read_bytes()
    status, output = run("--out", folder, "--subset", "S", "--stage", 0, "--stop-stage", 0)
    assert status == 2
    assert "holds subset L, not S: take another --out" in output
    assert (folder / "data/train/data.list").read_bytes() == before
