"""TRL's ``SFTTrainer``: its own tokens and labels of prompts and completions, and its own batches."""

import datasets
import trl
from chat_text import QUESTION, TURN, model, ours, tokenizer
from own_batches import LIST, ROWS, check_same

import uio_pipes as uio

rows = [{"prompt": f"{TURN}{QUESTION}{TURN}", "completion": row["txt"]} for row in ROWS]
given = {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 4, "use_cpu": True, "bf16": False}
trainer = trl.SFTTrainer(
    model,
    trl.SFTConfig("sft", report_to=[], **given),
    train_dataset=datasets.Dataset.from_list(rows),
    processing_class=tokenizer,
)
check_same(trainer.get_train_dataloader(), uio.Loader(ours(LIST)))
