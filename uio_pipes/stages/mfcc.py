"""``mfcc``: mel-frequency cepstral coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from uio_pipes.dsp.mfcc import Mfcc
from uio_pipes.stages.fbank import FbankFeatures


@dataclass(frozen=True)
class MfccFeatures(FbankFeatures):
    """Compute Kaldi's mel-frequency cepstral coefficients of ``wav``: ``feat`` (T, num_ceps) float32.

    Coefficient 0 comes first, and all are liftered by 22. Equal to ``torchaudio.compliance.kaldi.mfcc(wav * 32768,
    …)`` to 1e-4 without dither. An utterance shorter than one window is the failure ``too_short``, one with
    precomputed features ``has_features``. The defaults are WeNet's, and one of ``num_mel_bins`` and ``num_ceps``
    has to be given.

    Args:
        num_mel_bins: mel bands, more than 3. Default: 23.
        frame_length: length of a window in ms. Default: 25.0.
        frame_shift: step from one window to the next in ms. Default: 10.0.
        dither: standard deviation of the noise that is added, on the scale of 16-bit samples. Default: 0.0.
        window_type: "povey", "hamming", "hanning", "rectangular" or "blackman". Default: "povey".
        num_ceps: coefficients to keep, which is F of the result; not more than ``num_mel_bins``. Default: 40.
        high_freq: upper end of the bands in Hz; 0 is half the sample rate, and a negative number is that much below
            it. Default: 0.0.
        low_freq: lower end of the bands in Hz. Default: 20.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

    Raises:
        PipelineError: ``num_ceps`` is above ``num_mel_bins``, which it is by default.
    """

    name: ClassVar[str] = "mfcc"

    num_ceps: int = 40
    high_freq: float = 0.0
    low_freq: float = 20.0

    @cached_property
    def kernel(self) -> Mfcc:
        frames = self.num_mel_bins, self.frame_length, self.frame_shift, self.dither, self.window_type
        return Mfcc(*frames, self.low_freq, self.high_freq, self.num_ceps)
