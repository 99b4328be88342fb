"""``loudness``: every utterance at a loudness of its own, or all at the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.base.hashing import Draws
from uio_pipes.core.stage import within
from uio_pipes.dsp.filters import loudness
from uio_pipes.stages.perturbation import TorchaudioPerturbation


@dataclass(frozen=True)
class Loudness(TorchaudioPerturbation):
    """Scale ``wav`` to a random loudness, as it is heard: in LUFS, by ITU-R BS.1770-4.

    The loudness is measured by ``torchaudio.functional.loudness``. Utterances below 0.4 s, which is the shortest that
    can be measured, and silent ones stay as they are. Nothing is clipped: samples may leave [-1, 1]. Of more than
    five channels, the first five are measured, and all are scaled. Needs ``pip install 'uio_pipes[augment]'``.

    Args:
        target: (lowest, highest) loudness in LUFS; one is drawn evenly from between. Both the same: every utterance
            gets this loudness. Default: (-33.0, -13.0).
        probability: how likely an utterance is scaled, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        PipelineError: torchaudio is missing, or an argument breaks a rule.
    """

    name: ClassVar[str] = "loudness"

    target: Sequence[float] = field(default=(-33.0, -13.0), metadata=within(-70, 0, "LUFS"))
    probability: float = 1.0

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        target, measured = draws.uniform(*self.target), loudness(waveform, sample_rate)
        return waveform * 10 ** ((target - measured) / 20) if math.isfinite(measured) else waveform
