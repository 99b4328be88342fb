"""Low-pass, loudness and pitch. All keep length and timing of their input.

Filters are cascades of second-order sections (Bristow-Johnson, "Cookbook formulae for audio EQ biquad filter
coefficients"), computed in float64 by ``_kernel.c``, or in Python, to the same bits, where that could not be compiled.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.dsp import frames
from uio_pipes.dsp.effects import with_power_of
from uio_pipes.dsp.resample import fit_length, resample

SECTIONS = 4  # second-order sections of the low-pass filter
GATE = 0.4  # seconds of the blocks whose loudness is measured
_CHANNELS = np.array([1.0, 1.0, 1.0, 1.41, 1.41])  # weights of BS.1770-4, which has no more
_BIAS, _SILENCE, _BELOW = -0.691, -70.0, -10.0  # LUFS of power 1 and of the absolute gate, and LU of the relative one
_WINDOW = 0.032  # seconds of the phase vocoder's windows
_MAX_DENOMINATOR = 100  # of a pitch as a fraction
_NORMAL = 1e-60  # added to samples: numbers that die away in a filter never get so small that CPUs slow down

Section = tuple[float, float, float, float, float, float]  # b0, b1, b2 over a0, a1, a2


def lowpass(waveform: torch.Tensor, sample_rate: int, cutoff: float) -> torch.Tensor:
    """Filter by an eighth-order Butterworth low-pass: -3 dB at ``cutoff`` Hz, 48 dB per octave above.

    It is a cascade of second-order sections whose poles lie on a circle (Butterworth 1930). A cutoff at or above half
    the sample rate changes nothing.
    """
    if cutoff >= sample_rate / 2:
        return waveform
    turn = 2 * math.pi * cutoff / sample_rate
    cosine, gain, sections = math.cos(turn), math.sin(turn / 2) ** 2, list[Section]()
    for i in range(SECTIONS):
        alpha = math.sin(turn) * math.cos(math.pi * (2 * i + 1) / (4 * SECTIONS))
        sections.append((gain, 2 * gain, gain, 1 + alpha, -2 * cosine, 1 - alpha))
    return torch.from_numpy(_cascade(waveform.numpy(), sections))


def loudness(waveform: torch.Tensor, sample_rate: int) -> float:
    """Return the integrated loudness in LUFS (ITU-R BS.1770-4). It is not finite for silence, or below 0.4 s.

    Of more than five channels, the first five are measured.
    """
    block = round(GATE * sample_rate)
    if waveform.shape[-1] < block:
        return -math.inf
    weighted = _cascade(waveform[: len(_CHANNELS)].numpy(), _k_weighting(sample_rate))
    squares = _CHANNELS[: len(weighted)] @ np.square(weighted, dtype=np.float64)
    power = np.lib.stride_tricks.sliding_window_view(squares, block)[:: round(block / 4)].mean(1)
    power = power[power > 10 ** ((_SILENCE - _BIAS) / 10)]
    if not len(power):
        return -math.inf
    return _BIAS + 10 * math.log10(power[power > power.mean() * 10 ** (_BELOW / 10)].mean())


def _k_weighting(sample_rate: int) -> list[Section]:
    """4 dB more above 1.5 kHz, as a head does, and nothing below 38 Hz: near the standard's, at any rate."""
    turn, gain = 2 * math.pi * 1500 / sample_rate, 10 ** (4 / 40)
    slope, up, down, cosine = math.sqrt(2 * gain) * math.sin(turn), gain + 1, gain - 1, math.cos(turn)
    over = gain * (up + down * cosine + slope), -2 * gain * (down + up * cosine), gain * (up + down * cosine - slope)
    shelf = *over, up - down * cosine + slope, 2 * (down - up * cosine), up - down * cosine - slope
    turn = 2 * math.pi * 38 / sample_rate
    alpha, cosine, gain = math.sin(turn), math.cos(turn), math.cos(turn / 2) ** 2
    return [shelf, (gain, -2 * gain, gain, 1 + alpha, -2 * cosine, 1 - alpha)]


def _cascade(waveform: npt.NDArray[np.float32], sections: list[Section]) -> npt.NDArray[np.float32]:
    """Filter (C, S) by one section after the other."""
    waveform, out = np.ascontiguousarray(waveform), np.empty(waveform.shape, np.float32)
    scaled = np.array([(b0 / a0, b1 / a0, b2 / a0, a1 / a0, a2 / a0) for b0, b1, b2, a0, a1, a2 in sections])
    for channel, row in zip(waveform, out, strict=True):
        if hasattr(frames.kernel, "cascade"):
            frames.kernel.cascade(channel, scaled, _NORMAL, row)
            continue
        values = (channel.astype(np.float64) + _NORMAL).tolist()
        for b0, b1, b2, a1, a2 in scaled.tolist():
            first = second = 0.0
            for n, x in enumerate(values):
                values[n] = y = b0 * x + first
                first, second = (b1 * x + second) - a1 * y, b2 * x - a2 * y
        row[:] = values
    return out


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
    hop, window = size // 4, torch.hann_window(size, dtype=torch.float32)
    padded = fit_length(waveform, samples + size)  # the last window is a whole one
    spectra = torch.stft(padded, size, hop, window=window, pad_mode="constant", return_complex=True)
    stretched = np.stack([_stretched(one.numpy().T, ratio).T for one in spectra])
    longer = torch.istft(torch.from_numpy(stretched), size, hop, window=window)
    shifted = [resample(one[None], ratio.numerator, ratio.denominator) for one in longer]
    return with_power_of(waveform, fit_length(torch.cat(shifted), samples))


def _stretched(spectra: npt.NDArray[np.complex64], ratio: Fraction) -> npt.NDArray[np.complex64]:
    """Make ``ratio`` times as many spectra of (T, F), by a phase vocoder (Flanagan and Golden 1966).

    Each new one has the magnitudes between those of two old ones, and its phases go on as they do between these. Phases
    are complex numbers of magnitude 1: as sums of angles, thousands of turns, float32 would round them to hundredths.
    """
    times = np.arange(math.ceil(len(spectra) * ratio)) * ratio.denominator
    old, part = times // ratio.numerator, (times % ratio.numerator / ratio.numerator).astype(np.float32)[:, None]
    spectra = np.concatenate([spectra, np.zeros_like(spectra[:1])])
    magnitude = np.sqrt(np.square(spectra.real) + np.square(spectra.imag))
    silent = magnitude == 0
    phases = spectra / np.where(silent, np.float32(1), magnitude)
    phases[silent] = 1
    turns = phases[1:] * phases[:-1].conj()
    new = np.concatenate([phases[:1], turns[old[:-1]]])
    for before, one in pairwise(new):
        one *= before
    new *= magnitude[old] * (1 - part) + magnitude[old + 1] * part
    return new
