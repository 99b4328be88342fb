"""Training with WeNet: run it again after a kill, and it goes on."""

from argparse import Namespace
from pathlib import Path

import torch
import uio_pipes as uio
import yaml
from wenet.utils.checkpoint import save_checkpoint
from wenet.utils.executor import Executor
from wenet.utils.init_model import init_model

configs = yaml.safe_load("""
input_dim: 80
output_dim: 82
encoder: transformer
encoder_conf: {output_size: 8, attention_heads: 2, linear_units: 8, num_blocks: 1}
decoder: transformer
decoder_conf: {attention_heads: 2, linear_units: 8, num_blocks: 1}
model_conf: {ctc_weight: 0.3}
accum_grad: 1
grad_clip: 5
dataset_conf:
    fbank_conf: {num_mel_bins: 80, dither: 0.1}
    speed_perturb: true
    spec_aug: true
    shuffle_conf: {shuffle_size: 20}
    sort_conf: {sort_size: 10}
    batch_conf: {batch_type: static, batch_size: 4}
""")
conf = configs["dataset_conf"]
tokenizer = uio.CharTokenizer("data/lang_char.txt")
train = uio.wenet_dataset("shard", "data/shards.list", tokenizer, conf)
off = ("speed_perturb", "spec_aug", "shuffle", "list_shuffle")
cv_conf = {**conf, **dict.fromkeys(off, False)}
cv = uio.wenet_dataset("raw", "data/raw.list", tokenizer, cv_conf, partition=False)
loader = uio.Loader(train.pipeline, seed=777, num_workers=1, lanes=4)
cv_loader = uio.Loader(cv.pipeline, partition=False)


class Saving:
    """In place of train_data_loader."""

    def __iter__(self):
        for batch in loader:
            print(f"step {executor.step}:", *batch["keys"])
            yield batch
            done = executor.step - 1  # it has trained on the batch
            if done % 3 == 0:
                torch.save(optimizer.state_dict(), f"exp/optimizer{done}.pt")
                infos = {"step": done, "loader": uio.gather_state(loader)}
                save_checkpoint(model, f"exp/step_{done}.pt", infos)


Path("exp").mkdir(exist_ok=True)
steps = [int(path.stem.split("_")[1]) for path in Path("exp").glob("step_*.yaml")]
newest = f"exp/step_{max(steps)}.pt" if steps else None
model, configs = init_model(Namespace(checkpoint=newest), configs)
infos = configs.pop("init_infos")  # what WeNet has read from the checkpoint's YAML
executor = Executor(global_step=infos.get("step", 0))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
if steps:
    optimizer.load_state_dict(torch.load(f"exp/optimizer{max(steps)}.pt"))
    loader.load_state_dict(infos["loader"])
for epoch in range(loader.epoch, 2):
    configs["epoch"] = epoch
    loader.set_epoch(epoch)  # goes on in the middle if the state is of this epoch
    executor.train(
        model, optimizer, scheduler, Saving(), cv_loader, None, configs, None, None
    )
    cv_loader.set_epoch(epoch)
    print("cv:", executor.cv(model, cv_loader, configs))
