"""Training with FSDP2: run it again after a kill, and it goes on."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import uio_pipes as uio
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

kind = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if kind == "cuda" else "gloo")
rank, device = dist.get_rank(), torch.device(kind, int(os.environ["LOCAL_RANK"]))
mesh = dist.init_device_mesh(kind, (dist.get_world_size(),))

corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = corpus.decode_audio().fbank(80).shuffle(100).batch(4).pad()
loader = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
layers = torch.nn.Linear(80, 64), torch.nn.Linear(64, 1)
model = torch.nn.Sequential(*layers).to(device)
for layer in [*model, model]:
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def state():
    parts = get_state_dict(model, optimizer)
    return {"model": parts[0], "optimizer": parts[1], "loader": loader}


step = 0
if saved := list(Path("checkpoints").glob("*/.metadata")):  # written last
    step = max(int(path.parent.name) for path in saved)
    dcp.load(found := state(), checkpoint_id=f"checkpoints/{step}")
    loaded = {"model_state_dict": found["model"]}
    loaded["optim_state_dict"] = found["optimizer"]
    set_state_dict(model, optimizer, **loaded)

for epoch in range(loader.epoch, 2):
    loader.set_epoch(epoch)  # goes on in the middle if the state is of this epoch
    for batch in loader:
        step += 1
        print(f"step {step} rank {rank}:", *batch["keys"])
        model(batch["feats"].to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 0:
            dcp.save(state(), checkpoint_id=f"checkpoints/{step}")
dist.destroy_process_group()
