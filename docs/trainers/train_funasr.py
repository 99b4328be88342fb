"""Training with FunASR: run it again after a kill, and it goes on."""

from pathlib import Path

import torch
import uio_pipes as uio
from funasr.register import tables
from funasr.train_utils.trainer_ds import Trainer


class Split:
    """In place of a DataLoader: FunASR sets the epoch of its batch_sampler."""

    def __init__(self, loader):
        self.loader = self.batch_sampler = loader

    def __iter__(self):
        return iter(self.loader)

    def __len__(self):
        return 0  # only FunASR's log says it: of tars, it is not known beforehand


@tables.register("dataloader_classes", "uio")
class Dataloader:
    data_split_num = 1

    def __init__(self, output_dir, **conf):  # conf: the whole configuration
        self.newest = Path(output_dir, "model.pt")
        names = {"feats": "speech", "feats_lengths": "speech_lengths"}
        corpus = uio.from_shard_list("data/shards.list", shuffle=True)
        pipeline = corpus.decode_audio().fbank(80).batch(4).pad(names=names)
        self.train = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
        self.dev = uio.Loader(pipeline, seed=777, partition=False)

    def build_iter(self, epoch, data_split_i=0, start_step=0):
        self.train.set_epoch(epoch)
        if start_step:  # counts from the last resume: the checkpoint knows better
            self.train.skip(torch.load(self.newest)["step_in_epoch"])
        return Split(self.train), Split(self.dev)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(80, 1)
        self.register_buffer("step", torch.tensor(0))

    def forward(self, speech, speech_lengths, keys, **others):
        if self.training:
            self.step += 1
            print(f"step {self.step}:", *keys)
        return self.layer(speech).square().mean(), {}, torch.tensor(len(keys))


conf = {"output_dir": "exp", "dataset_conf": {"dataloader": "uio"}}
model = Model()  # from here on: what funasr/bin/train_ds.py does
trainer = Trainer(
    device="cpu",
    output_dir="exp",
    max_epoch=2,
    save_checkpoint_interval=3,
    validate_interval=6,
    avg_keep_nbest_models_type="loss",
)
optim = torch.optim.SGD(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.ConstantLR(optim)
parts = {"model": model, "optim": optim, "scheduler": scheduler}
dataloader = tables.dataloader_classes[conf["dataset_conf"]["dataloader"]](**conf)
trainer.resume_checkpoint(**parts)
for epoch in range(trainer.start_epoch, trainer.max_epoch):
    train, dev = dataloader.build_iter(epoch, start_step=trainer.start_step)
    loaders = {"dataloader_train": train, "dataloader_val": dev}
    trainer.train_epoch(
        **parts, **loaders, epoch=epoch, start_step=trainer.start_step
    )
    trainer.start_step = 0
    trainer.validate_epoch(model=model, dataloader_val=dev, epoch=epoch + 1)
    trainer.step_in_epoch = 0
    trainer.save_checkpoint(epoch + 1, **parts)
trainer.close()
