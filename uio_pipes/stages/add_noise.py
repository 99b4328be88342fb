"""``add_noise``: noise of other recordings under the speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.base.checks import is_number, require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.sample import Sample
from uio_pipes.dsp.noise import add_noise
from uio_pipes.stages.noise_clips import Clips, ClipStage


@dataclass(frozen=True)
class AddNoise(ClipStage):
    """Add noise from other recordings to ``wav``, at a random signal-to-noise ratio.

    The noise, the part of it that is used, and the ratio belong to the utterance: they are the same on 1 worker and
    on 64. From a longer noise a random segment is taken (if it is longer than 30 s and its header gives the length,
    only that segment is decoded); a shorter one is repeated, beginning at a random place. Noise is resampled to the
    utterance's rate, and its first channel is added to every channel of the utterance. Nothing is added to silence,
    silent noise adds nothing, and the result is not clipped.

    A noise that cannot be read makes its utterance the failure ``bad_noise``, and the message names the noise.
    Remote files are read whole. Remote or compressed shards are kept as long as they take up to half the cache; a
    larger one is read again for each of its members.

    Args:
        noises: list file(s) whose lines are paths or URLs of audio files, ``key path`` pairs (Kaldi), JSON objects
            with ``wav`` (and ``start``, ``end`` in seconds), or tar shards of audio files; or the audio files and
            shards themselves, by name, glob or braces. Each line has equal chances, and so has each audio file of
            its shard.
        snr: (lowest, highest) signal-to-noise ratio in dB, of the powers (mean squares) over the whole utterance;
            one is drawn evenly from between. Both within ±100. Default: (5.0, 20.0).
        probability: how likely an utterance gets noise, from 0 to 1. Default: 1.0.
        cache_mb: MiB of decoded noise that each process keeps in memory, for all its lanes. Default: 256.

    Raises:
        ListError: when the loader starts, if the list is missing or cannot be used.
    """

    name: ClassVar[str] = "add_noise"
    lists: ClassVar[str] = "noises"
    bad: ClassVar[str] = "bad_noise"

    noises: str | Sequence[str]
    snr: Sequence[float] = (5.0, 20.0)
    probability: float = 1.0
    cache_mb: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = len(self.snr) == 2 and all(map(is_number, self.snr)) and -100 <= self.snr[0] <= self.snr[1] <= 100
        require(ok, self.name, "snr must be (lowest, highest) in dB, within ±100", self.snr, "try (5, 20)")
        object.__setattr__(self, "snr", tuple(self.snr))

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        wanted, snr, choice = draws.uniform() < self.probability, draws.uniform(*self.snr), clips.choose(draws)
        if wanted:
            wav = torch.as_tensor(sample.fields["wav"])
            noise = clips.segment(choice, sample.fields["sample_rate"], wav.shape[-1])
            sample.fields["wav"] = add_noise(wav, noise, snr)
