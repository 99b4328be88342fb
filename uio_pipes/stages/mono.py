"""``mono``: one channel of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from uio_pipes.audio.bounds import check_channel
from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream, sees_all
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.stages.decode_audio import DecodeAudio


@dataclass(frozen=True)
class Mono(OfStream):
    """Reduce ``wav`` from (C, S) to one channel, (1, S).

    This is for recordings decoded by ``decode_audio(channel=None)``. To keep one channel from the start,
    ``decode_audio(channel=0)``, which is its default, costs less. A channel that does not exist is the failure
    ``no_such_channel``.

    Args:
        channel: number of the channel to keep, counted from 0; None takes the average of all. Default: None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "mono"
    reads: ClassVar[frozenset[str]] = frozenset(["wav"])
    writes: ClassVar[frozenset[str]] = frozenset(["wav"])

    channel: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.channel is None or self.channel >= 0
        require(ok, self.name, "channel must be 0 or more, or None for the average", self.channel, "count from 0")

    def check(self, before: Sequence[Stage]) -> None:
        super().check(before)
        kept = next(
            (stage.channel for stage in reversed(before) if isinstance(stage, DecodeAudio) and stage.of == self.of),
            None,
        )
        if kept is not None and sees_all(before):
            raise PipelineError(
                f"mono: decode_audio keeps only channel {kept} already; leave mono out, or let it choose with "
                "decode_audio(channel=None)"
            )

    def apply(self, sample: Sample, draws: Draws) -> None:
        wav = torch.as_tensor(sample.fields["wav"])
        wav = wav if wav.ndim == 2 else wav.reshape(1, -1)
        if self.channel is not None:
            check_channel(self.channel, len(wav))
            wav = wav[self.channel : self.channel + 1]
        elif len(wav) > 1:
            wav = wav.mean(dim=0, keepdim=True)
        sample.fields["wav"] = wav
