"""``mfcc``: mel-frequency cepstral coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from uio_pipes.dsp.mfcc import Mfcc
from uio_pipes.stages.fbank import FbankFeatures

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["MfccFeatures"]


@dataclass(frozen=True)
class MfccFeatures(FbankFeatures):
    """Kaldi's mel-frequency cepstral coefficients of ``wav``: ``feat`` (T, num_ceps) float32.

    Parameters, frames and failures as for ``fbank``. ``num_ceps`` coefficients, C0 first, of ``num_mel_bins`` bands
    from ``low_freq`` to ``high_freq`` Hz (0: half the sample rate; below 0: that much less), liftered by 22. Equal to
    ``torchaudio.compliance.kaldi.mfcc(wav * 32768, …)`` to 1e-4 without dither. Raises
    PipelineError if ``num_ceps`` is above ``num_mel_bins``: of WeNet's defaults (40 of 23) one has to be given.
    """

    name: ClassVar[str] = "mfcc"

    num_ceps: int = 40
    high_freq: float = 0.0
    low_freq: float = 20.0

    @cached_property
    def kernel(self) -> Mfcc:
        frames = self.num_mel_bins, self.frame_length, self.frame_shift, self.dither, self.window_type
        return Mfcc(*frames, self.low_freq, self.high_freq, self.num_ceps)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().mfcc(num_mel_bins=16, num_ceps=13, dither=0.1)
