"""Lightning's ``Trainer`` with the real package: its hooks find the state, and it shards nothing a second time."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from command import FORKS, programs
from contract import digest, keys_of
from corpus import Corpus
from journeys import small
from torch.utils.data import DataLoader

import uio_pipes as uio
from uio_pipes import LightningLoader

lightning = pytest.importorskip("lightning", reason="could not import lightning: pip install lightning")
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]  # Lightning's advice about the machine


def pipeline(path: str) -> uio.Pipeline:
    return small(path, bins=6).dynamic_batch(150).pad()


class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """Remembers which batches it was trained on."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)
        self.seen: list[str] = []
        self.keys: list[str] = []
        self.stop_after = stop_after

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        if len(self.seen) == self.stop_after:
            raise KeyboardInterrupt
        self.seen.append(digest(batch))
        self.keys += keys_of(batch)
        loss: torch.Tensor = self.layer(batch["feats"]).mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def trainer(folder: Path, every: int = 1, **options: Any) -> Any:
    checkpoints = lightning.pytorch.callbacks.ModelCheckpoint(folder, every_n_train_steps=every, save_top_k=-1)
    given = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, "callbacks": [checkpoints], **options}
    return lightning.Trainer(
        logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, **given
    )


def checkpoint(folder: Path, step: int) -> Path:
    (found,) = folder.glob(f"*step={step}.ckpt")
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_every_checkpoint_resumes_with_what_was_missing(many_shards: Corpus, tmp_path: Path, workers: int) -> None:
    options: dict[str, Any] = {"seed": 3, "num_workers": workers, "lanes": 4}
    graph = pipeline(str(many_shards.list))
    plain = uio.Loader(graph, **options)
    expected = [digest(b) for _ in range(2) for b in plain]
    model = Model()
    trainer(tmp_path).fit(model, LightningLoader(graph, **options))
    assert model.seen == expected
    epoch = len(expected) // 2
    steps = range(1, len(expected) + 1, 7) if workers == 0 else [4]
    for step in sorted({*steps, epoch - 1, epoch, epoch + 1}):
        resumed = Model()
        trainer(tmp_path / "again").fit(
            resumed, LightningLoader(graph, **options), ckpt_path=checkpoint(tmp_path, step)
        )
        assert resumed.seen == expected[step:], f"after step {step}"


@pytest.mark.parametrize("every", [{"every_n_train_steps": 1}, {"every_n_epochs": 1}], ids=str)
def test_a_resume_of_a_resume_at_an_epochs_end_goes_on(
    many_shards: Corpus, tmp_path: Path, every: dict[str, int]
) -> None:
    """Lightning takes such a checkpoint for one to begin with, and would leave the loader at its first epoch."""
    graph = pipeline(str(many_shards.list))
    plain = uio.Loader(graph, seed=3, lanes=4)
    epoch, second, third = ([digest(b) for b in plain] for _ in range(3))
    expected = epoch + second + third

    def fit(folder: Path, epochs: int, step: int = 0) -> list[str]:
        model, saved = Model(), step and next(tmp_path.glob(f"{folder.name[:-1]}/*step={step}.ckpt"))
        kept = lightning.pytorch.callbacks.ModelCheckpoint(folder, save_top_k=-1, **every)
        loader = LightningLoader(graph, seed=3, lanes=4)
        trainer(folder, max_epochs=epochs, callbacks=[kept]).fit(model, loader, ckpt_path=saved or None)
        return model.seen

    assert fit(tmp_path / "r", 1) == epoch
    assert fit(tmp_path / "rr", 2, len(epoch)) == second
    again = len(epoch) + (1 if "every_n_train_steps" in every else len(second))
    assert fit(tmp_path / "rrr", 3, again) == expected[again:]


@pytest.mark.parametrize(("loading", "goes_on"), [(LightningLoader, 5), (uio.Loader, 6)])
def test_max_steps_ends_in_mid_epoch(many_shards: Corpus, tmp_path: Path, loading: Any, goes_on: int) -> None:
    """The plain loader is one batch ahead in Lightning's checkpoints: the reason for LightningLoader."""
    graph = pipeline(str(many_shards.list))
    expected = [digest(b) for b in uio.Loader(graph, seed=3)]
    model, resumed = Model(), Model()
    trainer(tmp_path, every=5, max_steps=5).fit(model, loading(graph, seed=3))
    assert model.seen == expected[:5]
    saved = checkpoint(tmp_path, 5)
    trainer(tmp_path / "again", max_epochs=1).fit(resumed, loading(graph, seed=3), ckpt_path=saved)
    assert resumed.seen == expected[goes_on:]


def test_what_an_epoch_that_lightning_cuts_short_took_ahead_comes_in_the_next(
    many_shards: Corpus, tmp_path: Path
) -> None:
    graph = pipeline(str(many_shards.list))
    expected = [digest(b) for b in uio.Loader(graph, seed=3)]
    model = Model()
    trainer(tmp_path, limit_train_batches=3).fit(model, LightningLoader(graph, seed=3))
    assert model.seen == expected[:6]


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 4}], ids=str)
def test_epochs_of_known_length(raw_corpus: Corpus, tmp_path: Path, options: dict[str, Any]) -> None:
    graph = uio.from_raw_list(raw_corpus.list).decode_audio().fbank(num_mel_bins=6).batch(4).pad()
    plain = uio.Loader(graph, **options)
    assert len(plain) > 0
    expected = [digest(b) for _ in range(2) for b in plain]
    model = Model()
    trainer(tmp_path, every=3).fit(model, LightningLoader(graph, **options))
    assert model.seen == expected
    resumed = Model()
    trainer(tmp_path / "again").fit(resumed, LightningLoader(graph, **options), ckpt_path=checkpoint(tmp_path, 3))
    assert resumed.seen == expected[3:]


