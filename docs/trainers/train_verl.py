"""Training with verl: run it again after a kill, and it goes on."""

import os

import numpy as np
import torch
import transformers
import uio_pipes as uio
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

special = ["<audio>", "<user>", "<assistant>"]
symbols = uio.CharTokenizer("data/lang_char.txt").symbols
symbols |= {symbol: len(symbols) + i for i, symbol in enumerate(special)}

corpus = uio.from_shard_list("data/shards.list", shuffle=True).decode_audio()
speech = corpus.log_mel_spectrogram(pad_or_trim=True, max_duration=3)
template = {"user": "<user>{}<assistant>"}
place = {"places": lambda lengths: 75, "audio_token": symbols["<audio>"], "loss": []}
tokens = uio.CharTokenizer(symbols, special)
prompts = speech.chat(tokens, template, [("user", "{wav}他说了什么")], **place)
names = {"feats": "input_features", "feats_mask": "feature_attention_mask"}
names |= {"target": "input_ids", "target_mask": "attention_mask"}
names |= dict.fromkeys(["feats_lengths", "target_lengths", "speaker"])
padding = {"mask": True, "transpose": True}
pipeline = prompts.shuffle(100).batch(4).pad(keep=["txt"], names=names, **padding)
loader = uio.Loader(pipeline, seed=777, num_workers=1, lanes=4)

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
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
settings = ActorConfig(strategy="fsdp", rollout_n=4, use_dynamic_bsz=True)
step = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    step = saved["step"]

for epoch in range(loader.epoch, 2):
    loader.set_epoch(epoch)
    for batch in loader:
        step += 1
        print(f"step {step}:", *batch["keys"])
        texts = {name: np.array(batch.pop(name), object) for name in ("keys", "txt")}
        torch.manual_seed(step)  # a step that is made again has the same rollouts
        data = DataProto.from_single_dict(batch | texts)
        data = data.repeat(4, interleave=True)  # 4 rollouts of each prompt
        inputs = dict(data.batch)
        width = inputs["input_ids"].shape[1]
        sampling = {"do_sample": True, "max_new_tokens": 8, "min_new_tokens": 8}
        sampling |= {"suppress_tokens": [symbols["<audio>"]], "pad_token_id": 0}
        with torch.no_grad():
            rolled = model.generate(**inputs, **sampling)
        answers = rolled[:, width:]
        mask = torch.ones_like(answers, dtype=torch.float)
        rewards = torch.zeros_like(mask)  # at the end: the share of right characters
        keys, told = (data.non_tensor_batch[name] for name in ("keys", "txt"))
        for reward, answer, txt in zip(rewards, answers, told, strict=True):
            right = [symbols.get(character, 1) for character in txt]
            reward[-1] = np.mean([token in right for token in answer])
        advantages, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, keys)
        inputs |= {"input_ids": rolled, "attention_mask": torch.ones_like(rolled)}
        logits = model(**inputs).logits[:, width - 1 : -1].log_softmax(-1)
        chosen = logits.gather(-1, answers[..., None])[..., 0]
        loss, _ = core_algos.compute_policy_loss_vanilla(
            chosen.detach(), chosen, advantages, mask, config=settings
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            saved |= {"loader": loader.state_dict(), "step": step}
            torch.save(saved, "last.pt.new")
            os.replace("last.pt.new", "last.pt")
