"""Training with icefall: run it again after a kill, and it goes on."""

from pathlib import Path

import torch
import uio_pipes as uio


class Supervised:
    """In place of lhotse's train_dl and valid_dl."""

    def __init__(self, loader):
        self.loader = self.sampler = loader

    def __iter__(self):
        for batch in self.loader:
            lengths = batch["feats_lengths"]
            supervisions = {"text": batch["txt"], "num_frames": lengths}
            supervisions["start_frame"] = torch.zeros_like(lengths)
            supervisions["sequence_idx"] = torch.arange(len(lengths))
            yield {
                "inputs": batch["feats"],
                "supervisions": supervisions,
                "keys": batch["keys"],
            }


def train_dataloaders(sampler_state_dict=None):
    corpus = uio.from_shard_list("data/shards.list", shuffle=True)
    pipeline = corpus.decode_audio().fbank(80).batch(4).pad(keep=["txt"])
    loader = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
    if sampler_state_dict is not None:
        loader.load_state_dict(sampler_state_dict)
    return Supervised(loader)


model = torch.nn.Linear(80, 1)  # from here on: what zipformer/train.py does
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
exp_dir = Path("exp")
exp_dir.mkdir(exist_ok=True)
saved, params = {}, {"batch_idx_train": 0, "cur_epoch": 1}
steps = [int(path.stem.split("-")[1]) for path in exp_dir.glob("checkpoint-*.pt")]
if steps:  # its --start-batch
    saved = torch.load(exp_dir / f"checkpoint-{max(steps)}.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    params = {name: saved[name] for name in params}
train_dl = train_dataloaders(saved.get("sampler"))
for epoch in range(params["cur_epoch"], 3):
    train_dl.sampler.set_epoch(epoch - 1)  # goes on if the state is of this epoch
    params["cur_epoch"] = epoch
    for batch in train_dl:
        params["batch_idx_train"] += 1
        print(f"step {params['batch_idx_train']}:", *batch["keys"])
        model(batch["inputs"]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if params["batch_idx_train"] % 3 == 0:  # its --save-every-n
            states = {"sampler": train_dl.sampler.state_dict(), **params}
            states |= {"model": model.state_dict()}
            states |= {"optimizer": optimizer.state_dict()}
            path = exp_dir / f"checkpoint-{params['batch_idx_train']}.pt"
            torch.save(states, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)  # a kill leaves no half of one
