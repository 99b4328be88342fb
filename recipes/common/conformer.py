"""torchaudio's Conformer, with padding kept out of its convolutions.

torchaudio masks padding in the attention only. Its convolutions run across the ends of the shorter utterances of a
batch, and its norm takes statistics over them, so that the result for an utterance depends on its neighbours. Here the
convolution sees zeros after the end, as it does after the end of the longest utterance, and each frame is normalized by
itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchaudio.models import Conformer
from torchaudio.models.conformer import ConformerLayer

from .config import ModelConfig

__all__ = ["MaskedConformer", "inside"]


def inside(lengths: Tensor, size: int) -> Tensor:
    """Return a mask (B, size): True for positions before the end of the utterance."""
    return torch.arange(size, device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)


class _FrameNorm(nn.LayerNorm):
    """Layer norm over the channels of (B, C, T)."""

    def forward(self, input: Tensor) -> Tensor:
        normed = functional.layer_norm(input.transpose(1, 2), self.normalized_shape, self.weight, self.bias, self.eps)
        return normed.transpose(1, 2)


class _MaskedLayer(ConformerLayer):  # type: ignore[misc]
    """A layer like its base class, with the same names of parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.dim, config.feed_forward, config.heads, config.kernel, config.dropout)
        self.conv_module.sequential[3] = _FrameNorm(config.dim)

    def forward(self, input: Tensor, key_padding_mask: Tensor) -> Tensor:
        x = input + 0.5 * self.ffn1(input)
        y = self.self_attn_layer_norm(x)
        y = self.self_attn(y, y, y, key_padding_mask=key_padding_mask, need_weights=False)[0]
        x = x + self.self_attn_dropout(y)
        x = x + self._convolve(x, key_padding_mask)
        x = x + 0.5 * self.ffn2(x)
        return self.final_layer_norm(x)  # type: ignore[no-any-return]

    def _convolve(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.conv_module.layer_norm(x).permute(1, 2, 0)  # (T, B, D) → (B, D, T)
        for index, module in enumerate(self.conv_module.sequential):
            if index == 2:  # the depthwise convolution, the only module that looks at other frames
                x = x.masked_fill(padding.unsqueeze(1), 0.0)
            x = module(x)
        return x.permute(2, 0, 1)


class MaskedConformer(Conformer):  # type: ignore[misc]
    """(B, T, D) and lengths (B,) → (B, T, D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.dim, config.heads, config.feed_forward, 0, config.kernel)
        self.conformer_layers.extend(_MaskedLayer(config) for _ in range(config.layers))

    def forward(self, input: Tensor, lengths: Tensor) -> Tensor:
        padding = ~inside(lengths, input.size(1))
        x = input.transpose(0, 1)
        for layer in self.conformer_layers:
            x = layer(x, padding)
        return x.transpose(0, 1)
