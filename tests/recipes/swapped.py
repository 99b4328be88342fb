"""A mini corpus of which 2 % of the transcripts are swapped, a small model, and a training that records its losses."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

import uio_pipes as uio
from recipes.aishell.mini import make_mini
from recipes.aishell.plan import settings_for
from recipes.aishell.prepare import prepare
from recipes.common.config import ModelConfig
from recipes.common.lists import read_lines
from recipes.common.model import BLANK, AsrModel
from uio_pipes.io.files import write_lines

SHARE = 0.02
MODEL = ModelConfig(
    channels=16, dim=96, heads=4, feed_forward=192, layers=2, kernel=15, decoder_layers=0, ctc_weight=1.0, dropout=0.0
)


class Swapped(NamedTuple):
    """A prepared corpus. ``keys``: of the utterances whose transcripts were swapped."""

    data: Path
    keys: frozenset[str]


def swap(root: Path, hours: float, seed: int) -> Swapped:
    """Speak and prepare a corpus, and swap the transcripts of a share of its training part, two by two."""
    make_mini(root / "corpus", settings_for(hours, seed))
    prepare(root / "corpus", root / "data", shard_size=40)
    path = root / "data" / "train" / "text"
    texts = dict(line.split(maxsplit=1) for line in read_lines(path))
    keys = random.Random(seed).sample(sorted(texts), 2 * round(len(texts) * SHARE / 2))
    swapped = dict(texts)
    for one, other in zip(keys[::2], keys[1::2], strict=True):
        swapped[one], swapped[other] = texts[other], texts[one]
    write_lines(path, [f"{key} {text}" for key, text in swapped.items()])
    return Swapped(root / "data", frozenset(key for key in keys if swapped[key] != texts[key]))


def pipeline_of(data: Path, part: str) -> uio.Pipeline:
    table = uio.CharTokenizer(data / "dict" / "lang_char.txt")
    kaldi = uio.from_kaldi(data / part / "wav.scp", data / part / "text", shuffle=part == "train")
    return kaldi.decode_audio().tokenize(table).fbank(num_mel_bins=80).shuffle(500).batch(8).pad(keep=["txt"])


class Training:
    """A model that is trained on a loader, epoch by epoch."""

    def __init__(self, data: Path, seed: int, epochs: int) -> None:
        torch.manual_seed(seed)
        tokens = read_lines(data / "dict" / "lang_char.txt")
        self.symbols = [line.split()[0] for line in tokens]
        self.data, self.epochs = data, epochs
        self.model = AsrModel(MODEL, len(self.symbols))
        self.loader = uio.Loader(pipeline_of(data, "train"), seed=seed, lanes=4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.step = 0

    def losses(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """The loss of each utterance, for a character."""
        memory, lengths = self.model.encode(batch["feats"] / 10 - 1, batch["feats_lengths"])
        frames = self.model.ctc_log_probs(memory).transpose(0, 1)
        given = batch["target"].clamp(min=0), lengths, batch["target_lengths"].long()
        losses = functional.ctc_loss(frames, *given, BLANK, "none", zero_infinity=True)
        return losses / batch["target_lengths"]

    def train(self, epochs: Iterable[int], recorder: uio.Recorder | None = None) -> None:
        for epoch in epochs:
            self.loader.set_epoch(epoch)
            for batch in self.loader:
                losses = self.losses(batch)
                self.optimizer.zero_grad()
                losses.mean().backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                warm, cooled = min(1.0, (self.step + 1) / 50), 1 - epoch / self.epochs
                for group in self.optimizer.param_groups:
                    group["lr"] = 2e-3 * warm * cooled
                self.optimizer.step()
                if recorder is not None:
                    recorder.log(batch, step=self.step, loss=losses)
                self.step += 1
