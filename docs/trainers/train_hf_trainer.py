"""Training with Hugging Face's Trainer: run it again after a kill, and it goes on."""

from pathlib import Path

import torch
import transformers
import uio_pipes as uio


class Trainer(uio.HFTrainerMixin, transformers.Trainer):
    def training_step(self, model, inputs, *args, **options):
        place = f"step {self.state.global_step + 1} rank {self.args.process_index}:"
        print(place, *inputs["keys"])
        return super().training_step(model, inputs, *args, **options)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(80, 5)

    def forward(self, input_features, labels, keys=None):
        logits = self.layer(input_features).mean(dim=1)
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 0] % 5)
        return {"loss": loss, "logits": logits}


arguments = transformers.TrainingArguments(
    "hf", num_train_epochs=2, save_steps=3, use_cpu=True, report_to=[]
)
corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = (
    corpus.decode_audio()
    .fbank(80)
    .tokenize(uio.CharTokenizer("data/lang_char.txt"))
    .batch(4)
    .pad(
        names={"feats": "input_features", "target": "labels"},
        value={"target": -100},
    )
)
# after the TrainingArguments, which start the process group
loader = uio.Loader(pipeline, num_workers=1, lanes=4, steps_per_epoch=6)
trainer = Trainer(Model(), arguments, train_dataset=loader, eval_dataset=pipeline)
begun = any(Path("hf").glob("checkpoint-*/uio_loader.json"))
trainer.train(resume_from_checkpoint=begun)  # True: from the newest complete one
print(trainer.evaluate())
