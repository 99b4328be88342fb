"""Training with TRL: run it again after a kill, and it goes on."""

from pathlib import Path

import datasets
import tokenizers
import transformers
import trl
import uio_pipes as uio

special = ["<audio>", "<user>", "<assistant>", "<end>"]
symbols = uio.CharTokenizer("data/lang_char.txt").symbols
symbols |= {symbol: len(symbols) + i for i, symbol in enumerate(special)}
words = tokenizers.Tokenizer(tokenizers.models.WordLevel(symbols, "<unk>"))
marks = {"pad_token": "<blank>", "eos_token": "<end>", "unk_token": "<unk>"}
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **marks)

corpus = uio.from_shard_list("data/shards.list", shuffle=True).decode_audio()
speech = corpus.log_mel_spectrogram(pad_or_trim=True, max_duration=3)
template = {"user": "<user>{}", "assistant": "<assistant>{}<end>"}
turns = [("user", "{wav}他说了什么"), ("assistant", "{txt}")]
place = {"places": lambda lengths: 75, "audio_token": symbols["<audio>"]}
chat = speech.chat(uio.CharTokenizer(symbols, special), template, turns, **place)
names = {"feats": "input_features", "feats_mask": "feature_attention_mask"}
names |= {"target": "input_ids", "target_mask": "attention_mask"}
unused = ["feats_lengths", "target_lengths", "labels_lengths", "labels_mask"]
unused += ["speaker"]
padding = {"value": {"target": 0, "labels": -100}, "mask": True, "transpose": True}
names |= dict.fromkeys(unused)
pipeline = chat.shuffle(100).batch(4).pad(keep=["labels"], names=names, **padding)

# a tiny Qwen2-Audio: yours comes from_pretrained
audio = {"num_mel_bins": 80, "max_source_positions": 150, "d_model": 16}
audio |= {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16}
text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
text |= {"num_attention_heads": 2, "num_key_value_heads": 2}
text["vocab_size"] = len(symbols)
parts = {"audio_config": audio, "text_config": text}
parts["audio_token_index"] = symbols["<audio>"]
config = transformers.Qwen2AudioConfig(**parts)
model = transformers.Qwen2AudioForConditionalGeneration(config)


class Trainer(uio.HFTrainerMixin, trl.SFTTrainer):
    def training_step(self, model, inputs, *args, **options):
        print(f"step {self.state.global_step + 1}:", *inputs.pop("keys"))
        return super().training_step(model, inputs, *args, **options)


given = {"dataset_kwargs": {"skip_prepare_dataset": True}}
given |= {"remove_unused_columns": False, "use_cpu": True, "bf16": False}
arguments = trl.SFTConfig(
    "sft", num_train_epochs=2, save_steps=4, report_to=[], **given
)
row = datasets.Dataset.from_list([{"input_ids": [0], "labels": [0]}])
trainer = Trainer(model, arguments, train_dataset=row, processing_class=tokenizer)
trainer.train_dataset = uio.Loader(pipeline, seed=777, lanes=4, steps_per_epoch=12)
begun = any(Path("sft").glob("checkpoint-*/uio_loader.json"))
trainer.train(resume_from_checkpoint=begun)
