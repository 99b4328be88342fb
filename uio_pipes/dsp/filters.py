"""Filters, loudness and pitch, on ``torchaudio.functional``. All keep the shape (C, S) of their input.

torchaudio's filters clip what leaves [-1, 1]. So they get the waveform scaled down, and the result is scaled up again.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from uio_pipes.dsp.extra import functional
from uio_pipes.dsp.noise import with_power_of
from uio_pipes.dsp.resample import fit_length, resample

SECTIONS = 4  # second-order sections of the low-pass filter
GATE = 0.4  # seconds of the blocks whose loudness is measured
_MOST_CHANNELS = 5  # BS.1770 has weights for so many
_HEADROOM = 16.0  # above what a section may add to a peak
_WINDOW = 0.032  # seconds of the phase vocoder's windows
_MAX_DENOMINATOR = 100  # of a pitch as a fraction


def lowpass(waveform: torch.Tensor, sample_rate: int, cutoff: float) -> torch.Tensor:
    """Filter by an eighth-order Butterworth low-pass: -3 dB at ``cutoff`` Hz, 48 dB per octave above.

    It is a cascade of second-order sections whose poles lie on a circle (Butterworth 1930). A cutoff at or above half
    the sample rate changes nothing.
    """
    peak = float(waveform.abs().max())
    if cutoff >= sample_rate / 2 or not peak:
        return waveform
    scale = _HEADROOM * peak
    filtered = waveform / scale
    for i in range(SECTIONS):
        q = 0.5 / math.cos(math.pi * (2 * i + 1) / (4 * SECTIONS))
        filtered = functional("lowpass").lowpass_biquad(filtered, sample_rate, cutoff, q)
    return filtered * scale


def loudness(waveform: torch.Tensor, sample_rate: int) -> float:
    """Return the integrated loudness in LUFS (ITU-R BS.1770-4). It is not finite for silence, or below 0.4 s.

    Of more than five channels, the first five are measured.
    """
    if waveform.shape[-1] < round(GATE * sample_rate):
        return -math.inf
    peak = float(waveform.abs().max())
    scale = max(1.0, 2 * peak)
    measured = float(functional("loudness").loudness(waveform[:_MOST_CHANNELS] / scale, sample_rate))
    return measured + 20 * math.log10(scale)


def pitch_shift(waveform: torch.Tensor, sample_rate: int, semitones: float) -> torch.Tensor:
    """Shift the pitch, keeping length and power: a phase vocoder stretches the time, resampling undoes that.

    The factor 2 ^ (``semitones`` / 12) is rounded to a fraction whose denominator is at most 100, for which resampling
    is fast: by less than a tenth of a semitone next to 0, and by far less elsewhere.
    """
    ratio = Fraction(2 ** (semitones / 12)).limit_denominator(_MAX_DENOMINATOR)
    if ratio == 1:
        return waveform
    samples = waveform.shape[-1]
    size = 1 << max(4, round(math.log2(_WINDOW * sample_rate)))
    hop = size // 4
    window = torch.hann_window(size)
    padded = fit_length(waveform, samples + size)  # the last window is a whole one
    frames = torch.stft(padded, size, hop, window=window, pad_mode="constant", return_complex=True)
    advance = torch.linspace(0, math.pi * hop, size // 2 + 1)[:, None]
    stretched = functional("pitch_shift").phase_vocoder(frames, float(1 / ratio), advance)
    longer = torch.istft(stretched, size, hop, window=window)
    shifted = [resample(one[None], ratio.numerator, ratio.denominator) for one in longer]
    return with_power_of(waveform, fit_length(torch.cat(shifted), samples))
