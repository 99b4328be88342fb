"""Kaldi's mel-frequency cepstral coefficients, equal to ``torchaudio.compliance.kaldi.mfcc``."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.fbank import Fbank, Noise

_LIFTER = 22.0  # Kaldi's and torchaudio's default


class Mfcc(Fbank):
    """The first ``num_ceps`` cepstral coefficients of the log mel energies, with C0 and not the energy in its place.

    Parameters and waveforms are as for :class:`Fbank`. The formulas are from Kaldi's feature-mfcc.cc.
    """

    name: ClassVar[str] = "mfcc"

    def __init__(
        self,
        num_mel_bins: int = 23,
        frame_length: float = 25.0,
        frame_shift: float = 10.0,
        dither: float = 0.0,
        window_type: str = "povey",
        low_freq: float = 20.0,
        high_freq: float = 0.0,
        num_ceps: int = 40,
    ) -> None:
        """Raise PipelineError where a value cannot be used."""
        super().__init__(num_mel_bins, frame_length, frame_shift, dither, window_type, low_freq, high_freq)
        if not 1 <= num_ceps <= num_mel_bins:
            raise PipelineError(
                f"mfcc: num_ceps must be from 1 to num_mel_bins ({num_mel_bins}), not {num_ceps}; give both: "
                "num_mel_bins=80, num_ceps=40, or Kaldi's usual 23 and 13"
            )
        self.num_ceps = num_ceps
        self._dct, self._lifter = _dct(num_mel_bins, num_ceps), _lifter(num_ceps)

    def _parameters(self) -> tuple[object, ...]:
        return *super()._parameters(), self.num_ceps

    def __call__(self, waveform: torch.Tensor, sample_rate: int, noise: Noise = ()) -> torch.Tensor:
        """Compute (S,) or (1, S) float32 in [-1, 1] → (T, num_ceps) float32; otherwise as :class:`Fbank`."""
        return torch.mm(super().__call__(waveform, sample_rate, noise), self._dct).mul_(self._lifter)


def _dct(bins: int, ceps: int) -> torch.Tensor:
    """Make the orthonormal DCT-II, (bins, ceps), in float32 from the angles on as torchaudio (worth up to 1e-3)."""
    band = torch.arange(float(bins)).unsqueeze(1)
    dct = torch.cos(math.pi / bins * (band + 0.5) * torch.arange(float(ceps))) * math.sqrt(2 / bins)
    dct[:, 0] = math.sqrt(1 / bins)
    return dct


def _lifter(ceps: int) -> torch.Tensor:
    """Compute 1 + L/2 · sin(π i / L) for each coefficient i: (ceps,)."""
    return 1.0 + 0.5 * _LIFTER * torch.sin(math.pi * torch.arange(ceps) / _LIFTER)
