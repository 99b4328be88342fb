"""Averaging, and export to torch.export and TorchScript: what is loaded again gives what the model gives."""

from pathlib import Path

import corpus
import pytest
import torch

from recipes.common import average, checkpoint, export
from recipes.common.config import Config
from recipes.common.experiment import NotTrained, load_model
from recipes.common.model import AsrModel

SIZES = {"num_mel_bins": 20, "channels": 4, "dim": 16, "heads": 2, "feed_forward": 32, "layers": 1, "kernel": 7}
HYBRID = {**SIZES, "decoder_layers": 1, "decoder_feed_forward": 32, "cmvn": False}
TRANSFORMER = {**SIZES, "decoder_layers": 0, "ctc_weight": 1, "cmvn": False, "encoder": "transformer"}
CPU = torch.device("cpu")


def make_experiment(exp: Path, model: dict[str, object], losses: tuple[float, ...] = (3.0, 1.0, 2.0)) -> Path:
    """Epochs of random weights with these validation losses."""
    exp.mkdir()
    tokens = ["<blank>", "<unk>", "<sos/eos>", "文", *"0123456789"]
    (exp / "lang_char.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(tokens)))
    config = Config.of({"model": model, "data": {"sample_rate": 8000}})
    config.save(exp / "config.yaml")
    for epoch, loss in enumerate(losses):
        torch.manual_seed(epoch)
        weights = AsrModel(config.model, len(tokens)).state_dict()
        about = {"epoch": epoch, "step": 10 * epoch, "valid_loss": loss}
        checkpoint.write(exp / "epochs" / f"epoch_{epoch:03d}.pt", {"model": weights, **about})
    return exp


def test_averages_the_best_or_the_last(tmp_path: Path) -> None:
    exp = make_experiment(tmp_path / "exp", HYBRID)
    assert [path.stem for path in average.choose(exp, best=2)] == ["epoch_001", "epoch_002"]
    assert [path.stem for path in average.choose(exp, best=1)] == ["epoch_001"]
    assert [path.stem for path in average.choose(exp, last=1)] == ["epoch_002"]
    assert len(average.choose(exp, last=9)) == 3
    average.average(exp, average.choose(exp, best=2))
    mean = load_model(exp, "average", CPU)[0].state_dict()
    one, two = (load_model(exp, exp / "epochs" / f"epoch_00{i}.pt", CPU)[0].state_dict() for i in (1, 2))
    for name, value in mean.items():
        torch.testing.assert_close(value, (one[name] + two[name]) / 2)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    exp = make_experiment(tmp_path / "exp", HYBRID, losses=())
    with pytest.raises(NotTrained, match="no epoch has ended"):
        average.choose(exp, best=1)
    with pytest.raises(ValueError, match="either the best or the last"):
        average.choose(exp, best=1, last=1)
    with pytest.raises(NotTrained, match=r"recipes\.common\.average makes it"):
        load_model(exp, "average", CPU)
    with pytest.raises(NotTrained, match="no complete checkpoint"):
        load_model(exp, "latest", CPU)
    with pytest.raises(NotTrained, match="is not an experiment"):
        load_model(tmp_path / "nothing", "latest", CPU)


@pytest.mark.parametrize("model", [HYBRID, TRANSFORMER], ids=["hybrid", "transformer"])
def test_what_was_exported_gives_what_its_model_gives_and_no_other(tmp_path: Path, model: dict[str, object]) -> None:
    exp = make_experiment(tmp_path / "exp", model, losses=(1.0, 2.0))
    which, another = (str(exp / "epochs" / f"epoch_00{i}.pt") for i in (0, 1))
    files = {path.name for path in export.export(exp, which)}
    assert files == {"encoder.pt2", "model.torchscript", *(["decoder.pt2"] if model is HYBRID else [])}
    assert (exp / "export" / "lang_char.txt").is_file()
    synthetic = export.synthetic_batches(load_model(exp, which, CPU)[0])
    assert len({batch["feats"].shape for batch in synthetic}) > 2  # batch and time are dynamic
    count, largest = export.compare(exp, which, synthetic)
    assert count == sum(len(batch["feats"]) for batch in synthetic)
    assert largest <= 1e-4
    made = corpus.raw_list(tmp_path / "raw", 9)
    real = export.real_batches(exp, str(made.list), "raw", Config.load(exp / "config.yaml"))
    assert export.compare(exp, which, real)[0] == 9
    with pytest.raises(export.ExportMismatch, match=r"encoder\.pt2 differs from the model by"):
        export.compare(exp, another, synthetic)
