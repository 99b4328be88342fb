"""Codes in place of features: made once, by whole batches, and trained on as features are."""

import re
from pathlib import Path

import pytest
import speech_lm_data
import torch
from command import programs

import uio_pipes as uio
from recipes.speech_lm.config import settings_of
from recipes.speech_lm.data import features, one_a_row, pipeline, quantized
from recipes.speech_lm.model import SpeechLM
from recipes.speech_lm.quantizer import Quantizer, encode_all, nearest

CODES = [*speech_lm_data.TINY, "model.codebooks=3"]
SETTINGS = settings_of(CODES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = speech_lm_data.prepare(tmp_path_factory.mktemp("speech_lm"))
    (root / "test").symlink_to(root / "dev")
    return root


def test_each_codebook_makes_the_rest_smaller() -> None:
    draws = torch.Generator().manual_seed(4)
    frames = torch.randn(2_000, 6, generator=draws)
    model = Quantizer(3, 6)
    model.fit(frames)
    codes, lengths = model(frames.unsqueeze(0), torch.tensor([2_000]))
    assert codes.shape == (1, 2_000, 3)
    assert lengths.tolist() == [2_000]
    left = [frames]
    for number, entries in enumerate(model.entries):
        left.append(left[-1] - entries[codes[0, :, number].long()])
    errors = [float(rest.square().mean()) for rest in left]
    assert errors[1] < 0.3 * errors[0]
    assert errors[3] < 0.5 * errors[2] < 0.5 * errors[1]
    assert nearest(model.entries[0], model.entries[0]).tolist() == list(range(256))


def test_codes_take_the_place_of_features_and_are_made_once(folder: Path) -> None:
    assert encode_all(folder, SETTINGS).endswith(
        "train: 40 utterances, 0 before; dev: 4 utterances, 0 before; test: 0 utterances, 4 before"
    )
    assert "train: 0 utterances, 40 before" in encode_all(folder, SETTINGS)
    plain = {sample["key"]: sample["feat"] for sample in uio.Loader(features(folder, "train", SETTINGS))}
    saved = torch.load(next(folder.glob("quantizer-*.pt")), weights_only=True)
    model = Quantizer(3, saved["entries"].shape[-1])
    model.load_state_dict(saved)
    for sample in uio.Loader(quantized(folder, "train", SETTINGS)):
        codes, _ = model(plain[sample["key"]].unsqueeze(0), torch.tensor([1]))
        assert torch.equal(sample["feat"], codes[0])
    batch = next(iter(uio.Loader(pipeline(folder, "train", SETTINGS, shuffle=True), seed=1)))
    assert batch["feats"].shape == (int(batch["feats_lengths"].sum()), 3)
    lm = SpeechLM(SETTINGS.model, 20)
    assert torch.allclose(lm.losses(batch)[0], lm.losses(one_a_row(batch))[0])


def test_a_training_on_codes_runs(folder: Path) -> None:
    encode_all(folder, SETTINGS)
    options = [word for value in CODES for word in ("--set", value)]
    said = programs("-m", "recipes.speech_lm.train", str(folder), str(folder / "exp"), *options)
    found = [float(loss) for loss in re.findall(r"validation loss ([\d.]+)", said)]
    assert len(found) == 3
    assert found[-1] < found[0]
