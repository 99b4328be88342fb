"""A Conformer (Gulati et al. 2020), with padding kept out of its convolutions.

A convolution that runs across the ends of the shorter utterances of a batch, and a norm with statistics over frames,
make the result for an utterance depend on its neighbours. Here the convolution sees zeros after the end, as it does
after the end of the longest utterance, and each frame is normalized by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig

__all__ = ["MaskedConformer", "inside"]


def inside(lengths: Tensor, size: int) -> Tensor:
    """Return a mask (B, size): True for positions before the end of the utterance."""
    return torch.arange(size, device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)


def _feed_forward(config: ModelConfig) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(config.dim),
        nn.Linear(config.dim, config.feed_forward),
        nn.SiLU(),
        nn.Dropout(config.dropout),
        nn.Linear(config.feed_forward, config.dim),
        nn.Dropout(config.dropout),
    )


class _Convolution(nn.Module):
    """(B, T, D) and True for padding (B, T) → (B, T, D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim, kernel = config.dim, config.kernel
        self.norm = nn.LayerNorm(dim)
        self.into = nn.Linear(dim, 2 * dim)
        self.over_frames = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.out = nn.Sequential(nn.LayerNorm(dim), nn.SiLU(), nn.Linear(dim, dim), nn.Dropout(config.dropout))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = functional.glu(self.into(self.norm(x)), dim=2).masked_fill(padding.unsqueeze(2), 0.0)
        x = self.over_frames(x.transpose(1, 2)).transpose(1, 2)
        out: Tensor = self.out(x)
        return out


class _Layer(nn.Module):
    """(B, T, D) and True for padding (B, T) → (B, T, D): feed-forward, attention, convolution, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.first = _feed_forward(config)
        self.norm = nn.LayerNorm(config.dim)
        self.attention = nn.MultiheadAttention(config.dim, config.heads, config.dropout, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.convolution = _Convolution(config)
        self.second = _feed_forward(config)
        self.final = nn.LayerNorm(config.dim)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.dropout(self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0])
        x = x + self.convolution(x, padding)
        x = x + 0.5 * self.second(x)
        final: Tensor = self.final(x)
        return final


class MaskedConformer(nn.Module):
    """(B, T, D) and lengths (B,) → (B, T, D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))

    def forward(self, input: Tensor, lengths: Tensor) -> Tensor:
        padding = ~inside(lengths, input.size(1))
        for layer in self.layers:
            input = layer(input, padding)
        return input
