"""Training with NeMo: run it again after a kill, and it goes on."""

from pathlib import Path

import lightning.pytorch as pl
import uio_pipes as uio
from lightning.pytorch.callbacks import ModelCheckpoint
from nemo.collections.asr.models import EncDecCTCModel
from omegaconf import OmegaConf


def in_order(batch):
    names = ("pcm", "pcm_length", "target", "target_lengths")
    return tuple(batch[name] for name in names)


class Model(EncDecCTCModel):
    def training_step(self, batch, index):
        print(f"step {self.global_step + 1}:", *batch["keys"])
        return super().training_step(in_order(batch), index)

    def validation_step(self, batch, index, dataloader_idx=0):
        return super().validation_step(in_order(batch), index, dataloader_idx)


lines = Path("data/lang_char.txt").read_text().splitlines()
tokens = [line.split()[0] for line in lines][1:]
tokenizer = uio.CharTokenizer({token: label for label, token in enumerate(tokens)})
config = OmegaConf.create(
    f"""
sample_rate: 16000
preprocessor:
  _target_: nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor
  features: 80
encoder:
  _target_: nemo.collections.asr.modules.ConvASREncoder
  feat_in: 80
  activation: relu
  conv_mask: true
  jasper:
    - {{filters: 16, kernel: [5], stride: [2], dilation: [1],
       repeat: 1, dropout: 0.0, residual: false}}
decoder:
  _target_: nemo.collections.asr.modules.ConvASRDecoder
  feat_in: 16
  num_classes: {len(tokens)}
  vocabulary: {tokens}
optim: {{name: sgd, lr: 0.001}}
"""
)
corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = corpus.decode_audio().tokenize(tokenizer).batch(4).pad(value={"target": 0})
train = uio.LightningLoader(pipeline, seed=777, num_workers=1, lanes=4)
dev = uio.LightningLoader(pipeline, validation=True)
trainer = pl.Trainer(
    accelerator="cpu",
    devices=1,
    max_steps=24,  # two epochs
    callbacks=[ModelCheckpoint("checkpoints", save_last=True, every_n_train_steps=3)],
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(Model(config, trainer), train, dev, ckpt_path="last")
