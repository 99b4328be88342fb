"""Ranks that train under NCCL, or gloo on the CPU: ``gathering_ranks.py DEVICE LIST FOLDER``, as torchrun starts it.

They stop in the middle of an epoch; rank 0 saves the gathered state, and each rank the keys that it received.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import uio_pipes as uio
from uio_pipes.run.ranks import private_group

STEPS = 3


def loader(shards: str, **options: object) -> uio.Loader:
    graph = uio.from_shard_list(shards, shuffle=True).decode_audio().shuffle(5).batch(1).pad()
    return uio.Loader(graph, seed=3, lanes=2, uneven="share", **options)  # type: ignore[arg-type]


def main(device: str, shards: str, folder: str) -> None:
    alone = os.environ["WORLD_SIZE"] == "1"
    # Two ranks cannot share a GPU in NCCL's own collectives: only the loader communicates then, in a group of its own.
    eager = {"device_id": torch.device("cuda", 0)} if device == "cuda" and alone else {}
    dist.init_process_group("nccl" if device == "cuda" else "gloo", **eager)
    ours = uio.to_device(loader(shards, num_workers=1), device)
    batches, keys = iter(ours), []
    for _ in range(STEPS):
        batch = next(batches)
        keys += batch["keys"]
        if alone or device == "cpu":  # as data-parallel training does between two batches
            total = batch["pcm"].sum()
            dist.all_reduce(total)
            assert total.device.type == device
    state = uio.gather_state(ours)
    own = [None] * dist.get_world_size()
    dist.all_gather_object(own, keys, group=private_group(range(dist.get_world_size())))
    if dist.get_rank() == 0:
        Path(folder, "found.json").write_text(json.dumps([own, state]))
    rest = sum(1 for _ in batches)  # ranks agree on the end of the epoch
    print(f"rank {dist.get_rank()}: {rest}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
