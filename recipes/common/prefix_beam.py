"""CTC prefix beam search (Hannun et al., 2014, "First-Pass Large Vocabulary Continuous Speech Recognition using
Bi-Directional Recurrent DNNs"), as tensor operations over utterances × beam: the only Python loop is over frames.

A prefix is a label sequence. For each prefix in the beam two log-probabilities are kept, summed over its alignments to
the frames so far: of the alignments that end in a blank, and of those that end in its last label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["BLANK", "Hypothesis", "ctc_prefix_beam_search"]

BLANK = 0
ROOT, NOBODY = 0, -1
MULTIPLIER = 0x2545F4914F6CDD1D  # prefixes are distinguished by 64-bit polynomial hashes
NEVER = float("-inf")


class Hypothesis(NamedTuple):
    """Labels without special ones, and their natural log-probability."""

    labels: tuple[int, ...]
    score: float


def ctc_prefix_beam_search(log_probs: Tensor, lengths: Tensor, beam_size: int = 10) -> list[list[Hypothesis]]:
    """Return the ``beam_size`` likeliest label sequences of each utterance in (B, T, V).

    In each frame a prefix can be extended by the ``beam_size`` best labels of the frame. Exact if the beam holds every
    prefix.
    """
    beam = _Beam(log_probs, lengths, beam_size)
    for frame in range(log_probs.size(1)):
        beam.step(frame)
    return beam.hypotheses()


class _Beam:
    """The prefixes of all utterances; every tensor is (B, beam)."""

    def __init__(self, log_probs: Tensor, lengths: Tensor, beam_size: int) -> None:
        size, frames, vocab = log_probs.shape
        device = log_probs.device
        inside = torch.arange(frames, device=device) < lengths.to(device).unsqueeze(1)
        # After an utterance's end there are only blanks, at no cost: its beam stays as it is
        self.log_probs = log_probs
        self.kind = torch.promote_types(log_probs.dtype, torch.float32)  # of sums
        self.cost = torch.zeros_like(log_probs[..., 0], dtype=self.kind).masked_fill(~inside, NEVER)
        self.blank = log_probs[..., BLANK].to(self.kind).masked_fill(~inside, 0.0)
        best, labels = log_probs[..., BLANK + 1 :].topk(min(beam_size, vocab - 1))
        self.best, self.labels = best + self.cost.unsqueeze(2), labels + BLANK + 1
        self.size = beam_size
        self.ends_blank = self.cost.new_full((size, beam_size), NEVER)
        self.ends_blank[:, 0] = 0.0
        self.ends_label = torch.full_like(self.ends_blank, NEVER)
        self.last = torch.full((size, beam_size), BLANK, device=device)
        self.name = torch.full_like(self.last, ROOT)
        self.parent = torch.full_like(self.last, NOBODY)
        self.history: list[tuple[Tensor, Tensor]] = []  # for each frame: from which place, with which label (or blank)

    def step(self, frame: int) -> None:
        """Take one frame."""
        total = torch.logaddexp(self.ends_blank, self.ends_label)
        again = self.log_probs[:, frame].gather(1, self.last) + self.cost[:, frame].unsqueeze(1)
        child = self.parent.unsqueeze(2) == self.name.unsqueeze(1)  # (B, child, parent): both in the beam
        stay_blank = total + self.blank[:, frame].unsqueeze(1)
        stay_label = torch.logaddexp(self.ends_label + again, self._from_parent(total, again, child))
        grown = self._grown(total, child, self.labels[:, frame], self.best[:, frame])
        stay = torch.logaddexp(stay_blank, stay_label)
        self._keep(torch.cat([stay.unsqueeze(2), grown], 2), stay_blank, stay_label, self.labels[:, frame])

    def _from_parent(self, total: Tensor, again: Tensor, child: Tensor) -> Tensor:
        """Return the score that a prefix gets when its parent, if that is in the beam, is extended to it."""
        same = self.last.unsqueeze(2) == self.last.unsqueeze(1)  # a label twice needs a blank between
        parent = torch.where(same, self.ends_blank.unsqueeze(1), total.unsqueeze(1))
        return parent.masked_fill(~child, NEVER).amax(2) + again

    def _grown(self, total: Tensor, child: Tensor, labels: Tensor, best: Tensor) -> Tensor:
        """Return the scores of prefixes extended by one of ``labels`` (B, labels), without those that are in the beam
        already."""
        same = self.last.unsqueeze(2) == labels.unsqueeze(1)
        before = torch.where(same, self.ends_blank.unsqueeze(2), total.unsqueeze(2))
        there = (child.unsqueeze(3) & same.unsqueeze(2)).any(1)  # (B, child, parent, labels) → (B, parent, labels)
        return (before + best.unsqueeze(1)).masked_fill(there, NEVER)

    def _keep(self, scores: Tensor, stay_blank: Tensor, stay_label: Tensor, labels: Tensor) -> None:
        """Keep the best of ``scores`` (B, beam, 1 + labels); the first column is of prefixes that stay as they are."""
        best, index = scores.flatten(1).topk(self.size)
        place, choice = index // scores.size(2), index % scores.size(2)
        grew = choice > 0
        label = labels.gather(1, (choice - 1).clamp(min=0))
        name = self.name.gather(1, place)
        self.ends_blank = stay_blank.gather(1, place).masked_fill(grew, NEVER)
        self.ends_label = torch.where(grew, best, stay_label.gather(1, place))
        self.last = torch.where(grew, label, self.last.gather(1, place))
        self.parent = torch.where(grew, name, self.parent.gather(1, place))
        self.parent.masked_fill_(best == NEVER, NOBODY)  # an empty place must not come alive as somebody's child
        self.name = torch.where(grew, name * MULTIPLIER + label, name)
        self.history.append((place, label.masked_fill(~grew, BLANK)))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the label sequences, read backwards through the history."""
        scores = torch.logaddexp(self.ends_blank, self.ends_label).cpu().numpy()
        emitted = self._emitted()
        return [
            [Hypothesis(tuple(row[row != BLANK].tolist()), float(s)) for row, s in zip(*pair, strict=True) if s > NEVER]
            for pair in zip(emitted, scores, strict=True)
        ]

    def _emitted(self) -> npt.NDArray[np.int64]:
        """Return the label of each place of the beam in each frame (B, beam, T); blank where the prefix stayed."""
        places = torch.stack([place for place, _ in self.history]).cpu().numpy()
        labels = torch.stack([label for _, label in self.history]).cpu().numpy()
        at = np.broadcast_to(np.arange(self.size), places.shape[1:])
        out = np.empty(labels.shape, np.int64)
        for frame in reversed(range(len(places))):
            out[frame] = np.take_along_axis(labels[frame], at, 1)
            at = np.take_along_axis(places[frame], at, 1)
        emitted: npt.NDArray[np.int64] = out.transpose(1, 2, 0)
        return emitted
