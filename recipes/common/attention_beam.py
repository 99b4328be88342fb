"""Beam search with an attention decoder, over utterances × beam at once."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .prefix_beam import BLANK, NEVER, Hypothesis

__all__ = ["Decoder", "attention"]


class Decoder(Protocol):
    """An attention decoder; ``sos`` begins and ``eos`` ends a text."""

    sos: int
    eos: int

    def decoder_log_probs(self, memory: Tensor, memory_lengths: Tensor, tokens: Tensor) -> Tensor:
        """Log-probabilities (B, U, V) of what follows each of ``tokens`` (B, U)."""


def attention(
    model: Decoder, memory: Tensor, lengths: Tensor, beam_size: int = 10, nbest: int = 1
) -> list[list[Hypothesis]]:
    """The ``nbest`` likeliest texts for memory (B, T', D), of at most as many labels as it has frames.

    A text's score includes that of its end. An utterance is ready when its ``nbest`` first hypotheses have ended:
    nothing can overtake them any more. It then leaves the batch.
    """
    out: list[list[Hypothesis]] = [[] for _ in range(memory.size(0))]
    beam = _Beam(model, memory, lengths.to(memory.device), beam_size)
    while beam.which.numel():
        beam.step()
        ready = beam.ended[:, :nbest].all(1)
        for row in ready.nonzero().flatten().tolist():
            out[int(beam.which[row])] = beam.hypotheses(row)[:nbest]
        if ready.any():
            beam.select(~ready)
    return out


class _Beam:
    """The hypotheses of the utterances ``which`` are not ready yet."""

    def __init__(self, model: Decoder, memory: Tensor, lengths: Tensor, size: int) -> None:
        count = memory.size(0)
        self.model, self.size = model, size
        self.which = torch.arange(count, device=memory.device)
        self.memory, self.lengths = memory.repeat_interleave(size, 0), lengths.long()
        self.tokens = torch.full((count, size, 1), model.sos, device=memory.device)
        self.scores = memory.new_full((count, size), NEVER, dtype=torch.float32)
        self.scores[:, 0] = 0.0
        self.ended = torch.zeros_like(self.scores, dtype=torch.bool)

    def step(self) -> None:
        """One label on."""
        lengths = self.lengths.repeat_interleave(self.size)
        following = self.model.decoder_log_probs(self.memory, lengths, self.tokens.flatten(0, 1))[:, -1]
        allowed = self._allowed(following.unflatten(0, self.scores.shape))
        values, labels = allowed.topk(min(self.size, allowed.size(2)))
        self.scores, index = (self.scores.unsqueeze(2) + values).flatten(1).topk(self.size)
        label = labels.flatten(1).gather(1, index)
        place = (index // values.size(2)).unsqueeze(2).expand(-1, -1, self.tokens.size(2))
        self.tokens = torch.cat([self.tokens.gather(1, place), label.unsqueeze(2)], 2)
        self.ended = (label == self.model.eos) | (self.scores == NEVER)

    def _allowed(self, following: Tensor) -> Tensor:
        """Nothing but eos after eos, for free, and at the greatest length; never a blank."""
        full = self.lengths < self.tokens.size(2)
        over = following[..., self.model.eos].masked_fill(self.ended, 0.0)
        allowed = following.masked_fill((self.ended | full.unsqueeze(1)).unsqueeze(2), NEVER)
        allowed[..., BLANK] = NEVER
        allowed[..., self.model.eos] = over
        return allowed

    def hypotheses(self, row: int) -> list[Hypothesis]:
        """Of one utterance, best first."""
        pairs = zip(self.tokens[row, :, 1:].tolist(), self.scores[row].tolist(), strict=True)
        return [Hypothesis(tuple(t[: t.index(self.model.eos)]), score) for t, score in pairs if score > NEVER]

    def select(self, rows: Tensor) -> None:
        """Go on with these utterances only."""
        self.memory = self.memory[rows.repeat_interleave(self.size)]
        for name in ("which", "lengths", "tokens", "scores", "ended"):
            setattr(self, name, getattr(self, name)[rows])
