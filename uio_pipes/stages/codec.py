"""``codec``: speech as it comes out of a telephone, a call or a compressed file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.stage import within
from uio_pipes.dsp.transcode import CODECS, transcode
from uio_pipes.stages.perturbation import Perturbation


@dataclass(frozen=True)
class Codec(Perturbation):
    """Encode ``wav`` with a random lossy codec, and decode it again, in memory. Length, timing and rate stay.

    "opus", "mp3" and "vorbis" work at the utterance's rate, or at the next higher one that they know. "gsm" (GSM
    06.10 full rate, 13 kbit/s), "mulaw" and "alaw" (ITU-T G.711, 64 kbit/s) are those of telephones: they work at
    8 kHz, so that nothing above 4 kHz remains. Delays of encoders are taken out. Each channel is coded by itself.
    Samples above full scale are scaled down before, and up again after. libsndfile does the work. Samples that are
    not finite numbers make the utterance the failure ``bad_audio``.

    Args:
        codecs: names of codecs, of which one is drawn for each utterance with equal chances; a name that is given
            twice is twice as likely. Default: ("opus", "mp3", "vorbis", "gsm", "mulaw").
        compression_level: (lowest, highest) compression of "opus", "mp3" and "vorbis", from 0 (best sound) to 1 (fewest
            bits); one is drawn evenly from between. At 16 kHz, 0.8 to 0.99 is about 59 to 10 kbit/s for Opus, 31
            to 23 for MP3 and 34 to 33 for Vorbis. Default: (0.8, 0.99).
        probability: how likely an utterance is coded, from 0 to 1. Default: 1.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "codec"

    codecs: Sequence[str] = ("opus", "mp3", "vorbis", "gsm", "mulaw")
    compression_level: Sequence[float] = field(default=(0.8, 0.99), metadata=within(0, 1))
    probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [self.codecs] if isinstance(self.codecs, str) else self.codecs
        ok = isinstance(names, (list, tuple)) and bool(names) and all(str(name) in CODECS for name in names)
        rule = f"codecs must be a list of {', '.join(map(repr, CODECS))}"
        require(ok, self.name, rule, self.codecs, 'try ["opus", "gsm"]')
        object.__setattr__(self, "codecs", tuple(names))

    def change(self, waveform: torch.Tensor, sample_rate: int, draws: Draws) -> torch.Tensor:
        codec, level = self.codecs[draws.below(len(self.codecs))], draws.uniform(*self.compression_level)
        return transcode(waveform, sample_rate, codec, level)
