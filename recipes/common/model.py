"""A small CTC model: normalised features, convolutions that keep every fourth frame, a Conformer, a linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchaudio.models import Conformer

BLANK = 0


@dataclass(frozen=True)
class ModelSize:
    """The defaults give about 1.3 million parameters."""

    num_mel_bins: int = 80
    channels: int = 32
    dim: int = 144
    heads: int = 4
    feed_forward: int = 288
    layers: int = 4
    kernel: int = 31
    dropout: float = 0.0


class CtcConformer(nn.Module):
    """Features (B, T, F) and their lengths in; log-probabilities (B, T / 4, vocabulary) and their lengths out."""

    def __init__(self, vocabulary: int, size: ModelSize | None = None) -> None:
        super().__init__()
        size = size or ModelSize()
        self.subsample = nn.Sequential(
            nn.Conv2d(1, size.channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(size.channels, size.channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.project = nn.Linear(size.channels * _quarter(size.num_mel_bins), size.dim)
        self.encoder = Conformer(
            size.dim,
            size.heads,
            size.feed_forward,
            size.layers,
            size.kernel,
            dropout=size.dropout,
            use_group_norm=True,
        )
        self.head = nn.Linear(size.dim, vocabulary)

    def forward(self, feats: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and their lengths."""
        maps = self.subsample(normalise(feats, lengths).unsqueeze(1))
        frames = self.project(maps.transpose(1, 2).flatten(2))
        encoded, lengths = self.encoder(frames, (lengths.long() + 3) // 4)
        return functional.log_softmax(self.head(encoded), dim=-1), lengths


def _quarter(size: int) -> int:
    return (size + 3) // 4


def normalise(feats: Tensor, lengths: Tensor) -> Tensor:
    """Mean 0 and variance 1 for each utterance and mel bin, over its own frames; padding becomes 0."""
    inside = (torch.arange(feats.size(1), device=feats.device) < lengths.unsqueeze(1)).unsqueeze(2)
    count = lengths.view(-1, 1, 1)
    centred = (feats - (feats * inside).sum(1, keepdim=True) / count) * inside
    return centred * (centred.square().sum(1, keepdim=True) / count + 1e-5).rsqrt()


def ctc_loss(log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
    """Mean over the utterances of the batch. ``target`` is padded with -1, which CTC does not look at."""
    losses = functional.ctc_loss(
        log_probs.transpose(0, 1), target.clamp(min=0), lengths, target_lengths, BLANK, "sum", zero_infinity=True
    )
    return losses / len(target)
