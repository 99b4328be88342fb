"""``pitch_shift``: a higher or lower voice at the same speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.base.hashing import Draws
from uio_pipes.core.stage import within
from uio_pipes.dsp.filters import pitch_shift
from uio_pipes.stages.perturbation import TorchaudioPerturbation


@dataclass(frozen=True)
class PitchShift(TorchaudioPerturbation):
    """Shift the pitch of ``wav`` by a random interval. Length, timing, power and rate stay.

    A phase vocoder (``torchaudio.functional.phase_vocoder``, windows of 32 ms) stretches the time, and resampling
    undoes that. Formants move with the pitch, as with ``speed_perturb``. Needs ``pip install 'uio_pipes[augment]'``.

    Args:
        semitones: (lowest, highest) interval in semitones, below 0 for a lower voice; one is drawn evenly from between.
            Both within ±24. Default: (-2.0, 2.0).
        probability: how likely an utterance is shifted, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        PipelineError: torchaudio is missing, or an argument breaks a rule.
    """

    name: ClassVar[str] = "pitch_shift"

    semitones: Sequence[float] = field(default=(-2.0, 2.0), metadata=within(-24, 24, "semitones"))
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        return pitch_shift(waveform, sample_rate, draws.uniform(*self.semitones))
