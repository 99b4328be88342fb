"""``add_noise``: noise, or other voices, of other recordings under the speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.base.checks import is_whole, require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import added, within
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

    With ``part``, the noise is under a part of the utterance only, at a random place. With recordings of speech as
    noises that is overlapped speech (Chen et al., "WavLM", 2022). With ``clips``, several noises are added. With
    recordings of speech that is babble.

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
        clips: (fewest, most) noises that an utterance gets, if it gets any; each number in between has equal chances.
            Each noise has its own part, ratio and place. Default: (1, 1).
        part: (smallest, largest) share of the utterance's length that has the noise, within 0 and 1; one is drawn
            evenly from between. Its place is random. A shorter noise is not repeated. The ratio is that of the whole
            utterance to this part of the noise. None: the noise is under the whole utterance. Default: None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        ListError: when the loader starts, if the list is missing or cannot be used.
    """

    name: ClassVar[str] = "add_noise"
    lists: ClassVar[str] = "noises"
    bad: ClassVar[str] = "bad_noise"

    noises: str | Sequence[str]
    snr: Sequence[float] = field(default=(5.0, 20.0), metadata=within(-100, 100, "dB"))
    probability: float = 1.0
    cache_mb: int = 256
    clips: Sequence[int] = added((1, 1))
    part: Sequence[float] | None = added(None, metadata=within(0, 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = self.clips if isinstance(self.clips, (list, tuple)) else ()
        ok = len(counts) == 2 and all(map(is_whole, counts)) and 1 <= counts[0] <= counts[1] <= 100
        require(ok, self.name, "clips must be (fewest, most), whole numbers from 1 to 100", self.clips, "try (3, 7)")
        object.__setattr__(self, "clips", tuple(counts))

    def change(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        wanted, snr, choice = draws.uniform() < self.probability, draws.uniform(*self.snr), clips.choose(draws)
        if not wanted:
            return
        speech, rate = torch.as_tensor(sample.fields["wav"]), sample.fields["sample_rate"]
        noisy, (fewest, most) = speech, self.clips
        for i in range(fewest + draws.below(most - fewest + 1)):
            if i:
                snr, choice = draws.uniform(*self.snr), clips.choose(draws)
            length = self._length(speech.shape[-1], draws)
            noise = clips.segment(choice, rate, length, once=self.part is not None)
            first = draws.below(speech.shape[-1] - len(noise) + 1)
            noisy = add_noise(noisy, noise, snr, first, speech)
        sample.fields["wav"] = noisy

    def _length(self, samples: int, draws: Draws) -> int:
        if self.part is None:
            return samples
        return min(samples, max(1, round(samples * draws.uniform(*self.part))))
