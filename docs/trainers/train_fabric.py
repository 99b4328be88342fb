"""Training with Fabric: run it again after a kill, and it goes on."""

from pathlib import Path

import lightning
import torch
import uio_pipes as uio

if __name__ == "__main__":
    fabric = lightning.Fabric(accelerator="cpu", devices=2)
    fabric.launch()
    corpus = uio.from_shard_list("data/shards.list", shuffle=True)
    pipeline = corpus.decode_audio().fbank(80).batch(4).pad()
    # after launch, which starts the ranks
    loader = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
    layer = torch.nn.Linear(80, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    model, optimizer = fabric.setup(layer, optimizer)
    state = {"model": model, "optimizer": optimizer, "loader": uio.Gathered(loader)}
    state["step"] = 0
    if Path("last.ckpt").exists():
        fabric.load("last.ckpt", state)
    for epoch in range(loader.epoch, 2):
        loader.set_epoch(epoch)  # goes on in the middle if the state is of this epoch
        for batch in loader:
            state["step"] += 1
            print(f"step {state['step']} rank {fabric.global_rank}:", *batch["keys"])
            fabric.backward(model(fabric.to_device(batch["feats"])).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if state["step"] % 3 == 0:
                fabric.save("last.ckpt", state)  # on all ranks
