"""Training with ms-swift: run it again after a kill, and it goes on."""

from pathlib import Path

import tokenizers
import transformers
import uio_pipes as uio
from swift import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    get_model_processor,
    get_template,
)

special = ["<|AUDIO|>", "<|im_start|>", "<|im_end|>"]
symbols = uio.CharTokenizer("data/lang_char.txt").symbols
symbols |= {symbol: len(symbols) + i for i, symbol in enumerate(special)}

corpus = uio.from_shard_list("data/shards.list", shuffle=True).decode_audio()
speech = corpus.log_mel_spectrogram(pad_or_trim=True, max_duration=3)
template = {"user": "<|im_start|>{}", "assistant": "<|im_start|>{}<|im_end|>"}
turns = [("user", "{wav}他说了什么"), ("assistant", "{txt}")]
place = {"places": lambda lengths: 75, "audio_token": symbols["<|AUDIO|>"]}
chat = speech.chat(uio.CharTokenizer(symbols, special), template, turns, **place)
names = {"feats": "input_features", "feats_mask": "feature_attention_mask"}
names |= {"target": "input_ids", "target_mask": "attention_mask"}
unused = ["feats_lengths", "target_lengths", "labels_lengths", "labels_mask"]
unused += ["speaker"]
padding = {"value": {"target": 0, "labels": -100}, "mask": True, "transpose": True}
names |= dict.fromkeys(unused)
pipeline = chat.shuffle(100).batch(4).pad(keep=["labels"], names=names, **padding)

if not Path("tiny").exists():  # a tiny Qwen2-Audio; yours is downloaded
    audio = {"num_mel_bins": 80, "max_source_positions": 150, "d_model": 16}
    audio |= {"encoder_layers": 1, "encoder_attention_heads": 2}
    audio["encoder_ffn_dim"] = 16
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    text["vocab_size"] = len(symbols)
    parts = {"audio_config": audio, "text_config": text}
    parts["audio_token_index"] = symbols["<|AUDIO|>"]
    config = transformers.Qwen2AudioConfig(**parts)
    transformers.Qwen2AudioForConditionalGeneration(config).save_pretrained("tiny")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(symbols, "<unk>"))
    marks = {"pad_token": "<blank>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **marks)
    features = transformers.WhisperFeatureExtractor(80, chunk_length=3)
    transformers.Qwen2AudioProcessor(features, tokenizer).save_pretrained("tiny")
model, processor = get_model_processor("tiny", model_type="qwen2_audio")


class Trainer(uio.HFTrainerMixin, Seq2SeqTrainer):
    def training_step(self, model, inputs, *args, **options):
        print(f"step {self.state.global_step + 1}:", *inputs.pop("keys"))
        return super().training_step(model, inputs, *args, **options)


given = {"gradient_accumulation_steps": 1, "remove_unused_columns": False}
given["check_model"] = False  # whether ModelScope has a newer one
arguments = Seq2SeqTrainingArguments(
    "sft", num_train_epochs=2, save_steps=4, report_to=[], use_cpu=True, **given
)
loader = uio.Loader(pipeline, seed=777, lanes=4, steps_per_epoch=12)
form = get_template(processor)
form.set_mode("train")
trainer = Trainer(model, arguments, form, train_dataset=loader)
begun = any(Path("sft").glob("checkpoint-*/uio_loader.json"))
trainer.train(resume_from_checkpoint=begun)
