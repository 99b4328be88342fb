"""The attention decoder: PyTorch's transformer decoder with an embedding and an output layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import ModelConfig
from .conformer import inside
from .transformer import draw_weights

__all__ = ["TextDecoder", "with_positions"]


class TextDecoder(nn.Module):
    """Memory (B, T', D), its lengths (B,) and tokens (B, U) → logits (B, U, V) of the label after each token."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.scale = math.sqrt(config.dim)
        self.embed = nn.Embedding(vocab_size, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        layer = nn.TransformerDecoderLayer(
            config.dim, config.heads, config.decoder_feed_forward, config.dropout, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, config.decoder_layers, nn.LayerNorm(config.dim))
        draw_weights(self.layers)
        nn.init.normal_(self.embed.weight, std=config.dim**-0.5)
        self.output = nn.Linear(config.dim, vocab_size)

    def forward(self, memory: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits. A token sees only the tokens to its left."""
        size = tokens.size(1)
        hidden = self.layers(
            self.dropout(with_positions(self.embed(tokens) * self.scale)),
            memory,
            tgt_mask=torch.ones(size, size, dtype=torch.bool, device=tokens.device).triu(1),
            memory_key_padding_mask=~inside(lengths, memory.size(1)),
            tgt_is_causal=True,
        )
        logits: Tensor = self.output(hidden)
        return logits


def with_positions(x: Tensor) -> Tensor:
    """Add sines and cosines of the position to ``x`` (B, N, D) (Vaswani et al., 2017)."""
    half = x.size(2) // 2
    position = torch.arange(x.size(1), device=x.device, dtype=torch.float32).unsqueeze(1)
    rate = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-math.log(10_000.0) / half))
    angles = position * rate
    return x + torch.cat([angles.sin(), angles.cos()], dim=1).to(x.dtype)
