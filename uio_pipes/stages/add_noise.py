"""``add_noise``: noise of other recordings behind the speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from uio_pipes.clips import ClipLink, ClipNode, Clips
from uio_pipes.dsp.noise import add_noise
from uio_pipes.lane import Draws, Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Sample
from uio_pipes.sources.clip_list import ClipTable, entries
from uio_pipes.stage import PerUtterance, is_number, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["AddNoise"]


@dataclass(frozen=True)
class AddNoise(PerUtterance):
    """Add to ``wav`` a noise at a signal-to-noise ratio drawn evenly from ``snr`` = (lowest, highest) in dB.

    Args:
        noises: list file(s) with a line each: an audio file's path or URL, ``key path`` (Kaldi), a JSON object with
            ``wav`` (and ``start``, ``end`` in seconds), or a tar shard of audio files. Or audio files and shards
            themselves, by name, glob or braces. Each line has equal chances, then each audio file of its shard.
        snr: in dB, of the powers (mean squares) over the whole utterance.
        probability: of an utterance to get noise.
        cache_mb: of the noises last used, decoded, that each process keeps (MiB, for all its lanes).

    Which noise, where in it, and the ratio belong to the utterance, whatever the cache holds. A random segment of a
    longer noise is taken (above 30 s, where the header tells the length, only that is decoded); a shorter one is
    repeated, from a random place on. Noise is resampled to the utterance's rate; its first channel is used, for
    every channel of the utterance. Nothing is added to silence, or of it. Nor is anything clipped.

    Errors: ListError if the list is missing when the pipeline is built. A noise that cannot be read fails the
    utterance, as ``bad_noise``, and names itself: no utterance goes on without the noise that it should have. Remote
    files are read whole; remote or compressed shards are kept up to half the cache, and a larger one is read anew for
    each of its members.
    """

    name: ClassVar[str] = "add_noise"
    reads: ClassVar[frozenset[str]] = frozenset(["wav", "sample_rate"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])

    noises: str | Sequence[str]
    snr: Sequence[float] = (5.0, 20.0)
    probability: float = 1.0
    cache_mb: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "noises", entries(self.name, "noises", self.noises))
        ok = len(self.snr) == 2 and all(map(is_number, self.snr)) and -100 <= self.snr[0] <= self.snr[1] <= 100
        require(ok, self.name, "snr must be (lowest, highest) in dB, within ±100", self.snr, "try (5, 20)")
        object.__setattr__(self, "snr", tuple(self.snr))
        require(0 <= self.probability <= 1, self.name, "probability must be 0 to 1", self.probability, "try 0.5")
        require(self.cache_mb >= 0, self.name, "cache_mb must be 0 or more MiB", self.cache_mb, "try 256")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        key = (self.name, self.noises, self.cache_mb)
        clips = lane.shared(key, lambda: Clips(tuple(self.noises), "bad_noise", self.cache_mb << 20))
        return ClipNode(source, ClipLink(self, site, clips, self.mix))

    def mix(self, sample: Sample, draws: Draws, clips: Clips) -> None:
        """Add the noise that ``draws`` choose."""
        wanted, snr, choice = draws.uniform() < self.probability, draws.uniform(*self.snr), clips.choose(draws)
        if wanted:
            wav = torch.as_tensor(sample.fields["wav"])
            noise = clips.segment(choice, sample.fields["sample_rate"], wav.shape[-1])
            sample.fields["wav"] = add_noise(wav, noise, snr)

    def content(self) -> list[tuple[int, str]]:
        return [(0, ClipTable(tuple(self.noises)).digest)]

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().add_noise(_lists(corpus), snr=(0, 15), probability=0.7)


def _lists(corpus: Any) -> list[str]:
    """The corpus' own lists, as lists of noises."""
    return list(corpus.stages[0].paths)
