"""Noise added at a signal-to-noise ratio, and reverberation by an impulse response. Both keep length and timing."""

from __future__ import annotations

import numpy as np
import torch

SILENCE = 1e-20  # mean square that counts as silence: -200 dB of full scale


def add_noise(
    waveform: torch.Tensor, noise: torch.Tensor, snr: float, first: int = 0, speech: torch.Tensor | None = None
) -> torch.Tensor:
    """Add ``noise`` (N,) to ``waveform`` (…, S) from sample ``first`` on, so that the ratio of powers is ``snr`` dB.

    Power is the mean square over the whole length, that of ``speech`` where it is not the waveform itself. If either
    is silent there is no such ratio, and nothing is added.
    """
    speech_power, noise_power = _power(waveform if speech is None else speech), _power(noise)
    if min(speech_power, noise_power) < SILENCE:
        return waveform
    noisy = waveform.clone()
    noisy[..., first : first + len(noise)].add_(noise, alpha=(speech_power / noise_power * 10 ** (-snr / 10)) ** 0.5)
    return noisy


def reverberate(waveform: torch.Tensor, response: torch.Tensor, direct: int | None = None) -> torch.Tensor:
    """Convolve ``waveform`` (…, S) with ``response`` (N,), keeping its shape, its timing and its loudness.

    As with Kaldi's ``wav-reverberate --shift-output --normalize-output``: the response's highest peak (the
    direct sound) is at time 0, and the result is scaled to the power of ``waveform``. Silence stays silence.
    ``direct``: the number of the response's sample that is the direct sound, where that is known.
    """
    samples = waveform.shape[-1]
    peak = int(response.abs().argmax()) if direct is None else direct
    response = response[: peak + samples]  # the rest would be heard only after the end
    size = fast_length(samples + len(response) - 1)
    spectrum = np.fft.rfft(waveform.numpy(), size)  # pocketfft: twice as fast as torch's on one thread
    spectrum *= np.fft.rfft(response.numpy(), size)
    wet = torch.from_numpy(np.fft.irfft(spectrum, size)[..., peak : peak + samples].astype(np.float32, copy=False))
    return with_power_of(waveform, wet)


def with_power_of(waveform: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Scale ``changed`` to the power of ``waveform``, of the same shape. Zeros if either is silent."""
    before, after = _power(waveform), _power(changed)
    return changed * (before / after) ** 0.5 if min(before, after) >= SILENCE else torch.zeros_like(waveform)


def fast_length(least: int) -> int:
    """Return the smallest 2^a · 3^b · 5^c that is not below ``least``: at such lengths the FFT is fast."""
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-least // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


def _power(waveform: torch.Tensor) -> float:
    flat = waveform.reshape(-1)
    return float(torch.dot(flat, flat)) / max(1, len(flat))
