"""Training with Lightning: run it again after a kill, and it goes on."""

import lightning
import torch
import uio_pipes as uio
from lightning.pytorch.callbacks import ModelCheckpoint


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(80, 1)

    def training_step(self, batch, index):
        place = f"step {self.global_step + 1} rank {self.global_rank}:"
        print(place, *batch["keys"])
        return self.layer(batch["feats"]).square().mean()

    def validation_step(self, batch, index):
        loss = self.layer(batch["feats"]).square().mean()
        self.log("dev_loss", loss, batch_size=len(batch["keys"]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    corpus = uio.from_shard_list("data/shards.list", shuffle=True)
    pipeline = corpus.decode_audio().fbank(80).batch(4).pad()
    train = uio.LightningLoader(pipeline, seed=777, num_workers=1, lanes=4)
    dev = uio.LightningLoader(pipeline, validation=True)
    often = {"save_last": True, "every_n_train_steps": 3}
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        max_steps=12,  # two epochs
        callbacks=[ModelCheckpoint("checkpoints", **often)],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), train, dev, ckpt_path="last")  # the newest, if there is one
