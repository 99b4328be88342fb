"""The recipes' graphs: by data type, augmented for training, as they are for validation."""

from pathlib import Path

import pytest
import tiny

import uio_pipes as uio
from recipes.common.config import Config, ConfigError
from recipes.common.data_types import DATA_TYPES, list_of
from recipes.common.experiment import eos_of, read_tokenizer
from recipes.common.pipelines import source, train_pipeline, valid_pipeline


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.prepare(tmp_path_factory.mktemp("pipelines"))


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_all_data_types_give_every_utterance(data: Path, data_type: str) -> None:
    config = Config.load(data.parent / "config.yaml")
    for split, graph in (("train", train_pipeline), ("dev", valid_pipeline)):
        pipeline = graph(config, read_tokenizer(data / "dict"), list_of(data, split, data_type), data_type)
        batches = list(uio.Loader(pipeline))
        keys = [key for batch in batches for key in batch["keys"]]
        assert len(set(keys)) == len(keys) == sum(tiny.SIZES[: 2 if split == "dev" else None])
        assert batches[0]["feats"].shape[2] == config.model.num_mel_bins


@pytest.mark.parametrize(
    ("override", "stage"),
    [
        ("data.speeds=[0.9, 1.1]", "speed_perturb"),
        ("data.shuffle=7", "shuffle"),
        ("data.sort=7", "sort"),
        ("data.batch={type: dynamic, max_frames: 9000}", "dynamic_batch"),
        ("data.batch={type: bucket, max_frames: 9000}", "bucket_batch"),
        ("data.batch={type: static, size: 3}", "batch"),
        ("data.spec_aug={max_t: 3}", "spec_aug(max_t=3"),
    ],
)
def test_every_switch_is_a_stage(data: Path, override: str, stage: str) -> None:
    config = Config.load(data.parent / "config.yaml", [override])
    drawn = str(train_pipeline(config, read_tokenizer(data / "dict"), list_of(data, "train", "shard"), "shard"))
    assert f" {stage}" in drawn


def test_validation_is_not_augmented(data: Path) -> None:
    config = Config.load(data.parent / "config.yaml", ["data.speeds=[0.9]"])
    drawn = str(valid_pipeline(config, read_tokenizer(data / "dict"), list_of(data, "dev", "raw"), "raw"))
    assert not [stage for stage in ("speed_perturb", "spec_aug", "shuffle(", "dither=0.1") if stage in drawn]


def test_an_unknown_data_type_is_named(data: Path) -> None:
    with pytest.raises(ConfigError, match="--data-type must be one of raw, shard, indexed, not 'tar'"):
        list_of(data, "train", "tar")
    with pytest.raises(ConfigError, match="--data-type must be one of raw, shard"):
        source("x", "tar", shuffle=False)


def test_the_dictionary_must_be_there_and_whole(tmp_path: Path) -> None:
    with pytest.raises(uio.ListError, match="stage 2 writes it"):
        read_tokenizer(tmp_path)
    (tmp_path / "lang_char.txt").write_text("<blank> 0\n<unk> 1\n")
    with pytest.raises(uio.ListError, match="has no <sos/eos>"):
        eos_of(tmp_path)
