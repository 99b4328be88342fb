"""Toolkits with trainers of their own, the real packages where they are installed: what docs/trainers.md says to write.

They are not among the packages of development, as they want others in versions of their own. To run it:
``uv pip install --no-deps --target FOLDER speechbrain hyperpyyaml scipy joblib …``, PYTHONPATH=FOLDER.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from contract import digest
from corpus import Corpus
from torch.utils.data import DataLoader, IterableDataset

import uio_pipes as uio

pytestmark = pytest.mark.filterwarnings("ignore")
NOT_OURS = "it wants other packages than those of development (see above)"


def pipeline(corpus: Corpus, **names: str) -> uio.Pipeline:
    graph = uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(6).shuffle(5).batch(4)
    return graph.pad(names=names or None)


def loader(corpus: Corpus, **options: Any) -> uio.Loader:
    return uio.Loader(pipeline(corpus), seed=3, lanes=4, **options)


class Batches(IterableDataset[Any]):
    """A loader for what takes nothing but a DataLoader of torch's."""

    def __init__(self, loader: uio.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        return iter(self.loader)


def save(loader: uio.Loader, path: Any) -> None:
    Path(path).write_text(json.dumps(loader.state_dict()))


def load(loader: uio.Loader, path: Any, end_of_epoch: bool) -> None:
    loader.load_state_dict(json.loads(Path(path).read_text()))


@pytest.mark.parametrize("workers", [0, 1])
def test_speechbrain_resumes_within_an_epoch(many_shards: Corpus, tmp_path: Path, workers: int) -> None:
    speechbrain = pytest.importorskip("speechbrain", reason=NOT_OURS)
    checkpoints = pytest.importorskip("speechbrain.utils.checkpoints", reason=NOT_OURS)
    counters = pytest.importorskip("speechbrain.utils.epoch_loop", reason=NOT_OURS)

    class Brain(speechbrain.Brain):  # type: ignore[misc, name-defined]
        def on_fit_start(self) -> None:
            super().on_fit_start()
            self.seen: list[str] = []

        def compute_forward(self, batch: Any, stage: Any) -> Any:
            self.seen.append(digest(batch))
            return self.modules.model(batch["feats"])

        def compute_objectives(self, predictions: Any, batch: Any, stage: Any) -> Any:
            return predictions.mean()

    def trained(steps: int | None) -> list[str]:
        data, counter = loader(many_shards, num_workers=workers), counters.EpochCounter(2)
        checkpointer = checkpoints.Checkpointer(tmp_path, recoverables={"counter": counter})
        checkpointer.add_recoverable("loader", data, custom_load_hook=load, custom_save_hook=save)
        options: dict[str, Any] = {"ckpt_interval_steps": 2, "ckpt_interval_minutes": 0}
        if steps is not None:
            options["optimizer_step_limit"] = steps
        brain = Brain(
            {"model": torch.nn.Linear(6, 1)},
            lambda parameters: torch.optim.SGD(parameters, 0.1),
            run_opts={"device": "cpu", "noprogressbar": True, **options},
            checkpointer=checkpointer,
        )
        brain.fit(counter, DataLoader(Batches(data), batch_size=None))
        found: list[str] = brain.seen
        return found

    plain = loader(many_shards)
    epochs = [[digest(batch) for batch in plain] for _ in range(2)]
    first = trained(5)
    assert first == epochs[0][:5]
    rest = trained(None)
    assert rest[: len(epochs[0]) - 4] == epochs[0][4:], "from the checkpoint after four steps on"
    assert rest[len(epochs[0]) - 4 :] == epochs[1]


def test_espnet_takes_an_iterator_factory(many_shards: Corpus) -> None:
    espnet = pytest.importorskip("espnet2.iterators.abs_iter_factory", reason=NOT_OURS)
    names = {"feats": "speech", "feats_lengths": "speech_lengths"}

    class Factory(espnet.AbsIterFactory):  # type: ignore[misc, name-defined]
        def __init__(self, loader: uio.Loader) -> None:
            self.loader = loader

        def build_iter(self, epoch: int, shuffle: bool | None = None) -> Any:
            self.loader.set_epoch(epoch)
            return ((batch.pop("keys"), batch) for batch in self.loader)

    factory = Factory(uio.Loader(pipeline(many_shards, **names), seed=3))
    for epoch in (1, 2):
        keys = []
        for utt_id, batch in factory.build_iter(epoch):
            keys += utt_id
            assert set(batch) == {"speech", "speech_lengths"}
            assert len(utt_id) == len(batch["speech"]) == len(batch["speech_lengths"])
        assert sorted(keys) == sorted(many_shards.keys)


class Sampled:
    """What FunASR and icefall take for a DataLoader: its sampler sets the epoch and has the state."""

    def __init__(self, loader: uio.Loader) -> None:
        self.loader = self.batch_sampler = self.sampler = loader

    def __iter__(self) -> Any:
        return iter(self.loader)


def test_funasr_goes_on_within_an_epoch(many_shards: Corpus, tmp_path: Path) -> None:
    funasr = pytest.importorskip("funasr.train_utils.trainer", reason=NOT_OURS)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(6, 1)
            self.seen: list[str] = []

        def forward(self, speech: torch.Tensor, speech_lengths: torch.Tensor) -> Any:
            self.seen.append(digest({"feats": speech, "feats_lengths": speech_lengths}))
            return self.layer(speech).mean(), {}, torch.tensor(1.0)

    class Splits:
        data_split_num = 1

        def __init__(self) -> None:
            names: Any = {"feats": "speech", "feats_lengths": "speech_lengths", "keys": None}
            self.loader = uio.Loader(pipeline(many_shards, **names), seed=3, lanes=4)

        def build_iter(self, epoch: int, data_split_i: int = 0, start_step: int = 0) -> Any:
            self.loader.set_epoch(epoch)
            self.loader.skip(start_step)
            return Sampled(self.loader), Sampled(self.loader)

    def trained(start_epoch: int, start_step: int) -> list[str]:
        """What ``funasr/bin/train.py`` does after it has loaded a checkpoint."""
        model, data = Model(), Splits()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        trainer = funasr.Trainer(local_rank=0, device="cpu", output_dir=str(tmp_path))
        for epoch in range(start_epoch, 2):
            ours, dev = data.build_iter(epoch, data_split_i=0, start_step=start_step)
            parts = {"model": model, "optim": optimizer, "scheduler": scheduler, "dataloader_train": ours}
            trainer.train_epoch(**parts, dataloader_val=dev, epoch=epoch, start_step=start_step)
            start_step = 0
        return model.seen

    plain = loader(many_shards)
    whole = [[digest({k: v for k, v in batch.items() if k != "keys"}) for batch in plain] for _ in range(2)]
    assert trained(0, 0) == [*whole[0], *whole[1]]
    assert trained(0, 4) == whole[0][4:] + whole[1]
    assert trained(1, 3) == whole[1][3:]


def test_what_icefall_calls(many_shards: Corpus, tmp_path: Path) -> None:
    """It is no package; these are the calls of ``zipformer/train.py`` and ``icefall/checkpoint.py`` (June 2026)."""

    class Supervised(Sampled):
        def __iter__(self) -> Any:
            for batch in self.loader:
                told = {"text": batch["txt"], "num_frames": batch["feats_lengths"]}
                yield {"inputs": batch["feats"], "supervisions": told}

    def train_dataloaders(sampler_state_dict: Any = None) -> Any:
        graph = uio.from_shard_list(many_shards.list, shuffle=True).decode_audio().fbank(6).shuffle(5).batch(4)
        ours = uio.Loader(graph.pad(keep=["txt"]), seed=3, lanes=4, num_workers=1)
        if sampler_state_dict is not None:
            ours.load_state_dict(sampler_state_dict)
        return Supervised(ours)

    def trained(epoch: int, stop: int | None = None, saved: Any = None) -> list[tuple[str, ...]]:
        train_dl, texts = train_dataloaders(saved), []
        train_dl.sampler.set_epoch(epoch - 1)
        for batch_idx, batch in enumerate(train_dl):
            assert (
                len(batch["supervisions"]["text"]) == len(batch["inputs"]) == len(batch["supervisions"]["num_frames"])
            )
            texts.append(tuple(batch["supervisions"]["text"]))
            if batch_idx + 1 == stop:
                torch.save({"sampler": train_dl.sampler.state_dict()}, tmp_path / "checkpoint.pt")
                break
        return texts

    whole = trained(2)
    assert trained(2, stop=4) == whole[:4]
    assert trained(2, saved=torch.load(tmp_path / "checkpoint.pt")["sampler"]) == whole[4:]
