"""WeNet's ``Dataset``, from its raw list, with the features and the sorted batches of its recipes."""

from pathlib import Path
from typing import Any

import soundfile
import torch
import torchaudio
from own_batches import LIST, ROWS, TOKENIZER, TOKENS, check_same
from wenet.dataset.dataset import Dataset
from wenet.text.char_tokenizer import CharTokenizer

import uio_pipes as uio


def load(file: Any) -> tuple[torch.Tensor, int]:
    wave, rate = soundfile.read(file, dtype="float32", always_2d=True)
    return torch.from_numpy(wave.T), rate


torchaudio.load = load  # its own needs torchcodec since version 2.9, and that needs FFmpeg
speakers = sorted({row["speaker"] for row in ROWS})
Path("speakers.txt").write_text("".join(f"{name} {number}\n" for number, name in enumerate(speakers)))
CONF: dict[str, Any] = {"speaker_conf": {"speaker_table_path": "speakers.txt"}}
CONF |= {"fbank_conf": {"num_mel_bins": 80}, "sort_conf": {"sort_size": 10}}
CONF |= dict.fromkeys(("list_shuffle", "shuffle", "spec_aug"), False)
for batch_conf, count in (
    ({"batch_type": "static", "batch_size": 4}, 12),
    ({"batch_type": "dynamic", "max_frames_in_batch": 1000}, 10),
):
    conf = {**CONF, "batch_conf": batch_conf}
    own = Dataset("raw", LIST, CharTokenizer(TOKENS), conf)
    ours = uio.wenet_dataset("raw", LIST, TOKENIZER, conf).pipeline
    check_same(own, uio.Loader(ours), count, within=0.03)
