"""The configuration: what is in it, and how it refuses what it should not be."""

from pathlib import Path
from typing import Any

import pytest

from recipes.common.config import Config, ConfigError

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize(
    "path", sorted(RECIPES.glob("*/conf/*.yaml")), ids=lambda path: f"{path.parts[-3]}-{path.stem}"
)
def test_every_recipes_configuration_is_read(path: Path) -> None:
    config = Config.load(path)
    assert config.train.epochs > 0


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\nmodel:\n")
    assert Config.load(tmp_path / "empty.yaml") == Config()


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    config = Config.of({"model": {"dim": 64}, "data": {"speeds": [0.9], "spec_aug": None, "batch": {"size": 3}}})
    config.save(tmp_path / "config.yaml")
    assert Config.load(tmp_path / "config.yaml") == config


def test_overrides(tmp_path: Path) -> None:
    Config().save(tmp_path / "config.yaml")
    text = ["train.epochs=3", "optim.learning_rate=1e-4", "data.batch.type=dynamic", "data.speeds=[1.0]"]
    config = Config.load(tmp_path / "config.yaml", text)
    assert (config.train.epochs, config.optim.learning_rate, config.data.batch.type) == (3, 1e-4, "dynamic")
    assert config.data.speeds == (1.0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modle": {}}, "no key modle; the nearest is model"),
        ({"model": {"layer": 3}}, r"no key model\.layer; the nearest is model\.layers"),
        ({"data": {"batch": {"maxframes": 3}}}, r"nearest is data\.batch\.max_frames"),
        ({"model": {"dim": "big"}}, r"model\.dim must be a whole number, not 'big'"),
        ({"model": {"dim": True}}, r"model\.dim must be a whole number, not True"),
        ({"model": {"dim": 30}}, r"model\.dim must be a multiple of 2 × heads \(8\)"),
        ({"model": {"kernel": 4}}, r"model\.kernel must be odd, not 4"),
        ({"model": {"dropout": 1.5}}, r"model\.dropout must be from 0 to 1"),
        ({"model": {"ctc_weight": 1}}, r"model\.decoder_layers must be 0 exactly where"),
        ({"model": {"decoder_layers": 0}}, r"model\.decoder_layers must be 0 exactly where"),
        ({"optim": {"learning_rate": "fast"}}, r"optim\.learning_rate must be a number"),
        ({"optim": {"warm_up": 0}}, r"optim\.warm_up must be above 0"),
        ({"train": {"uneven": "stopp"}}, r"train\.uneven must be one of share, stop, join, not 'stopp'"),
        ({"train": {"precision": 16}}, r"train\.precision must be one of fp32, bf16, fp16"),
        ({"data": {"speeds": 1.0}}, r"data\.speeds must be a list, each of it a number"),
        ({"data": {"speeds": ["x"]}}, r"data\.speeds\[0\] must be a number"),
        ({"data": {"batch": 16}}, r"data\.batch must be a block of keys \(type, size, max_frames, window\)"),
        ({"data": {"batch": {"type": "bucket", "max_frames": 100}}}, r"data\.batch\.max_frames must be at least"),
        ([1], "must be blocks"),
    ],
)
def test_what_is_wrong_is_named(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.of(values)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        Config.load(tmp_path / "missing.yaml")
    (tmp_path / "bad.yaml").write_text("train: {epochs: none}")
    with pytest.raises(ConfigError, match=r"bad\.yaml: train\.epochs must be a whole number"):
        Config.load(tmp_path / "bad.yaml")
    with pytest.raises(ConfigError, match=r"an override must be like train\.epochs=3"):
        Config.load(tmp_path / "bad.yaml", ["epochs"])
