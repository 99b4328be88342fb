"""SpeechBrain's ``DynamicItemDataset``, sorted by length, in the loader that its ``Brain`` makes of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import soundfile
import torch
from own_batches import LIST, ROWS, TOKENIZER, TOKENS, check_same
from speechbrain.dataio.dataio import read_audio
from speechbrain.dataio.dataloader import make_dataloader
from speechbrain.dataio.dataset import DynamicItemDataset

import uio_pipes as uio

table = dict(line.split() for line in Path(TOKENS).read_text().splitlines())
data = {row["key"]: {**row, "samples": soundfile.info(row["wav"]).frames} for row in ROWS}


def labels(text: str) -> torch.Tensor:
    return torch.tensor([int(table[symbol]) for symbol in text])


read = {"func": read_audio, "takes": "wav", "provides": "pcm"}
spell = {"func": labels, "takes": "txt", "provides": "target"}
dataset = DynamicItemDataset(data, [read, spell], ["id", "pcm", "target"])


def own() -> Iterator[dict[str, Any]]:
    for batch in make_dataloader(dataset.filtered_sorted(sort_key="samples"), batch_size=4):
        found: dict[str, Any] = {"keys": batch.id}
        for name in ("pcm", "target"):  # its lengths are parts of the longest
            found[name], lengths = batch[name]
            found[f"{name}_lengths"] = (lengths * found[name].shape[1]).round().long()
        yield found


corpus = uio.from_raw_list(LIST).decode_audio().tokenize(TOKENIZER).sort(48)
names = {"pcm_length": "pcm_lengths"}
ours = corpus.batch(4).pad(order="kept", lengths="int64", value={"target": 0}, names=names)
check_same(own(), uio.Loader(ours))
