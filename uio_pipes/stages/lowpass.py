"""``lowpass``: speech without its high frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.base.hashing import Draws
from uio_pipes.core.stage import within
from uio_pipes.dsp.filters import lowpass
from uio_pipes.stages.perturbation import TorchaudioPerturbation


@dataclass(frozen=True)
class Lowpass(TorchaudioPerturbation):
    """Take the frequencies above a random cutoff out of ``wav``, as narrow channels and cheap microphones do.

    The filter is an eighth-order Butterworth low-pass, four of ``torchaudio.functional.lowpass_biquad`` in a row: -3 dB
    at the cutoff, 48 dB per octave above it. A cutoff at or above half the sample rate changes nothing. Length and
    rate stay. Needs ``pip install 'uio_pipes[augment]'``.

    Args:
        cutoff: (lowest, highest) cutoff in Hz; one is drawn evenly from between. Default: (3500.0, 8000.0).
        probability: how likely an utterance is filtered, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        PipelineError: torchaudio is missing, or an argument breaks a rule.
    """

    name: ClassVar[str] = "lowpass"

    cutoff: Sequence[float] = field(default=(3500.0, 8000.0), metadata=within(10, 1_000_000, "Hz"))
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        return lowpass(waveform, sample_rate, draws.uniform(*self.cutoff))
