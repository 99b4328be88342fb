"""The whole LibriSpeech recipe on a corpus of seconds and a model of nothing, and its options."""

import os
from pathlib import Path

import pytest
import tiny
from invoked import invoked

pytest.importorskip("espeakng_loader")
pytest.importorskip("jiwer")

from recipes.common.driver import CTC_MODES
from recipes.common.lists import read_lines
from recipes.librispeech.layout import TRAIN_PARTS
from recipes.librispeech.options import PARTS, parser
from recipes.librispeech.recipe import Recipe
from recipes.librispeech.run import main

ROOT = Path(__file__).parents[2]


def test_from_nothing_to_word_error_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Transformer and CTC alone; AISHELL's test has all modes and the export."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    options = ["--data-type", "shard", "--bpe", "40", "--set", "model.encoder=transformer", "--stop-stage", "5"]
    said = tiny.run_recipe("librispeech", tmp_path, *options, *tiny.CTC_ALONE)
    out = tmp_path / "out"
    exp = out / "shard_transformer"
    assert (out / "corpus/LibriSpeech/train-clean-100").is_dir()
    assert len(read_lines(exp / "lang_char.txt")) == 40
    for part in ("test_clean", "test_other"):
        keys = [line.split()[0] for line in read_lines(out / "data" / part / "text")]
        words = sum(len(line.split()) - 1 for line in read_lines(out / "data" / part / "text"))
        for mode in CTC_MODES:
            assert [line.split()[0] for line in read_lines(exp / f"{part}.{mode}.hyp")] == keys
            assert f" N={words} C=" in read_lines(exp / f"{part}.{mode}.wer")[-2]  # words, not letters
    assert tiny.modes_in_table(said, "WER") == list(CTC_MODES)
    assert {"test_clean", "test_other", "shard_transformer"} <= set(said[said.index("Summary") :].split())


@pytest.mark.parametrize(
    ("options", "folder", "parts"),
    [
        ([], "exp/librispeech-960", TRAIN_PARTS),
        (["--parts", "train-clean-100"], "exp/librispeech-100", TRAIN_PARTS[:1]),
        (["--parts", "train-clean-360", "train-clean-100"], "exp/librispeech-460", TRAIN_PARTS[:2]),
    ],
)
def test_parts_have_a_folder_of_their_own(options: list[str], folder: str, parts: tuple[str, ...]) -> None:
    recipe = Recipe(parser().parse_args(["--corpus", "/data", *options]))
    assert (str(recipe.out), recipe.train_parts) == (folder, parts)
    assert (recipe.pieces, recipe.average, recipe.settings.train.epochs) == (5000, 20, 70)
    assert PARTS == TRAIN_PARTS


def test_a_configuration_is_found_in_the_recipes_folder_too() -> None:
    from recipes.aishell.options import parser
    from recipes.aishell.recipe import Recipe

    recipe = Recipe(parser().parse_args(["--corpus", "/data", "--config", "conf/train_transformer.yaml"]))
    assert recipe.settings.model.encoder == "transformer"
    assert (str(recipe.exp), recipe.settings.train.epochs) == ("exp/aishell/raw_transformer", 80)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--parts", "train-clean-5"], "invalid choice: 'train-clean-5'"),
        (["--parts", "train-clean-100"], "the mini corpus has train-clean-100 alone"),
        (["--data-type", "tar"], "must be raw, shard, indexed"),
    ],
)
def test_wrong_options_say_what_is_right(options: list[str], words: str) -> None:
    result = invoked(main, options)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_a_missing_corpus_is_not_fetched_to_a_mistyped_folder(tmp_path: Path) -> None:
    where = ["--corpus", tmp_path / "none", "--out", tmp_path / "out"]
    result = invoked(main, where)
    assert (result.exit_code, (tmp_path / "none").exists()) == (1, False)
    assert "make it (mkdir) to have LibriSpeech fetched there" in result.output
    result = invoked(main, [*where, "--stage", 0])
    assert result.exit_code == 1
    assert "python -m recipes.librispeech.download" in result.output
    assert "Traceback" not in result.output
