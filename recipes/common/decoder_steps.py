"""An attention decoder that runs one label at a time, for all hypotheses (B, beam) of a batch.

:class:`Recomputed` works with any decoder: each step runs it over the whole hypotheses. :class:`Cached` works with
:class:`recipes.common.decoder.TextDecoder` and computes only what is new: it keeps keys and values of earlier labels,
and computes those of the memory once for each utterance, for all its hypotheses.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from .conformer import inside
from .decoder import TextDecoder, with_positions

__all__ = ["Cached", "Decoder", "Recomputed", "Steps", "steps_of"]


class Decoder(Protocol):
    """An attention decoder; ``sos`` begins and ``eos`` ends a text."""

    sos: int
    eos: int

    def decoder_log_probs(self, memory: Tensor, memory_lengths: Tensor, tokens: Tensor) -> Tensor:
        """Return log-probabilities (B, U, V) of the label after each of ``tokens`` (B, U)."""


class Steps(Protocol):
    """The decoder's state for the hypotheses in a beam."""

    def step(self, labels: Tensor) -> Tensor:
        """Extend each hypothesis by its label (B, beam); return log-probabilities (B, beam, V) of the next one."""

    def keep(self, places: Tensor) -> None:
        """Replace each hypothesis of the beam by the one at another place (B, beam)."""

    def select(self, rows: Tensor) -> None:
        """Keep only the utterances where ``rows`` (B,) is True."""


def steps_of(model: Decoder, memory: Tensor, lengths: Tensor, beam_size: int) -> Steps:
    """Return the fastest steps that work with ``model``."""
    decoder = getattr(model, "decoder", None)
    if isinstance(decoder, TextDecoder):
        return Cached(decoder, memory, lengths)
    return Recomputed(model, memory, lengths, beam_size)


class Recomputed:
    """Steps that run the decoder over the whole hypotheses each time."""

    def __init__(self, model: Decoder, memory: Tensor, lengths: Tensor, beam_size: int) -> None:
        self.model, self.beam_size = model, beam_size
        self.memory, self.lengths = memory.repeat_interleave(beam_size, 0), lengths.repeat_interleave(beam_size)
        self.tokens = torch.empty(memory.size(0), beam_size, 0, dtype=torch.long, device=memory.device)

    def step(self, labels: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, labels.unsqueeze(2)], 2)
        following = self.model.decoder_log_probs(self.memory, self.lengths, self.tokens.flatten(0, 1))
        return following[:, -1].view(*labels.shape, -1)

    def keep(self, places: Tensor) -> None:
        self.tokens = self.tokens.gather(1, places.unsqueeze(2).expand_as(self.tokens))

    def select(self, rows: Tensor) -> None:
        each = rows.repeat_interleave(self.beam_size)
        self.memory, self.lengths, self.tokens = self.memory[each], self.lengths[each], self.tokens[rows]


class Cached:
    """Steps that compute only what is new; the numbers are the decoder's own, but for the last bits."""

    def __init__(self, decoder: TextDecoder, memory: Tensor, lengths: Tensor) -> None:
        self.decoder = decoder
        self.layers: list[nn.TransformerDecoderLayer] = list(decoder.layers.layers)
        dim = memory.size(2)
        self.positions = with_positions(memory.new_zeros(1, int(lengths.max()) + 2, dim))[0]
        self.length = 0
        self.mask = inside(lengths, memory.size(1))[:, None, None]
        self.memory = [_keys_and_values(layer.multihead_attn, memory) for layer in self.layers]
        self.texts: list[tuple[Tensor, Tensor]] = []  # of each layer: (B, beam, heads, labels, dim of a head)

    def step(self, labels: Tensor) -> Tensor:
        x = self.decoder.embed(labels) * self.decoder.scale + self.positions[self.length]
        self.length += 1
        texts = []
        for index, layer in enumerate(self.layers):
            before = self.texts[index] if self.texts else None
            y, text = _to_text(layer.self_attn, layer.norm1(x), before)
            texts.append(text)
            x = x + y
            x = x + _to_memory(layer.multihead_attn, layer.norm2(x), *self.memory[index], self.mask)
            x = x + layer.linear2(layer.activation(layer.linear1(layer.norm3(x))))
        self.texts = texts
        final = self.decoder.layers.norm
        logits = self.decoder.output(x if final is None else final(x))
        return functional.log_softmax(logits.float(), dim=-1)

    def keep(self, places: Tensor) -> None:
        rows = torch.arange(places.size(0), device=places.device).unsqueeze(1)
        self.texts = [(keys[rows, places], values[rows, places]) for keys, values in self.texts]

    def select(self, rows: Tensor) -> None:
        self.mask = self.mask[rows]
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]
        self.texts = [(keys[rows], values[rows]) for keys, values in self.texts]


def _heads(x: Tensor, attention: nn.MultiheadAttention) -> Tensor:
    return x.unflatten(-1, (attention.num_heads, attention.head_dim))  # type: ignore[no-untyped-call,no-any-return]


def _keys_and_values(attention: nn.MultiheadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys and values of the memory: (B, heads, T', dim of a head) each."""
    dim = memory.size(2)
    both = functional.linear(memory, attention.in_proj_weight[dim:], attention.in_proj_bias[dim:])
    keys, values = (_heads(part, attention).transpose(1, 2) for part in both.chunk(2, -1))
    return keys, values


def _to_memory(attention: nn.MultiheadAttention, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Let ``x`` (B, beam, D) attend to the memory of its utterance."""
    dim = x.size(2)
    query = _heads(functional.linear(x, attention.in_proj_weight[:dim], attention.in_proj_bias[:dim]), attention)
    found = functional.scaled_dot_product_attention(query.transpose(1, 2), keys, values, mask)
    out: Tensor = attention.out_proj(found.transpose(1, 2).flatten(2))
    return out


def _to_text(
    attention: nn.MultiheadAttention, x: Tensor, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Let the newest labels, ``x`` (B, beam, D), attend to their hypotheses; return the result and the longer
    hypotheses."""
    parts = functional.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    query, keys, values = (_heads(part, attention).unsqueeze(3) for part in parts)
    if before is not None:
        keys, values = torch.cat([before[0], keys], 3), torch.cat([before[1], values], 3)
    found = functional.scaled_dot_product_attention(query, keys, values)
    return attention.out_proj(found.squeeze(3).flatten(2)), (keys, values)
