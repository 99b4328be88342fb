"""Training with PyTorch DDP: run it again after a kill, and it goes on."""

import os

import torch
import torch.distributed as dist
import uio_pipes as uio

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local) if torch.cuda.is_available() else "cpu"

corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = corpus.decode_audio().fbank(80).shuffle(100).batch(4).pad()
loader = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
layer = torch.nn.Linear(80, 1).to(device)
model = torch.nn.parallel.DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt", weights_only=True, map_location=device)
    layer.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    step = saved["step"]

for epoch in range(loader.epoch, 2):
    loader.set_epoch(epoch)  # goes on in the middle if the state is of this epoch
    for batch in loader:
        step += 1
        print(f"step {step} rank {rank}:", *batch["keys"])
        loss = model(batch["feats"].to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            saved = {"model": layer.state_dict(), "optimizer": optimizer.state_dict()}
            # on every rank at the same step
            saved |= {"loader": uio.gather_state(loader), "step": step}
            if rank == 0:
                torch.save(saved, "last.pt.new")
                os.replace("last.pt.new", "last.pt")  # never half a checkpoint
dist.destroy_process_group()
