"""From log-probabilities to texts: the four decoding modes, each for a whole batch at once.

========================  ==================================================================================
``ctc_greedy_search``       the best label of each frame
``ctc_prefix_beam_search``  the likeliest label sequences under CTC, over all their alignments
``attention``               beam search with the attention decoder
``attention_rescoring``     the n best of ``ctc_prefix_beam_search``, scored again by the attention decoder
========================  ==================================================================================

Each returns the hypotheses of each utterance, best first. Scores are natural log-probabilities. Padding has no effect:
the result for an utterance is the same as for the utterance alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from .attention_beam import attention
from .decoder_steps import Decoder
from .prefix_beam import BLANK, Hypothesis, ctc_prefix_beam_search

__all__ = [
    "Hypothesis",
    "Mode",
    "Model",
    "Search",
    "SearchError",
    "attention",
    "attention_rescoring",
    "ctc_greedy_search",
    "ctc_prefix_beam_search",
]

Mode = Literal["ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring"]
Hypotheses = list[list[Hypothesis]]


class Model(Decoder, Protocol):
    """The methods of a model that decoding needs (see :class:`recipes.common.model.AsrModel`)."""

    def encode(self, feats: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, T, F) → memory (B, T', D) and its lengths."""

    def ctc_log_probs(self, memory: Tensor) -> Tensor:
        """Memory → log-probabilities (B, T', V)."""


class SearchError(ValueError):
    """An option has a value that it cannot have; the message says which ones it can have."""


@dataclass(frozen=True)
class Search:
    """The way to decode, in WeNet's terms. ``ctc_weight`` is only for ``attention_rescoring``.

    Raises: SearchError.
    """

    mode: Mode = "attention_rescoring"
    beam_size: int = 10
    ctc_weight: float = 0.5
    nbest: int = 1

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise SearchError(f"mode must be one of {', '.join(get_args(Mode))}, not {self.mode!r}")
        if self.beam_size < 1:
            raise SearchError(f"beam_size must be 1 or more, not {self.beam_size}; WeNet uses 10")
        if not self.ctc_weight >= 0:
            raise SearchError(f"ctc_weight must be 0 or more, not {self.ctc_weight}; WeNet uses 0.3 or 0.5")
        most = 1 if self.mode == "ctc_greedy_search" else self.beam_size
        if not 1 <= self.nbest <= most:
            remedy = "a greedy search finds one" if most == 1 else "the beam holds no more: raise beam_size"
            raise SearchError(f"nbest must be from 1 to {most}, not {self.nbest}; {remedy}")

    @property
    def needs_decoder(self) -> bool:
        """True if a model that has only CTC cannot do it."""
        return self.mode.startswith("attention")

    @torch.inference_mode()
    def __call__(self, model: Model, feats: Tensor, lengths: Tensor) -> Hypotheses:
        """Decode a batch: features (B, T, F) and their lengths (B,)."""
        memory, lengths = model.encode(feats, lengths)
        if self.mode == "attention":
            return attention(model, memory, lengths, self.beam_size, self.nbest)
        log_probs = model.ctc_log_probs(memory)
        if self.mode == "ctc_greedy_search":
            return ctc_greedy_search(log_probs, lengths)
        found = ctc_prefix_beam_search(log_probs, lengths, self.beam_size)
        if self.mode == "attention_rescoring":
            found = attention_rescoring(model, memory, lengths, found, self.ctc_weight)
        return [hypotheses[: self.nbest] for hypotheses in found]


def ctc_greedy_search(log_probs: Tensor, lengths: Tensor) -> Hypotheses:
    """Return the best label of each frame of (B, T, V), without repeats and blanks; scored by that one alignment."""
    scores, labels = log_probs.max(-1)
    outside = torch.arange(labels.size(1), device=labels.device) >= lengths.unsqueeze(1)
    labels = labels.masked_fill(outside, BLANK)
    begins = (labels != BLANK) & (labels != functional.pad(labels, (1, 0), value=BLANK)[:, :-1])
    totals = scores.masked_fill(outside, 0.0).sum(1).tolist()
    rows = zip(labels.cpu(), begins.cpu(), totals, strict=True)
    return [[Hypothesis(tuple(row[first].tolist()), total)] for row, first, total in rows]


def attention_rescoring(
    model: Decoder, memory: Tensor, lengths: Tensor, found: Hypotheses, ctc_weight: float = 0.5
) -> Hypotheses:
    """Sort the hypotheses that CTC ``found`` by decoder score + ``ctc_weight`` × CTC score.

    The decoder is called once for all hypotheses of all utterances.
    """
    flat = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    rows = torch.tensor([i for i, hypotheses in enumerate(found) for _ in hypotheses], device=memory.device)
    labels = [torch.tensor(hypothesis.labels, dtype=torch.long) for hypothesis in flat]
    wanted = pad_sequence([functional.pad(row, (0, 1), value=model.eos) for row in labels], True, -1).to(memory.device)
    tokens = functional.pad(wanted.clamp(min=0)[:, :-1], (1, 0), value=model.sos)
    log_probs = model.decoder_log_probs(memory[rows], lengths[rows], tokens)
    scores = log_probs.gather(2, wanted.clamp(min=0).unsqueeze(2)).squeeze(2).masked_fill(wanted < 0, 0.0).sum(1)
    rescored = iter(zip(flat, scores.tolist(), strict=True))
    out = []
    for hypotheses in found:
        both = [(h.labels, score + ctc_weight * h.score) for h, score in (next(rescored) for _ in hypotheses)]
        out.append(sorted((Hypothesis(*pair) for pair in both), key=lambda h: -h.score))
    return out
