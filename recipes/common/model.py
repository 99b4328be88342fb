"""A hybrid CTC/attention model: a Conformer or PyTorch's transformer as encoder, and as decoder PyTorch's transformer.

The result for an utterance does not depend on the other utterances of its batch (but for the last bits): padding is cut
off wherever a convolution could see it, and no norm takes statistics over frames. So decoding gives the same text in
any batches, on any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from uio_pipes.dsp.features import Cmvn

from .config import ModelConfig
from .conformer import MaskedConformer, inside
from .decoder import TextDecoder, with_positions
from .transformer import MaskedTransformer

__all__ = ["BLANK", "AsrModel"]

BLANK = 0
IGNORE = -1  # padding of targets
ENCODERS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "conformer": MaskedConformer,
    "transformer": MaskedTransformer,
}


class AsrModel(nn.Module):
    """Features (B, T, F) and their lengths in; losses, or what decoding needs, out.

    Args:
        config: sizes.
        vocab_size: labels in the dictionary; 0 is CTC's blank.
        cmvn: what features are normalized by; kept in the model. None: they stay as they are.
        eos: the label of <sos/eos>, which begins and ends a text for the decoder.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, cmvn: Cmvn | None = None, eos: int = 2) -> None:
        super().__init__()
        self.mean: Tensor
        self.istd: Tensor
        self.sos = self.eos = eos
        self.vocab_size, self.scale = vocab_size, math.sqrt(config.dim)
        self.ctc_weight, self.label_smoothing = config.ctc_weight, config.label_smoothing
        bins = config.num_mel_bins
        self.register_buffer("mean", torch.zeros(bins) if cmvn is None else torch.from_numpy(cmvn.mean))
        self.register_buffer("istd", torch.ones(bins) if cmvn is None else torch.from_numpy(cmvn.istd))
        self.conv1 = nn.Conv2d(1, config.channels, kernel_size=3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(config.channels, config.channels, kernel_size=3, stride=2, padding=1)
        self.project = nn.Linear(config.channels * ((bins + 3) // 4), config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = ENCODERS[config.encoder](config)
        self.ctc = nn.Linear(config.dim, vocab_size)
        self.decoder = TextDecoder(config, vocab_size) if config.decoder_layers else None

    def encode(self, feats: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, T, F), lengths (B,) → memory (B, ⌈T / 4⌉, D) and its lengths."""
        lengths = lengths.long()
        feats = (feats - self.mean) * self.istd
        maps = feats.masked_fill(~inside(lengths, feats.size(1)).unsqueeze(2), 0.0).unsqueeze(1)
        maps = functional.relu(self.conv1(maps))
        lengths = (lengths + 1) // 2
        maps = maps * inside(lengths, maps.size(2)).to(maps.dtype).unsqueeze(1).unsqueeze(3)
        maps = functional.relu(self.conv2(maps))
        lengths = (lengths + 1) // 2
        frames = self.project(maps.transpose(1, 2).flatten(2)) * self.scale  # so that positions do not dominate
        return self.encoder(self.dropout(with_positions(frames)), lengths), lengths

    def ctc_log_probs(self, memory: Tensor) -> Tensor:
        """Memory (B, T', D) → log-probabilities (B, T', V)."""
        return functional.log_softmax(self.ctc(memory).float(), dim=-1)

    def decoder_log_probs(self, memory: Tensor, memory_lengths: Tensor, tokens: Tensor) -> Tensor:
        """Return log-probabilities (B, U, V) of the label after each of ``tokens`` (B, U), which begin with <sos/eos>.

        A token sees only those to its left, so the padding after the shorter texts changes nothing.
        """
        return functional.log_softmax(self._decode(memory, memory_lengths, tokens), dim=-1)

    def _decode(self, memory: Tensor, memory_lengths: Tensor, tokens: Tensor) -> Tensor:
        assert self.decoder is not None  # ctc_weight is below 1
        logits: Tensor = self.decoder(memory, memory_lengths, tokens)
        return logits.float()

    @torch.jit.unused  # exported models only decode
    def forward(
        self, feats: Tensor, feats_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> dict[str, Tensor]:
        """Return losses, each a mean over the utterances of the batch: ``loss`` (the weighted sum), ``ctc``,
        ``attention``.

        ``target`` (B, U) is padded with -1.
        """
        memory, lengths = self.encode(feats, feats_lengths)
        ctc = self._ctc_loss(self.ctc_log_probs(memory), lengths, target, target_lengths)
        if self.decoder is None:
            return {"loss": ctc, "ctc": ctc, "attention": torch.zeros_like(ctc)}
        attention = self._attention_loss(memory, lengths, target, target_lengths)
        loss = self.ctc_weight * ctc + (1 - self.ctc_weight) * attention
        return {"loss": loss, "ctc": ctc, "attention": attention}

    def _ctc_loss(self, log_probs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        frames = log_probs.transpose(0, 1)
        labels = target.clamp(min=0)  # padding, which CTC does not look at
        losses = functional.ctc_loss(frames, labels, lengths, target_lengths, BLANK, "sum", zero_infinity=True)
        return losses / target.size(0)

    def _attention_loss(self, memory: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        labels = target.masked_fill(target < 0, self.eos)
        tokens = functional.pad(labels, (1, 0), value=self.sos)
        wanted = functional.pad(target, (0, 1), value=IGNORE)
        wanted = wanted.scatter(1, target_lengths.long().unsqueeze(1), self.eos)
        logits = self._decode(memory, lengths, tokens)
        losses = functional.cross_entropy(
            logits.flatten(0, 1),
            wanted.flatten(),
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return losses / target.size(0)