class Validated(Model):
    """Remembers what each validation was given; the first is Lightning's look at two batches."""

    def __init__(self) -> None:
        super().__init__()
        self.validations: list[list[str]] = []

    def on_validation_epoch_start(self) -> None:
        self.validations.append([])

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        self.validations[-1] += keys_of(batch)


def test_validation_is_whole_after_lightnings_sanity_check(many_shards: Corpus, tmp_path: Path) -> None:
    graph = pipeline(str(many_shards.list))
    model = Validated()
    trainer(tmp_path, num_sanity_val_steps=2).fit(
        model, LightningLoader(graph, seed=3), LightningLoader(graph, seed=3, validation=True)
    )
    sanity, *others = model.validations
    assert 0 < len(sanity) < len(many_shards.keys)
    assert [sorted(keys) for keys in others] == [list(many_shards.keys)] * 2


@pytest.mark.parametrize("options", [{"uneven": "join"}, {"lanes": 0}], ids=str)
def test_wrong_options_fail_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(uio.PipelineError, match=r"uneven='share'|lanes"):
        LightningLoader(uio.from_shard_list("a.list").decode_audio(), **options)


def test_a_loop_of_fabrics_takes_no_batch_ahead(many_shards: Corpus, tmp_path: Path) -> None:
    """So its checkpoints hold every batch that was taken."""
    graph = pipeline(str(many_shards.list))
    expected = [digest(b) for b in uio.Loader(graph, seed=3, lanes=4)]
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    loader = LightningLoader(graph, seed=3, lanes=4)
    for step, _ in enumerate(loader, 1):
        fabric.save(tmp_path / f"{step}.ckpt", {"loader": loader})
    for step in (1, len(expected) // 2, len(expected) - 1):
        resumed = LightningLoader(graph, seed=3, lanes=4)
        fabric.load(tmp_path / f"{step}.ckpt", {"loader": resumed})
        assert [digest(b) for b in resumed] == expected[step:], f"after step {step}"


def test_a_dataset_goes_on_with_the_next_epoch(many_shards: Corpus, tmp_path: Path) -> None:
    graph = pipeline(str(many_shards.list))
    ours = uio.Loader(graph, seed=3)
    expected = [digest(b) for _ in range(2) for b in ours]
    model = Model()
    trainer(tmp_path).fit(model, DataLoader(graph.as_dataset(seed=3), batch_size=None))
    assert model.seen == expected
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    loader = fabric.setup_dataloaders(DataLoader(graph.as_dataset(seed=3), batch_size=None))
    assert [digest(b) for _ in range(2) for b in loader] == expected


# Two ranks


def fit_on_ranks(settings: dict[str, Any]) -> None:
    """Train as one rank (Lightning starts the script once more for the second)."""
    folder = Path(settings["folder"])
    model = Model()
    fit = trainer(folder, every=2, devices=2, strategy="ddp", max_epochs=1)
    loader = LightningLoader(pipeline(settings["list"]), seed=3, lanes=settings["lanes"], uneven=settings["uneven"])
    fit.fit(model, loader, ckpt_path=settings["checkpoint"])
    (folder / f"rank{fit.global_rank}.json").write_text(json.dumps([model.seen, model.keys]))


def run(settings: dict[str, Any]) -> list[tuple[list[str], list[str]]]:
    """(digests, keys) of each rank."""
    folder = Path(settings["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    FORKS.prepare("lightning")
    programs(__file__, json.dumps(settings))
    return [tuple(json.loads((folder / f"rank{r}.json").read_text())) for r in range(2)]


def test_two_ranks_get_each_utterance_once_and_resume(many_shards: Corpus, tmp_path: Path) -> None:
    settings = {"list": str(many_shards.list), "lanes": 6, "uneven": "share", "checkpoint": None}
    whole = run({**settings, "folder": str(tmp_path / "whole")})
    lists = [uio.Loader(pipeline(str(many_shards.list)), seed=3, lanes=6, rank=r, world_size=2) for r in range(2)]
    own = [[digest(b) for b in loader] for loader in lists]
    fewest, steps = min(map(len, own)), sum(map(len, own)) // 2
    for (seen, _), expected in zip(whole, own, strict=True):
        assert seen[:fewest] == expected[:fewest], "its own lanes, and then a part of what is left"
        assert len(seen) == steps
    assert len({d for seen, _ in whole for d in seen} & {d for seen in own for d in seen}) == 2 * steps
    first = [keys_of(b) for loader in lists for b in loader]
    assert Counter(k for keys in first for k in keys) == Counter(many_shards.keys)
    step = 4
    saved = checkpoint(tmp_path / "whole", step)
    resumed = run({**settings, "folder": str(tmp_path / "rest"), "checkpoint": str(saved)})
    for rank in range(2):
        assert resumed[rank][0] == whole[rank][0][step:]
    alone = Model()
    loader = LightningLoader(pipeline(str(many_shards.list)), seed=3, lanes=6)
    trainer(tmp_path / "alone", max_epochs=1).fit(alone, loader, ckpt_path=saved)
    before = [d for seen in own for d in seen[:step]]
    assert Counter(before + alone.seen) == Counter(d for seen in own for d in seen), "on one rank, each batch once"


if __name__ == "__main__":
    fit_on_ranks(json.loads(sys.argv[1]))
