"""Whisper's log mel spectrogram on the CPU (Radford et al. 2022; openai/whisper, audio.py).

Squared magnitudes of a centred short-time Fourier transform (periodic Hann window, reflected edges, last frame left
out), Slaney's mel bands with unit area, log10, everything more than 8 below the maximum raised to that, (x + 4) / 4.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.fbank import apply_bank, band_groups

SAMPLE_RATE = 16_000  # Hz: the only one of Whisper's models
_BLOCK = 256  # frames processed at once: they fit into the cache
_FLOOR = np.float32(1e-10)  # of a band's energy, before the logarithm
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
        self._window = torch.hann_window(n_fft)
        self.num_mel_bins = num_mel_bins
        self._groups = band_groups(torch.from_numpy(slaney_mel_bank(num_mel_bins, n_fft)).float())

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
                f"log_mel_spectrogram: needs one channel, not a shape of {tuple(waveform.shape)}; choose one before"
            )
        count = self.frames(waveform.shape[-1])
        features = torch.empty(count, self.num_mel_bins)
        if not count:
            return features
        frames = self._padded(waveform.reshape(-1)).as_strided((count, self.n_fft), (self.hop_length, 1))
        for start in range(0, count, _BLOCK):
            spectrum = torch.fft.rfft(frames[start : start + _BLOCK] * self._window)
            power = torch.view_as_real(spectrum).view(len(spectrum), -1).square_()
            apply_bank(self._groups, power, features[start : start + _BLOCK])
        return _compressed(features)

    def _padded(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the waveform at its final length, with half a window reflected before and after."""
        half = self.n_fft // 2
        length = self.fixed if self.fixed is not None else len(samples) + self.padding
        out = torch.zeros(half + length + half)
        kept = min(len(samples), length)
        out[half : half + kept] = samples[:kept]
        out[:half] = out[half + 1 : 2 * half + 1].flip(0)
        out[half + length :] = out[length - 1 : half + length - 1].flip(0)
        return out


def _compressed(features: torch.Tensor) -> torch.Tensor:
    """Apply Whisper's range compression in place."""
    values = features.numpy()
    np.maximum(values, _FLOOR, out=values)
    np.log(values, out=values)  # NumPy's log10 takes several times as long
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
