"""verl's ``RLHFDataset`` of prompts about audio, in the loader that its ``PPOTrainer`` makes: messages, with paths."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from own_batches import LIST, ROWS, check_same
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

import uio_pipes as uio

QUESTION = "他说了什么"
asked = [{"role": "user", "content": f"<audio>{QUESTION}"}]
lines = [{"prompt": asked, "audios": [row["wav"]], "extra_info": {"index": row["key"]}} for row in ROWS]
Path("prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
config = OmegaConf.create({"filter_overlong_prompts": False})
dataset = RLHFDataset("prompts.jsonl", tokenizer=None, config=config, processor=object())
own = StatefulDataLoader(dataset, batch_size=4, collate_fn=collate_fn, drop_last=True)


def collate(samples: list[uio.Sample]) -> dict[str, Any]:
    prompts = np.empty(len(samples), object)
    for number, sample in enumerate(samples):
        parts = [{"type": "audio", "audio": sample["wav"]}, {"type": "text", "text": QUESTION}]
        prompts[number] = [{"role": "user", "content": parts}]
    return {"raw_prompt": prompts, "index": [sample["key"] for sample in samples]}


ours = uio.Loader(uio.from_raw_list(LIST).batch(4).pad(collate=collate, order="kept"))
check_same(({name: batch[name] for name in ("raw_prompt", "index")} for batch in own), ours)
