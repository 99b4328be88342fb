"""PyTorch's transformer encoder over frames of utterances of different lengths."""

from __future__ import annotations

from torch import Tensor, nn

from .config import ModelConfig
from .conformer import inside

__all__ = ["MaskedTransformer", "draw_weights"]


class MaskedTransformer(nn.Module):
    """(B, T, D) and lengths (B,) → (B, T, D): frames attend to all frames of their utterance, not to the padding.

    Positions must be in the input already. Each layer normalizes before its attention and its feed-forward block, as
    ``normalize_before`` in WeNet.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            config.dim, config.heads, config.feed_forward, config.dropout, batch_first=True, norm_first=True
        )
        final = nn.LayerNorm(config.dim)
        self.layers = nn.TransformerEncoder(layer, config.layers, final, enable_nested_tensor=False)
        draw_weights(self.layers)

    def forward(self, input: Tensor, lengths: Tensor) -> Tensor:
        encoded: Tensor = self.layers(input, src_key_padding_mask=~inside(lengths, input.size(1)))
        return encoded


def draw_weights(layers: nn.Module) -> None:
    """Draw the weights anew: PyTorch copies one layer, and without this all layers would start equal."""
    for parameter in layers.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
