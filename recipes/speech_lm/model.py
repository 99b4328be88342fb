"""A speech language model on packed rows: an audio encoder and a decoder of the same blocks, over the same places.

The batch is that of ``pack`` (``uio_pipes/stages/batches/pack.py``): R rows of L places, each that of a token or of a
frame of audio. Both halves attend within parts only, by masks that are made once a batch, and positions come from
``position_ids``; so a part's result does not depend on the others of its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..common.strict import check

__all__ = ["BINS", "ENTRIES", "IGNORE", "Sizes", "SpeechLM", "targets"]

BINS = 80  # of a frame of 10 ms
ENTRIES = 256  # of a codebook
IGNORE = -100  # a label without a loss, as pack has it
Rotation = tuple[Tensor, Tensor]
Past = list[Tensor]  # of a block: none yet, or one of (2, R, heads, L, head)


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model. It gets ``frames`` of 10 ms side by side as one, every ``stride`` of them.

    ``codebooks``: how many codes of ``ENTRIES`` stand for a frame; 0: its features.
    """

    frames: int = 7
    stride: int = 4
    dim: int = 144
    heads: int = 4
    feed_forward: int = 384
    encoder_layers: int = 4
    decoder_layers: int = 3
    codebooks: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = int(name != "codebooks")
            check(value >= least, f"model.{name}", f"{least} or more", value)
        check(self.dim % (2 * self.heads) == 0, "model.dim", f"a multiple of 2 × heads ({2 * self.heads})", self.dim)


def rotation_of(positions: Tensor, head: int) -> Rotation:
    """Positions (R, L) → cosines and sines of their angles in heads of that width, each (R, 1, L, head / 2)."""
    rates = 10_000.0 ** -torch.linspace(0, 1, head // 2, dtype=torch.float64, device=positions.device)
    angles = (positions.unsqueeze(-1) * rates).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotated(heads: Tensor, rotation: Rotation) -> Tensor:
    """Rotate queries or keys (R, heads, L, head): rotary positions."""
    (one, other), (cos, sin) = heads.chunk(2, dim=-1), (part.to(heads.dtype) for part in rotation)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)


