"""Kaldi's log mel filter bank on the CPU, equal to ``torchaudio.compliance.kaldi.fbank`` and several times as fast.

It is faster because buffers are used again, blocks of frames stay in the cache, and the mel matrix is applied in groups
of bands, each over the spectrum bins that it covers, instead of as one dense product of mostly zeros. With dither, next
to which rounding does not matter, each sample is emphasized once, and not in every frame that has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws

LENGTHS = (1 << 18, (1 << 18) - 1)  # of the tables, coprime: 16 s at 16 kHz
_SEED = 20_000_003


def noise(samples: int, draws: Draws) -> list[torch.Tensor]:
    """Return two tensors (S,) float32, not to be written to, whose sum is standard normal.

    They are stretches of two tables of normals, at drawn places and with drawn signs: a sum of two independent normals
    of variance 1/2 is a normal of variance 1. The tables are circles of coprime lengths, so that 2.7e11 different
    noises are equally likely, and none repeats within an utterance; but after 16 s one half of it comes again with the
    other sign, and a sample later the other half. One of 260,000 pairs of utterances has half of its noise in common,
    sample for sample. Drawing as many normals would take ten times as long.
    """
    return [_stretch(table, samples, draws.below(2 * n)) for table, n in zip(_tables(), LENGTHS, strict=True)]


def _stretch(table: torch.Tensor, samples: int, first: int) -> torch.Tensor:
    """Take (S,) from the circle of a table and its negative, from ``first`` on."""
    circle = 2 * len(table) // 3
    if first + samples <= len(table):
        return table[first : first + samples]
    return table[:circle].roll(-first).repeat(-(-samples // circle))[:samples]


@cache
def _tables() -> list[torch.Tensor]:
    """Draw normals of variance 1/2, then append their negatives and the normals again: most stretches are one piece."""
    generator = torch.Generator().manual_seed(_SEED)
    normals = [torch.randn(n, generator=generator) * 0.5**0.5 for n in LENGTHS]
    return [torch.cat((drawn, -drawn, drawn)) for drawn in normals]


Noise = Sequence[torch.Tensor]  # (S,) each; their sum is added to a waveform

PREEMPHASIS = 0.97
_KEPT = 1.0 - float(np.float32(PREEMPHASIS))  # of a constant: 0.97 is rounded in float32
SCALE = 32768.0  # Kaldi's features are defined on 16-bit sample values
FLOOR = float(np.finfo(np.float32).eps)  # of a band's energy, before the logarithm
_BLOCK = 512  # frames processed at once: 2 MB of buffers at 16 kHz; longer audio takes several blocks
_BANDS = 8  # mel bands per matrix product: the fastest of 8 … 80
_THREADS = 1 << 18  # multiplications from which on OpenBLAS uses several threads


def num_frames(samples: int, sample_rate: int, frame_length: float = 25.0, frame_shift: float = 10.0) -> int:
    """Return the number of frames that lie wholly inside ``samples`` (Kaldi's ``snip_edges``); lengths in ms."""
    window, shift = _window_and_shift(sample_rate, frame_length, frame_shift)
    return 0 if samples < window else 1 + (samples - window) // shift


class Fbank:
    """Log mel energies of a waveform, with ``energy_floor`` 0.

    ``num_mel_bins`` is F; ``frame_length`` and ``frame_shift`` are in ms; ``window_type`` is one of Kaldi's; the bank
    reaches from ``low_freq`` to ``high_freq`` Hz. A ``high_freq`` of 0 or less is counted from half the sample rate.
    ``dither`` is the standard deviation, on the 16-bit scale, of Gaussian noise that is added once to the waveform.
    (Kaldi draws new noise for every frame. Here overlapping frames share it; within a frame its distribution is the
    same.) All formulas are from Kaldi's feature-window.cc and mel-computations.cc. Without dither every step rounds as
    in torchaudio, which matters where a bin is far below its frame's peak. With dither the steps are in another order,
    which rounds as well as torchaudio's: both are equally far from the features in float64.
    """

    name: ClassVar[str] = "fbank"  # in messages

    def __init__(
        self,
        num_mel_bins: int = 23,
        frame_length: float = 25.0,
        frame_shift: float = 10.0,
        dither: float = 0.0,
        window_type: str = "povey",
        low_freq: float = 20.0,
        high_freq: float = 0.0,
    ) -> None:
        """Raise PipelineError where a value cannot be used."""
        require(num_mel_bins > 3, self.name, "num_mel_bins must be more than 3", num_mel_bins, "80 is usual")
        if not 0 < frame_length < math.inf or not 0 < frame_shift < math.inf:
            raise PipelineError(
                f"{self.name}: frame_length and frame_shift must be above 0 ms, not {frame_length} and {frame_shift}; "
                "25 and 10 are usual"
            )
        if min(frame_length, frame_shift) < 1:
            raise PipelineError(
                f"{self.name}: frame_length and frame_shift are in ms, at least 1, not {frame_length} and "
                f"{frame_shift}; 25 and 10 are usual"
            )
        remedy = "0 adds no noise, 1 is Kaldi's default"
        require(0 <= dither < math.inf, self.name, "dither must be 0 or more", dither, remedy)
        rule = f"window_type must be one of {', '.join(_WINDOWS)}"
        require(window_type in _WINDOWS, self.name, rule, window_type, "try povey")
        if not 0 <= low_freq < math.inf or 0 < high_freq <= low_freq:
            raise PipelineError(
                f"{self.name}: low_freq must be 0 Hz or more and below high_freq, not {low_freq} and {high_freq}; "
                "20 and 0 (half the sample rate) are usual"
            )
        self.num_mel_bins, self.frame_length, self.frame_shift = num_mel_bins, frame_length, frame_shift
        self.dither, self.window_type = dither, window_type
        self.low_freq, self.high_freq = low_freq, high_freq
        self._constants: dict[int, _Constants] = {}
        self._scratch: dict[int, list[_Scratch]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the parameters: a worker makes its own constants and buffers."""
        return type(self), self._parameters()

    def _parameters(self) -> tuple[object, ...]:
        frames = self.num_mel_bins, self.frame_length, self.frame_shift, self.dither, self.window_type
        return *frames, self.low_freq, self.high_freq

    def __call__(self, waveform: torch.Tensor, sample_rate: int, noise: Noise = ()) -> torch.Tensor:
        """Compute features: (S,) or (1, S) float32 in [-1, 1] → (T, F) float32; T = ``num_frames(S, …)`` may be 0.

        ``noise``: tensors (S,) whose sum is standard normal. Raises: PipelineError if there is dither but no noise, if
        there are several channels, or if the frame does not suit the sample rate.
        """
        constants = self.constants(sample_rate)
        samples = self._dithered(waveform, noise)
        window, shift, length = constants.window.shape[0], constants.shift, samples.shape[0]
        count = 0 if length < window else 1 + (length - window) // shift
        frames = samples.as_strided((count, window), (shift, 1))
        emphasized = _emphasized(samples).as_strided((count, window), (shift, 1)) if self.dither else None
        features = torch.empty(count, self.num_mel_bins)
        scratch = self._take_scratch(sample_rate, constants)
        for start in range(0, count, _BLOCK):
            block = slice(start, start + _BLOCK)
            if emphasized is None:
                windowed = _exact(frames[block], constants, scratch)
            else:
                windowed = _fast(frames[block], emphasized[block], constants, scratch)
            _apply(windowed, constants, features[block])
        self._scratch[sample_rate].append(scratch)
        energies = features.numpy()
        np.log(np.maximum(energies, FLOOR, out=energies), out=energies)  # a third of torch.log's time
        return features

    def _dithered(self, waveform: torch.Tensor, noise: Noise) -> torch.Tensor:
        """Return the waveform (S,), or a copy with dither: the input is never written to."""
        if waveform.numel() != waveform.shape[-1]:
            raise PipelineError(
                f"{self.name}: needs one channel, not a shape of {tuple(waveform.shape)}; choose one before"
            )
        samples = waveform.reshape(-1)
        if self.dither and not noise:
            raise PipelineError(f"{self.name}: dither {self.dither} needs noise; pass some, or set dither to 0")
        if self.dither:
            samples = torch.add(samples, noise[0], alpha=self.dither / SCALE)
            for part in noise[1:]:
                samples.add_(part, alpha=self.dither / SCALE)
        return samples

    def constants(self, sample_rate: int) -> _Constants:
        """Return the constants for a sample rate, made once. Raises: PipelineError as a call does."""
        return self._constants.get(sample_rate) or self._make_constants(sample_rate)

    def bank(self, sample_rate: int) -> torch.Tensor:
        """Return the mel triangles, (F, padded // 2) float32. Raises: PipelineError if the rate does not suit them."""
        window, _ = _window_and_shift(sample_rate, self.frame_length, self.frame_shift)
        nyquist = 0.5 * sample_rate
        high_freq = self.high_freq if self.high_freq > 0 else nyquist + self.high_freq
        if not self.low_freq < high_freq <= nyquist:
            raise PipelineError(
                f"{self.name}: at {sample_rate} Hz the mel bins would lie from {self.low_freq:g} to {high_freq:g} Hz; "
                f"the upper end must be above the lower one and at most {nyquist:g} Hz: choose another low_freq or "
                "high_freq, or resample before"
            )
        padded = 1 << (window - 1).bit_length()
        return _mel_bank(self.num_mel_bins, padded, sample_rate, self.low_freq, high_freq)

    def _make_constants(self, sample_rate: int) -> _Constants:
        window, shift = _window_and_shift(sample_rate, self.frame_length, self.frame_shift)
        if window < 2 or shift < 1:
            raise PipelineError(
                f"{self.name}: at {sample_rate} Hz a frame of {self.frame_length} ms every {self.frame_shift} ms is "
                f"{window} samples every {shift}; needed are 2 every 1: use longer frames"
            )
        padded = 1 << (window - 1).bit_length()
        groups = band_groups(self.bank(sample_rate))
        weights = _WINDOWS[self.window_type](window)
        constants = _Constants(weights * SCALE, shift, padded, bool(weights[0]), groups)
        self._scratch.setdefault(sample_rate, [])
        self._constants[sample_rate] = constants
        return constants

    def _take_scratch(self, sample_rate: int, constants: _Constants) -> _Scratch:
        """Take buffers that no other thread uses: a call takes them from the list and puts them back."""
        try:
            return self._scratch[sample_rate].pop()
        except IndexError:
            window, padded = len(constants.window), constants.padded
            return _Scratch(
                torch.empty(_BLOCK, 1),
                torch.empty(_BLOCK, window),
                torch.zeros(_BLOCK, window),
                torch.zeros(_BLOCK, padded),
            )


class BandGroup(NamedTuple):
    """Neighbouring mel bands, the columns of the spectrum (re, im, re, im, …) that they cover, and their weights."""

    bands: slice
    columns: slice
    weights: npt.NDArray[np.float32]  # (columns, bands)
    most: int  # frames in one product: with more, OpenBLAS would start threads


class _Constants(NamedTuple):
    window: torch.Tensor  # (W,), times SCALE: a power of two, with which every step rounds as without
    shift: int  # samples
    padded: int  # length of the Fourier transform: the next power of two
    begins: bool  # whether the window's first weight is not 0
    groups: list[BandGroup]


class _Scratch(NamedTuple):
    mean: torch.Tensor  # (block, 1)
    centred: torch.Tensor  # (block, W)
    emphasized: torch.Tensor  # (block, W)
    windowed: torch.Tensor  # (block, padded); the columns from W on stay 0


def _exact(frames: torch.Tensor, constants: _Constants, scratch: _Scratch) -> torch.Tensor:
    """Return the windowed frames of (n, W) samples, (n, padded), with every step rounded as in torchaudio."""
    mean, centred, emphasized, windowed = (buffer[: len(frames)] for buffer in scratch)
    torch.mean(frames, 1, keepdim=True, out=mean)
    torch.sub(frames, mean, out=centred)
    row, previous = centred.view(-1), emphasized.view(-1)[1:]
    torch.mul(row[:-1], PREEMPHASIS, out=previous)
    torch.sub(row[1:], previous, out=previous)
    if constants.begins:  # in the row it follows the last sample of another frame; a window may hide that
        torch.sub(centred[:, 0], centred[:, 0] * PREEMPHASIS, out=emphasized[:, 0])  # it is its own predecessor
    torch.mul(emphasized, constants.window, out=windowed[:, : frames.shape[1]])
    return windowed


def _emphasized(samples: torch.Tensor) -> torch.Tensor:
    """Return each sample less 0.97 of the one before, (S,)."""
    emphasized = torch.empty_like(samples)
    torch.sub(samples[1:], samples[:-1], alpha=PREEMPHASIS, out=emphasized[1:])
    emphasized.numpy()[0] = 0
    return emphasized


def _fast(frames: torch.Tensor, emphasized: torch.Tensor, constants: _Constants, scratch: _Scratch) -> torch.Tensor:
    """Return what :func:`_exact` does, by other rounding: a mean of m in the frame is one of 0.03 m after emphasis."""
    mean, windowed = scratch.mean[: len(frames)], scratch.windowed[: len(frames)]
    inner = windowed[:, : frames.shape[1]]
    torch.mean(frames, 1, keepdim=True, out=mean)
    torch.sub(emphasized, mean.mul_(_KEPT), out=inner)
    if constants.begins:  # the first sample of a frame is its own predecessor
        torch.sub(frames[:, 0] * _KEPT, mean[:, 0], out=inner[:, 0])
    inner.mul_(constants.window)
    return windowed


def _apply(windowed: torch.Tensor, constants: _Constants, features: torch.Tensor) -> None:
    """Write the mel energies of ``windowed`` (n, padded) into ``features`` (n, F)."""
    power = torch.view_as_real(torch.fft.rfft(windowed)).view(len(windowed), -1)  # torch would copy it to an `out`
    power.mul_(power)  # squares; the doubled rows of the weights add re² and im²
    apply_bank(constants.groups, power, features)


def _window_and_shift(sample_rate: int, frame_length: float, frame_shift: float) -> tuple[int, int]:
    """Return the samples in a window and between windows, in Kaldi's order of rounding."""
    return int(sample_rate * frame_length * 0.001), int(sample_rate * frame_shift * 0.001)


def _mel_bank(bands: int, padded: int, sample_rate: int, low_freq: float, high_freq: float) -> torch.Tensor:
    """Make triangles evenly spaced on the mel scale 1127 ln(1 + f / 700): (bands, padded // 2) float32 weights."""
    low, high = (1127.0 * math.log(1.0 + f / 700.0) for f in (low_freq, high_freq))
    delta = (high - low) / (bands + 1)
    band = torch.arange(bands).unsqueeze(1)
    left, centre, right = low + band * delta, low + (band + 1.0) * delta, low + (band + 2.0) * delta
    mel = 1127.0 * (1.0 + sample_rate / padded * torch.arange(padded / 2) / 700.0).log()
    return torch.min((mel - left) / (centre - left), (right - mel) / (right - centre)).clamp_(min=0.0)


def band_groups(bank: torch.Tensor) -> list[BandGroup]:
    """Split the bank into groups of bands, each with its own range of spectrum bins."""
    groups = []
    for first in range(0, len(bank), _BANDS):
        part = bank[first : first + _BANDS]
        bins = part.any(0).nonzero().flatten().tolist() or [0]  # bands narrower than a bin may cover none
        low, high = bins[0], bins[-1] + 1
        weights = part[:, low:high].repeat_interleave(2, 1).T.contiguous().numpy()
        most = max(1, _THREADS // weights.size)
        groups.append(BandGroup(slice(first, first + len(part)), slice(2 * low, 2 * high), weights, most))
    return groups


def apply_bank(groups: list[BandGroup], power: torch.Tensor, features: torch.Tensor) -> None:
    """Write ``power`` (n, columns), squares of (re, im, re, im, …), times the weights into ``features`` (n, F)."""
    squares, energies = power.numpy(), features.numpy()  # OpenBLAS takes two thirds of MKL's time for such products
    for bands, columns, weights, most in groups:
        for first in range(0, len(squares), most):
            part = slice(first, first + most)
            np.matmul(squares[part, columns], weights, out=energies[part, bands])


def _hann(size: int) -> torch.Tensor:
    return torch.hann_window(size, periodic=False)


def _blackman(size: int) -> torch.Tensor:
    angle = 2 * math.pi / (size - 1)
    n = torch.arange(size, dtype=torch.float32)
    return 0.42 - 0.5 * torch.cos(angle * n) + 0.08 * torch.cos(2 * angle * n)


_WINDOWS: dict[str, Callable[[int], torch.Tensor]] = {
    "povey": lambda size: _hann(size).pow(0.85),
    "hanning": _hann,
    "hamming": lambda size: torch.hamming_window(size, periodic=False, alpha=0.54, beta=0.46),
    "blackman": _blackman,
    "rectangular": torch.ones,
}
