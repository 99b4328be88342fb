"""A duplex model: at each frame it hears the user, and says a token of its text and its own codes.

The batch is that of ``align`` and ``delay``: ``codes`` (B, 1 + 2K, T), with the text stream, the model's codes, and the
user's. As in Moshi, what was in all streams up to a frame predicts text and model's codes of the next one. A GRU takes
the place of the transformer: it is small, and its state is all that a conversation needs to go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..common.strict import check
from ..speech_lm.model import ENTRIES

__all__ = ["DuplexLM", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model. ``codebooks``: of each channel."""

    codebooks: int = 2
    dim: int = 96
    hidden: int = 160
    layers: int = 1
    dropout: float = 0.2

    def __post_init__(self) -> None:
        for name in ("codebooks", "dim", "hidden", "layers"):
            check(getattr(self, name) >= 1, f"model.{name}", "1 or more", getattr(self, name))
        check(0 <= self.dropout < 1, "model.dropout", "from 0 to below 1", self.dropout)


class DuplexLM(nn.Module):
    """Streams in; logits of the next frame out. ``vocab_size``: of the text."""

    first: Tensor

    def __init__(self, sizes: Sizes, vocab_size: int) -> None:
        super().__init__()
        self.codebooks, self.vocab_size = sizes.codebooks, vocab_size
        entries = torch.tensor([0, vocab_size, *[ENTRIES] * (2 * sizes.codebooks)]) + 1  # one more: nothing yet (-1)
        entries[0] = 1
        self.register_buffer("first", entries.cumsum(0)[:-1], persistent=False)
        self.embed = nn.Embedding(int(entries.sum()), sizes.dim)
        self.drop = nn.Dropout(sizes.dropout)
        self.gru = nn.GRU(sizes.dim, sizes.hidden, sizes.layers, batch_first=True)
        self.logits = nn.Linear(sizes.hidden, vocab_size + sizes.codebooks * ENTRIES)

    def forward(self, codes: Tensor, state: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        """Return logits of what follows each frame, of text (B, T, V) and each codebook (B, T, 256), and the state.

        ``codes``: (B, 1 + 2K, T), -1 where there is nothing; ``state``: what came before, None at the beginning.
        """
        x = self.embed(codes + self.first.unsqueeze(1)).sum(1)
        x, state = self.gru(self.drop(x), state)
        parts = [self.vocab_size, *[ENTRIES] * self.codebooks]
        return list(self.logits(self.drop(x)).split(parts, dim=-1)), state

    def losses(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of all frames, and how many frames there are.

        ``loss`` of the batch weighs each token and code; a frame's loss is that of its text and the mean of its codes.
        """
        codes, weights = batch["codes"].long(), batch["loss"][:, : 1 + self.codebooks, 1:]
        logits, _ = self(codes[:, :, :-1])
        summed = codes.new_zeros((), dtype=torch.float32)
        for row, (found, weight) in enumerate(zip(logits, weights.unbind(1), strict=True)):
            wanted = codes[:, row, 1:].clamp(min=0)
            each = functional.cross_entropy(found.transpose(1, 2), wanted, reduction="none")
            summed = summed + (each * weight).sum() / (1 if row == 0 else self.codebooks)
        return summed, (weights[:, 0] > 0).sum()

    @torch.no_grad()
    def converse(self, heard: Tensor) -> Tensor:
        """Let the model talk: a user's streams (B, K, T) → its own (B, 1 + K, T), the likeliest of each frame."""
        said = torch.full((len(heard), 1 + self.codebooks, heard.shape[2]), -1, device=heard.device)
        state = None
        for at in range(1, heard.shape[2]):
            frame = torch.cat([said[:, :, at - 1], heard[:, :, at - 1]], dim=1).unsqueeze(2)
            logits, state = self(frame, state)
            said[:, :, at] = torch.stack([found[:, 0].argmax(-1) for found in logits], dim=1)
        return said
