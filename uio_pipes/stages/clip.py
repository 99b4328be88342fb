"""``clip``: speech that was recorded too loud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.stage import within
from uio_pipes.dsp.clipping import clip
from uio_pipes.stages.perturbation import Perturbation


@dataclass(frozen=True)
class Clip(Perturbation):
    """Overdrive ``wav`` as a recording at too high a level does, and give it its level back.

    The waveform is amplified until its peak is a random number of dB above full scale. Then it is clipped at full
    scale, hard (what is above is cut off) or soft (it saturates: tanh), and scaled back: samples far below the peak
    stay as they were. All channels have one peak. Length and rate stay.

    Args:
        gain_db: (lowest, highest) dB by which the peak exceeds full scale; one is drawn evenly from between. Hard
            clipping at 0 dB changes nothing. Default: (0.0, 20.0).
        hard: how likely the clipping is hard, from 0 (always soft) to 1 (always hard). Default: 0.5.
        probability: how likely an utterance is clipped, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "clip"

    gain_db: Sequence[float] = field(default=(0.0, 20.0), metadata=within(-100, 100, "dB"))
    hard: float = 0.5
    probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.hard <= 1, self.name, "hard must be a probability from 0 to 1", self.hard, "try 0.5")

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        gain_db, hard = draws.uniform(*self.gain_db), draws.uniform() < self.hard
        return clip(waveform, gain_db, hard)
