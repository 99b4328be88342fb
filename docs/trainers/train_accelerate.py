"""Training with Accelerate: run it again after a kill, and it goes on."""

from pathlib import Path

import accelerate
import torch
import uio_pipes as uio

accelerator = accelerate.Accelerator(cpu=True)
corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = corpus.decode_audio().fbank(80).batch(4).pad()
# after the Accelerator, which starts the process group
loader = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)
model = torch.nn.Linear(80, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.register_for_checkpointing(uio.Gathered(loader))

folder = Path("checkpoints")
step = max((int(path.name) for path in folder.glob("[0-9]*")), default=0)
if step:
    accelerator.load_state(str(folder / str(step)))
for epoch in range(loader.epoch, 2):
    loader.set_epoch(epoch)  # goes on in the middle if the state is of this epoch
    for batch in loader:
        step += 1
        print(f"step {step} rank {accelerator.process_index}:", *batch["keys"])
        loss = model(batch["feats"].to(accelerator.device)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            accelerator.save_state(str(folder / "unfinished"))  # on all ranks
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:  # a kill leaves no half checkpoint
                (folder / "unfinished").rename(folder / str(step))
            accelerator.wait_for_everyone()
accelerator.end_training()
