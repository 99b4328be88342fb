"""``reverberate``: the speech as heard in a room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.base.hashing import Draws
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.noise import reverberate
from uio_pipes.stages.noise_clips import Clips, ClipStage


@dataclass(frozen=True)
class Reverberate(ClipStage):
    """Convolve ``wav`` with a room impulse response; length, timing and power stay as they were.

    The highest peak of the response, the direct sound, is put at time 0, and the result is scaled to the power of
    the input, like Kaldi's ``wav-reverberate --shift-output --normalize-output``. The response is resampled to the
    utterance's rate, and its first channel is used. Which response is chosen belongs to the utterance: it is the
    same on 1 worker and on 64. A response that cannot be read, or is silent, makes its utterance the failure
    ``bad_impulse_response``, and the message names it.

    Args:
        impulse_responses: list file(s), audio files or tar shards of them, as for ``add_noise``.
        probability: how likely an utterance is reverberated, from 0 to 1. Default: 1.0.
        cache_mb: MiB of decoded responses that each process keeps in memory, for all its lanes. Default: 256.

    Raises:
        ListError: when the loader starts, if the list is missing or cannot be used.
    """

    name: ClassVar[str] = "reverberate"
    lists: ClassVar[str] = "impulse_responses"
    bad: ClassVar[str] = "bad_impulse_response"

    impulse_responses: str | Sequence[str]
    probability: float = 1.0
    cache_mb: int = 256

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        wanted, choice = draws.uniform() < self.probability, clips.choose(draws)
        if wanted:
            wav = torch.as_tensor(sample.fields["wav"])
            response = clips.whole(choice, sample.fields["sample_rate"])
            sample.fields["wav"] = reverberate(wav, response)
