"""Beam search with an attention decoder, for all utterances and hypotheses of a batch at once."""

from __future__ import annotations

import torch
from torch import Tensor

from .decoder_steps import Decoder, steps_of
from .prefix_beam import BLANK, NEVER, Hypothesis

__all__ = ["attention"]


def attention(
    model: Decoder, memory: Tensor, lengths: Tensor, beam_size: int = 10, nbest: int = 1
) -> list[list[Hypothesis]]:
    """Return the ``nbest`` likeliest texts for memory (B, T', D), with at most as many labels as it has frames.

    The score of a text includes its end. An utterance is finished, and leaves the batch, when its ``nbest`` first
    hypotheses have ended: no other can overtake them then.
    """
    out: list[list[Hypothesis]] = [[] for _ in range(memory.size(0))]
    beam = _Beam(model, memory, lengths.to(memory.device).long(), beam_size)
    while beam.which.numel():
        beam.step()
        ready = beam.ended[:, :nbest].all(1)
        for row in ready.nonzero().flatten().tolist():
            out[int(beam.which[row])] = beam.hypotheses(row, nbest)
        if ready.any():
            beam.select(~ready)
    return out


class _Beam:
    """The hypotheses of the utterances that are not finished yet; ``which`` are their indices."""

    def __init__(self, model: Decoder, memory: Tensor, lengths: Tensor, size: int) -> None:
        count, device = memory.size(0), memory.device
        self.eos, self.size, self.lengths = model.eos, size, lengths
        self.steps = steps_of(model, memory, lengths, size)
        self.which = torch.arange(count, device=device)
        self.tokens = torch.full((count, size, 1), model.sos, device=device)
        self.scores = torch.full((count, size), NEVER, device=device)
        self.scores[:, 0] = 0.0
        self.ended = torch.zeros_like(self.scores, dtype=torch.bool)

    def step(self) -> None:
        """Add one label to each hypothesis."""
        allowed = self._allowed(self.steps.step(self.tokens[..., -1]))
        values, labels = allowed.topk(min(self.size, allowed.size(2)))
        self.scores, index = (self.scores.unsqueeze(2) + values).flatten(1).topk(self.size)
        label = labels.flatten(1).gather(1, index)
        place = index // values.size(2)
        self.steps.keep(place)
        before = self.tokens.gather(1, place.unsqueeze(2).expand_as(self.tokens))
        self.tokens = torch.cat([before, label.unsqueeze(2)], 2)
        self.ended = (label == self.eos) | (self.scores == NEVER)

    def _allowed(self, following: Tensor) -> Tensor:
        """Allow only eos after eos (at no cost) and at the greatest length; never allow a blank."""
        full = self.lengths < self.tokens.size(2)
        over = following[..., self.eos].masked_fill(self.ended, 0.0)
        allowed = following.masked_fill((self.ended | full.unsqueeze(1)).unsqueeze(2), NEVER)
        allowed[..., BLANK] = NEVER
        allowed[..., self.eos] = over
        return allowed

    def hypotheses(self, row: int, nbest: int) -> list[Hypothesis]:
        """Return the best hypotheses of one utterance; they have ended."""
        pairs = zip(self.tokens[row, :nbest, 1:].tolist(), self.scores[row, :nbest].tolist(), strict=True)
        return [Hypothesis(tuple(t[: t.index(self.eos)]), score) for t, score in pairs if score > NEVER]

    def select(self, rows: Tensor) -> None:
        """Keep only these utterances."""
        self.steps.select(rows)
        for name in ("which", "lengths", "tokens", "scores", "ended"):
            setattr(self, name, getattr(self, name)[rows])
