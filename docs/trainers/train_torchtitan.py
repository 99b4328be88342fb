"""Training with torchtitan: run it again after a kill, and it goes on."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import uio_pipes as uio
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw


class Speech(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        shards: str = "data/shards.list"

    def __init__(self, config, *, dp_world_size, dp_rank, local_batch_size, **_):
        corpus = uio.from_shard_list(config.shards, shuffle=True).decode_audio()
        pipeline = corpus.fbank(80).shuffle(100).batch(local_batch_size).pad()
        place = {"rank": dp_rank, "world_size": dp_world_size}
        self.loader = uio.Loader(pipeline, lanes=4, steps_per_epoch=6, **place)

    def __iter__(self):
        while True:  # torchtitan counts steps, not epochs
            for batch in self.loader:
                self.keys = batch["keys"]
                yield {"input": batch["feats"]}, batch["feats_lengths"]

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state_dict):
        self.loader.load_state_dict(state_dict)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
sizes = {"dp_world_size": world, "dp_rank": rank, "local_batch_size": 4}
dataloader = Speech.Config().build(**sizes)
model = torch.nn.Linear(80, 1)
fully_shard(model, mesh=dist.init_device_mesh("cpu", (world,)))
optimizers = default_adamw().build(model_parts=[model])
schedules = LRSchedulersContainer.Config()
lr_schedulers = schedules.build(optimizers=optimizers, training_steps=12)
progress = torch.nn.Module()
progress.register_buffer("step", torch.tensor(0))
saved = {"dataloader": dataloader, "model_parts": [model], "optimizers": optimizers}
saved |= {"lr_schedulers": lr_schedulers, "states": {"train_state": progress}}
saving = CheckpointManager.Config(enable=True, interval=4, last_save_model_only=False)
checkpointer = saving.build(**saved, sd_adapter=None, base_folder="outputs")
checkpointer.load()
batches = iter(dataloader)
while progress.step < 12:  # as the loop of torchtitan's Trainer
    progress.step += 1
    inputs, labels = next(batches)
    print(f"step {progress.step} rank {rank}:", *dataloader.keys)
    optimizers.zero_grad()
    model(inputs["input"]).square().mean().backward()
    optimizers.step()
    lr_schedulers.step()
    checkpointer.save(int(progress.step), last_step=bool(progress.step == 12))
checkpointer.close()
dist.destroy_process_group()