class Block(nn.Module):
    """Attention where a mask (R, 1, L, L) allows it, and a gated feed-forward block; (R, L, D) → (R, L, D)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.attention_norm, self.norm = nn.RMSNorm(sizes.dim), nn.RMSNorm(sizes.dim)
        self.into_heads = nn.Linear(sizes.dim, 3 * sizes.dim, bias=False)
        self.out = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.up = nn.Linear(sizes.dim, 2 * sizes.feed_forward, bias=False)
        self.down = nn.Linear(sizes.feed_forward, sizes.dim, bias=False)

    def forward(self, x: Tensor, rotation: Rotation, mask: Tensor, past: Past | None = None) -> Tensor:
        """``past``: keys and values of places before ``x``, which the mask has first; those of ``x`` are added."""
        heads = self.into_heads(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (R, heads, L, head)
        query, key = rotated(query, rotation), rotated(key, rotation)
        if past is not None:
            past[:] = [torch.cat([*past, torch.stack([key, value])], dim=3)]
            key, value = past[0]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        gate, up = self.up(self.norm(x)).chunk(2, dim=-1)
        added: Tensor = self.down(functional.silu(gate) * up)
        return x + added


class Codebooks(nn.Module):
    """Codes (N, codebooks), one of each codebook → the sum of their embeddings (N, D)."""

    def __init__(self, codebooks: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(codebooks * ENTRIES, dim)
        self.register_buffer("first", torch.arange(codebooks) * ENTRIES, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        summed: Tensor = self.embed(codes.long() + self.get_buffer("first")).sum(1)
        return summed


class SpeechLM(nn.Module):
    """A packed batch in; logits or a loss out. Audio may be at any places that ``feats_places`` names."""

    def __init__(self, sizes: Sizes, vocab_size: int) -> None:
        super().__init__()
        self.head = sizes.dim // sizes.heads
        feats = BINS * sizes.frames
        self.project: nn.Module
        if sizes.codebooks:
            self.project = Codebooks(sizes.codebooks, sizes.dim)
        else:
            self.project = nn.Sequential(nn.LayerNorm(feats), nn.Linear(feats, sizes.dim))
        self.encoder = nn.ModuleList(Block(sizes) for _ in range(sizes.encoder_layers))
        self.embed = nn.Embedding(vocab_size, sizes.dim)
        self.decoder = nn.ModuleList(Block(sizes) for _ in range(sizes.decoder_layers))
        self.norm = nn.RMSNorm(sizes.dim)
        self.logits = nn.Linear(sizes.dim, vocab_size, bias=False)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Return logits (R, L, V): at each place for the token of the next one."""
        return self.decode(batch, self.encode(batch))

    def encode(self, batch: dict[str, Any]) -> Tensor:
        """Return what the encoder makes of all audio, (ΣT, D); each frame has seen all of its recording.

        It runs on the rows: the places of tokens are computed for nothing, but nothing has to be packed anew.
        """
        tokens, places, counts = batch["tokens"], audio_places(batch), batch["feats_places"][:, 1]
        frames: Tensor = self.project(batch["feats"])
        numbers = torch.arange(1, len(counts) + 1, device=places.device).repeat_interleave(counts)
        recordings = torch.zeros_like(tokens).flatten().index_copy(0, places, numbers).view_as(tokens)  # 0: a token
        x = frames.new_zeros(tokens.numel(), frames.size(-1)).index_copy(0, places, frames)
        x = self._through(self.encoder, x.view(*tokens.shape, -1), batch["position_ids"], _same(recordings))
        return x.flatten(0, 1)[places]

    def decode(self, batch: dict[str, Any], encoded: Tensor, pasts: Sequence[Past] = ()) -> Tensor:
        """Return logits (R, L, V), with ``encoded`` (ΣT, D) at the places of audio. ``pasts``: for ``step``."""
        tokens, width = batch["tokens"], batch["tokens"].size(1)
        x = self.embed(tokens.flatten()).index_copy(0, audio_places(batch), encoded).view(*tokens.shape, -1)
        causal = torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()
        x = self._through(self.decoder, x, batch["position_ids"], _same(batch["segment_ids"]) & causal, pasts)
        logits: Tensor = self.logits(self.norm(x))
        return logits

    def step(self, tokens: Tensor, positions: Tensor, seen: Tensor, pasts: Sequence[Past]) -> Tensor:
        """One more token of each row, (R,), and its position → logits (R, V) for the next; adds it to ``pasts``.

        ``seen`` (R, L): which of all places up to this one a row may look at.
        """
        mask = seen.unsqueeze(1).unsqueeze(1)
        x = self._through(self.decoder, self.embed(tokens.unsqueeze(1)), positions.unsqueeze(1), mask, pasts)
        logits: Tensor = self.logits(self.norm(x)).squeeze(1)
        return logits

    def _through(
        self, blocks: nn.ModuleList, x: Tensor, positions: Tensor, mask: Tensor, pasts: Sequence[Past] = ()
    ) -> Tensor:
        rotation = rotation_of(positions, self.head)
        for block, past in zip_longest(blocks, pasts):
            x = block(x, rotation, mask, past)
        return x

    def losses(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of all labels, and how many labels there are."""
        wanted, logits = targets(batch).flatten(), self(batch).flatten(0, 1)
        loss = functional.cross_entropy(logits, wanted, ignore_index=IGNORE, reduction="sum")
        return loss, (wanted != IGNORE).sum()


def _same(of: Tensor) -> Tensor:
    """(R, L) → (R, 1, L, L): whether two places of a row have the same value."""
    return (of.unsqueeze(1) == of.unsqueeze(2)).unsqueeze(1)


def targets(batch: dict[str, Any]) -> Tensor:
    """Return what each place is to predict, (R, L): the label of the next place, if that is of the same part."""
    labels, segments = batch["labels"], batch["segment_ids"]
    next_labels = labels[:, 1:].masked_fill(segments[:, 1:] != segments[:, :-1], IGNORE)
    return functional.pad(next_labels, (0, 1), value=IGNORE)


def audio_places(batch: dict[str, Any]) -> Tensor:
    """Return the place of each frame of audio in the rows one after the other, (ΣT,).

    Raises: ValueError if the batch has other numbers of frames and of places: ``places=`` of ``chat`` must count them.
    """
    places: Tensor = batch["feats_places"]
    first, count = places.unbind(1)
    if not torch.equal(count, batch["feats_lengths"].to(count)):
        raise ValueError(
            "feats_places and feats_lengths differ: places= of chat must count each frame of feats as one place"
        )
    frames = torch.arange(int(count.sum()), device=count.device)
    return frames + (first - count.cumsum(0) + count).repeat_interleave(count)
