"""Kaldi's mel-frequency cepstral coefficients and Whisper's log mel spectrogram, on the CPU.

The latter: squared magnitudes of a centred short-time Fourier transform (periodic Hann window, reflected edges, last
frame left out), Slaney's mel bands with unit area, log10, everything more than 8 below the maximum raised to that,
(x + 4) / 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.fbank import Fbank, window_of
from uio_pipes.dsp.frames import FilterBank, Float32s

_LIFTER = 22.0  # Kaldi's and torchaudio's default


@dataclass(eq=False)
class Mfcc(Fbank):
    """The first ``num_ceps`` cepstral coefficients of the log mel energies, with C0 and not the energy in its place.

    Parameters and waveforms are as for :class:`Fbank`. The formulas are from Kaldi's feature-mfcc.cc.
    """

    name: ClassVar[str] = "mfcc"

    num_ceps: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.num_ceps <= self.num_mel_bins:
            raise PipelineError(
                f"mfcc: num_ceps must be from 1 to num_mel_bins ({self.num_mel_bins}), not {self.num_ceps}; give both: "
                "num_mel_bins=80, num_ceps=40, or Kaldi's usual 23 and 13"
            )

    def _make_frames(self, sample_rate: int, cosines: Float32s | None = None) -> FilterBank:
        return super()._make_frames(sample_rate, _dct(self.num_mel_bins, self.num_ceps))


def _dct(bins: int, ceps: int) -> Float32s:
    """Make the orthonormal DCT-II times Kaldi's lifter, 1 + L/2 · sin(π k / L) for each coefficient k: (bins, ceps)."""
    angle = np.float32(math.pi / bins) * (np.arange(bins, dtype=np.float32)[:, None] + np.float32(0.5))
    angles = angle * np.arange(ceps, dtype=np.float32)  # rounded as by torchaudio, worth up to 1e-3
    dct = np.array([[math.cos(each) for each in row] for row in angles.tolist()]) * math.sqrt(2 / bins)
    dct[:, 0] = math.sqrt(1 / bins)
    lifter = [1.0 + 0.5 * _LIFTER * math.sin(math.pi * k / _LIFTER) for k in range(ceps)]
    return (dct * lifter).astype(np.float32)


SAMPLE_RATE = 16_000  # Hz: the only one of Whisper's models
_FLOOR = 1e-10  # of a band's energy, before the logarithm
_RANGE = np.float32(8.0)  # decades below the maximum that are kept


class LogMel:
    """Log mel energies of a waveform at 16 kHz; ``n_fft`` (even), ``hop_length`` and ``padding`` are in samples.

    ``padding`` zeros are appended. With ``pad_or_trim`` each waveform is then padded by zeros, or cut, to
    ``max_duration`` seconds.
    """

    def __init__(
        self, n_fft: int, hop_length: int, num_mel_bins: int, padding: int, pad_or_trim: bool, max_duration: float
    ) -> None:
        self.n_fft, self.hop_length, self.padding = n_fft, hop_length, padding
        self.fixed = round(max_duration * SAMPLE_RATE) if pad_or_trim else None
        self.num_mel_bins = num_mel_bins

    def frames(self, samples: int) -> int:
        """Return the number of frames; 0 if there are too few samples to reflect at the edges (half a window)."""
        samples = samples + self.padding if self.fixed is None else self.fixed
        return samples // self.hop_length if samples > self.n_fft // 2 else 0

    def __call__(self, waveform: torch.Tensor) -> torch.Tensor:
        """Compute features: (S,) or (1, S) float32 in [-1, 1] → (T, num_mel_bins) float32; T = ``frames(S)`` may be 0.

        Raises: PipelineError for several channels.
        """
        if waveform.numel() != waveform.shape[-1]:
            raise PipelineError(
                f"log_mel_spectrogram: needs one channel, not a shape of {tuple(waveform.shape)}; select one first"
            )
        if not self.frames(waveform.shape[-1]):
            return torch.empty(0, self.num_mel_bins, dtype=torch.float32)
        # Of the centred frames the last one is left out.
        samples = self._padded(waveform.reshape(-1))[: -self.hop_length]
        return _compressed(torch.from_numpy(self._frames(samples.numpy())))

    @cached_property
    def _frames(self) -> FilterBank:
        bank = slaney_mel_bank(self.num_mel_bins, self.n_fft).astype(np.float32)
        return FilterBank(window_of("hanning", self.n_fft, periodic=True), self.hop_length, self.n_fft, bank, _FLOOR)

    def _padded(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the waveform at its final length, with half a window reflected before and after."""
        half = self.n_fft // 2
        length = self.fixed if self.fixed is not None else len(samples) + self.padding
        out = torch.zeros(half + length + half, dtype=torch.float32)
        kept = min(len(samples), length)
        out[half : half + kept] = samples[:kept]
        out[:half] = out[half + 1 : 2 * half + 1].flip(0)
        out[half + length :] = out[length - 1 : half + length - 1].flip(0)
        return out


def _compressed(features: torch.Tensor) -> torch.Tensor:
    """Apply Whisper's range compression in place."""
    values = features.numpy()
    values *= np.float32(1 / math.log(10))
    np.maximum(values, values.max() - _RANGE, out=values)
    values += np.float32(4.0)
    values *= np.float32(0.25)
    return features


def slaney_mel_bank(bands: int, n_fft: int) -> npt.NDArray[np.float64]:
    """Make triangles of area 1 over Hz, evenly spaced on Slaney's mel scale from 0 to 8 kHz: (bands, bins).

    The scale is linear below 1 kHz (a mel is 200 / 3 Hz) and logarithmic above (27 mels are a factor of 6.4): Slaney's
    Auditory Toolbox, 1998.
    """
    top = 15 + 27 * math.log(SAMPLE_RATE / 2 / 1000, 6.4)
    mel = np.linspace(0, top, bands + 2)
    hertz = np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
    left, centre, right = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    bins = np.arange(n_fft // 2 + 1) * (SAMPLE_RATE / n_fft)
    triangles = np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre)).clip(0)
    return np.asarray(triangles * 2 / (right - left))
