"""A training that is watched: ``watched_training.py LIST FOLDER STEPS``, under torchrun."""

import sys
import time

import torch.distributed as dist

import uio_pipes as uio
from uio_pipes.base.processes import end_with_parent

path, folder, steps = sys.argv[1:]
end_with_parent()
dist.init_process_group("gloo")
pipeline = uio.from_shard_list(path).decode_audio().fbank(num_mel_bins=6).repeat().batch(4).pad()
loader = uio.Loader(pipeline, steps_per_epoch=int(steps))
for _ in uio.watch(loader, every=0.02, to=folder):
    time.sleep(0.005)
dist.destroy_process_group()
