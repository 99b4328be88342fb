"""The whole AISHELL recipe, from nothing to an exported model, on a corpus of seconds and a model of nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from invoked import invoked

pytest.importorskip("espeakng_loader")
pytest.importorskip("jiwer")

from recipes.aishell.run import main
from recipes.common.driver import MODES

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def test_from_nothing_to_an_exported_model_and_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = tiny.run_recipe("aishell", tmp_path)
    for wrote in (
        "corpus/data_aishell",
        "data/train/data.list",
        "data/dev/wav.scp",
        "data/dict/lang_char.txt",
        "data/test/text",
        "raw/average.pt",
        "raw/export/encoder.pt2",
        *(f"raw/test.{mode}.{suffix}" for mode in MODES for suffix in ("hyp", "cer")),
    ):
        assert (out / wrote).exists(), wrote
    assert len(json.loads((out / "data" / "global_cmvn").read_text())["mean_stat"]) == 20
    assert not (out / "data" / "train" / "shards.list").exists()
    for told in ("-1: data", "6: export", "Summary", "CER %", "in all", str(out)):
        assert told in said, told
    assert tiny.modes_in_table(said, "CER") == list(MODES)

    epochs = sorted((out / "raw" / "epochs").iterdir())
    before = [path.stat().st_mtime_ns for path in epochs]
    said = tiny.run_recipe(
        "aishell", tmp_path, "--data-type", "shard", "--bpe", "80", *tiny.CTC_ALONE, "--stage", "2", "--stop-stage", "5"
    )
    assert (out / "data" / "train" / "shards" / "shards_000000000.tar").is_file()
    assert (out / "shard" / "spm.model").is_file()
    assert all((out / "shard" / f"test.{mode}.cer").is_file() for mode in MODES[:2])
    assert not (out / "shard" / "test.attention.hyp").exists()
    assert [path.stat().st_mtime_ns for path in epochs] == before
    assert {"raw", "shard"} <= set(said[said.index("Summary") :].split())  # both in one table


def test_a_stage_that_lacks_something_says_what_makes_it(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny.RECIPE)
    where = ["--corpus", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    options = [*where, "--config", str(tmp_path / "tiny.yaml"), "--nproc", "1"]
    first = invoked(main, [*options, "--stage", "0"])
    assert first.exit_code == 1
    assert "recipes.aishell.download" in first.output
    assert "openslr.org/33" in first.output
    second = invoked(main, [*options, "--stage", "1"])
    assert second.exit_code == 1
    assert "run stage 0 first" in second.output
    third = invoked(main, [*options, "--stage", "4"])
    assert third.exit_code == 1
    assert "run stage 0 first" in third.output
    fourth = invoked(main, options)
    assert fourth.exit_code == 1
    assert f"there is no folder {tmp_path / 'none'}: make it" in fourth.output
    assert not (tmp_path / "none").exists()
    assert all("Traceback" not in result.output for result in (first, second, third, fourth))


@pytest.mark.parametrize("recipe", ["aishell", "librispeech", "wenetspeech"])
@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--help"], 0, "--stop-stage"),
        (["--stage", "2", "-h"], 0, "--beam-size"),
        (["--nonsense"], 2, "unrecognized arguments: --nonsense"),
        (["--stage", "9"], 2, "--stage"),
        (["--nproc", "-3"], 2, "argument --nproc: -3 is below 0"),
    ],
)
def test_the_script_answers_questions_before_anything_is_installed(
    recipe: str, options: list[str], status: int, words: str, tmp_path: Path
) -> None:
    fresh = tmp_path / "clone"  # without .venv, and where the setup would fail
    for folder in ("recipes", "scripts"):
        shutil.copytree(ROOT / folder, fresh / folder)
    (fresh / "scripts/setup").write_text("#!/bin/sh\necho installing; exit 9\n")
    bare = tmp_path / "python"  # Python without any package
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -s "$@"\n')
    bare.chmod(0o755)
    command = ["bash", str(fresh / f"recipes/{recipe}/run.sh"), *options]
    environment = {**os.environ, "PYTHON": str(bare), "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60)
    said = done.stdout + done.stderr
    assert (done.returncode, words in said, "installing" in said) == (status, True, False), said
    assert f"usage: recipes/{recipe}/run.sh" in said
    assert not (fresh / ".venv").exists()
