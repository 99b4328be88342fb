"""Training with SpeechBrain: run it again after a kill, and it goes on."""

import json
from pathlib import Path

import speechbrain
import torch
import uio_pipes as uio
from speechbrain.utils.checkpoints import Checkpointer
from speechbrain.utils.epoch_loop import EpochCounter
from torch.utils.data import DataLoader, IterableDataset


class Batches(IterableDataset):
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def save(loader, path):
    Path(path).write_text(json.dumps(loader.state_dict()))


def load(loader, path, end_of_epoch):
    loader.load_state_dict(json.loads(Path(path).read_text()))


class Brain(speechbrain.Brain):
    def compute_forward(self, batch, stage):
        if stage == speechbrain.Stage.TRAIN:
            print(f"step {self.optimizer_step + 1}:", *batch["keys"])
        return self.modules.model(batch["feats"].to(self.device))

    def compute_objectives(self, predictions, batch, stage):
        return predictions.square().mean()

    def on_stage_end(self, stage, loss, epoch):
        if stage == speechbrain.Stage.VALID:
            meta = {"loss": loss}
            self.checkpointer.save_and_keep_only(meta, min_keys=["loss"])


corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = corpus.decode_audio().fbank(80).batch(4).pad()
train = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
dev = uio.Loader(pipeline, seed=777, partition=False)
model, epochs = torch.nn.Linear(80, 1), EpochCounter(2)
checkpointer = Checkpointer("checkpoints", {"model": model, "epochs": epochs})
checkpointer.add_recoverable("loader", train, load, save)
brain = Brain(
    {"model": model},
    opt_class=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    run_opts={
        "device": "cpu",
        "noprogressbar": True,
        "ckpt_interval_steps": 3,
        "ckpt_interval_minutes": 0,
    },
    checkpointer=checkpointer,
)
brain.fit(
    epochs,
    DataLoader(Batches(train), batch_size=None),
    DataLoader(Batches(dev), batch_size=None),
)
