"""verl's own ``PPOTrainer`` takes prompts from a ``uio.Loader``, as docs/trainers/verl.md says; its rest needs GPUs.

Prints "the same" if the training batches of two epochs are those of a run that is stopped after four of them, and goes
on with a loader that has got the state of ``data.pt``.
"""

import types
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

import uio_pipes as uio


def collate(samples: list[uio.Sample]) -> dict[str, Any]:
    """What verl's ``collate_fn`` makes: tensors, and arrays of objects."""
    prompts = np.empty(len(samples), object)
    prompts[:] = [[{"role": "user", "content": sample["txt"]}] for sample in samples]
    keys = np.array([sample["key"] for sample in samples], object)
    return {"index": torch.arange(len(samples)), "raw_prompt": prompts, "keys": keys}


def fetched(loader: uio.Loader, count: int) -> list[str]:
    """The keys of so many training batches, each of two of the loader's."""
    config = OmegaConf.create({"data": {"train_batch_size": 8, "gen_batch_size": 4}})
    trainer: Any = types.SimpleNamespace(
        config=config, train_dataloader=loader, train_dataloader_it=None, global_steps=1
    )
    trainer._fetch_one_gen_batch = types.MethodType(PPOTrainer._fetch_one_gen_batch, trainer)
    return [str(key) for _ in range(count) for key in PPOTrainer._next_train_batch(trainer)["keys"]]


def made() -> uio.Loader:
    corpus = uio.from_shard_list("data/shards.list", shuffle=True)
    return uio.Loader(corpus.batch(4).pad(collate=collate), seed=7, lanes=4)


whole, loader, resumed = fetched(made(), 12), made(), made()
before = fetched(loader, 4)
torch.save(loader.state_dict(), "data.pt")
resumed.load_state_dict(torch.load("data.pt", weights_only=False))
epochs = [set(whole[:48]), set(whole[48:])]
print(
    "the same" if before + fetched(resumed, 8) == whole and len(epochs[0]) == len(epochs[1]) == 48 else "not the same"
)
