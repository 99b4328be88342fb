"""Kaldi's log mel filter bank on the CPU, equal to ``torchaudio.compliance.kaldi.fbank`` and many times as fast.

The constants are made here, in float64 where torchaudio's own rounding does not show, by Python's ``math`` alone: no
version of torch or NumPy changes a bit of them. :mod:`uio_pipes.dsp.frames` does the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.base.memory import bytes_in, kept
from uio_pipes.dsp.frames import FilterBank, Float32s

LENGTHS = (1 << 18, (1 << 18) - 1)  # of the tables, coprime: 16 s at 16 kHz
_SEED = 20_000_003


def noise(samples: int, draws: Draws) -> list[Float32s]:
    """Return two arrays (S,) float32, not to be written to, whose sum is standard normal.

    They are stretches of two tables of normals, at drawn places and with drawn signs: a sum of two independent normals
    of variance 1/2 is a normal of variance 1. The tables are circles of coprime lengths, so that 2.7e11 different
    noises are equally likely, and none repeats within an utterance; but after 16 s one half of it comes again with the
    other sign, and a sample later the other half. One of 260,000 pairs of utterances has half of its noise in common,
    sample for sample. Drawing as many normals would take ten times as long.
    """
    return [_stretch(table, samples, draws.below(2 * n)) for table, n in zip(_tables(), LENGTHS, strict=True)]


def _stretch(table: Float32s, samples: int, first: int) -> Float32s:
    """Take (S,) from the circle of a table and its negative, from ``first`` on."""
    circle = 2 * len(table) // 3
    if first + samples <= len(table):
        return table[first : first + samples]
    return np.resize(np.roll(table[:circle], -first), samples)


@kept("noise to dither", 1, bytes_in)
def _tables() -> list[Float32s]:
    """Draw normals of variance 1/2, then append their negatives and the normals again: most stretches are one piece."""
    generator = torch.Generator().manual_seed(_SEED)
    normals = [torch.randn(n, generator=generator, dtype=torch.float32) * 0.5**0.5 for n in LENGTHS]
    return [torch.cat((drawn, -drawn, drawn)).numpy() for drawn in normals]


Waveform = torch.Tensor | npt.NDArray[np.int16]
Noise = Sequence[Float32s]  # (S,) each; their sum is added to a waveform

PREEMPHASIS = 0.97
SCALE = 32768.0  # Kaldi's features are defined on 16-bit sample values
FLOOR = float(np.finfo(np.float32).eps)  # of a band's energy, before the logarithm


def num_frames(samples: int, sample_rate: int, frame_length: float = 25.0, frame_shift: float = 10.0) -> int:
    """Return the number of frames that lie wholly inside ``samples`` (Kaldi's ``snip_edges``); lengths in ms."""
    window, shift = _window_and_shift(sample_rate, frame_length, frame_shift)
    return 0 if samples < window else 1 + (samples - window) // shift


@dataclass(eq=False)
class Fbank:
    """Log mel energies of a waveform, with ``energy_floor`` 0.

    ``num_mel_bins`` is F; ``frame_length`` and ``frame_shift`` are in ms; ``window_type`` is one of Kaldi's; the bank
    reaches from ``low_freq`` to ``high_freq`` Hz. A ``high_freq`` of 0 or less is counted from half the sample rate.
    ``dither`` is the standard deviation, on the 16-bit scale, of Gaussian noise that is added once to the waveform.
    (Kaldi draws new noise for every frame. Here overlapping frames share it; within a frame its distribution is the
    same.) All formulas are from Kaldi's feature-window.cc and mel-computations.cc. The Fourier transform does not round
    as torchaudio's, which shows where a bin is far below its frame's peak: both are equally far from float64.

    Raises: PipelineError where a value cannot be used.
    """

    name: ClassVar[str] = "fbank"  # in messages

    num_mel_bins: int = 23
    frame_length: float = 25.0
    frame_shift: float = 10.0
    dither: float = 0.0
    window_type: str = "povey"
    low_freq: float = 20.0
    high_freq: float = 0.0

    def __post_init__(self) -> None:
        require(self.num_mel_bins > 3, self.name, "num_mel_bins must be more than 3", self.num_mel_bins, "80 is usual")
        frames = self.frame_length, self.frame_shift
        rule = "frame_length and frame_shift must be at least 1 ms"
        require(all(1 <= length < math.inf for length in frames), self.name, rule, frames, "25 and 10 are usual")
        remedy = "0 adds no noise, 1 is Kaldi's default"
        require(0 <= self.dither < math.inf, self.name, "dither must be 0 or more", self.dither, remedy)
        rule = f"window_type must be one of {', '.join(WINDOWS)}"
        require(self.window_type in WINDOWS, self.name, rule, self.window_type, "try povey")
        low, high = band = self.low_freq, self.high_freq
        rule, remedy = "low_freq must be 0 Hz or more and below high_freq", "20 and 0 (half the sample rate) are usual"
        require(0 <= low < math.inf and not 0 < high <= low, self.name, rule, band, remedy)
        self._frames: dict[int, FilterBank] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the parameters: a worker makes its own constants."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self))

    def __call__(self, waveform: Waveform, sample_rate: int, noise: Noise = ()) -> torch.Tensor:
        """Compute features: (S,) or (1, S) float32 in [-1, 1], or int16 → (T, F) float32; T = ``num_frames(S, …)`` may
        be 0.

        ``noise``: arrays (S,) whose sum is standard normal. Raises: PipelineError if there is dither but no noise, if
        there are several channels, or if the frame does not suit the sample rate.
        """
        if math.prod(waveform.shape) != waveform.shape[-1]:
            raise PipelineError(
                f"{self.name}: needs one channel, not a shape of {tuple(waveform.shape)}; select one first"
            )
        if self.dither and not noise:
            raise PipelineError(f"{self.name}: dither {self.dither} needs noise; pass some, or set dither to 0")
        added = tuple(noise) if self.dither else ()
        samples = np.ascontiguousarray(waveform.reshape(-1))
        return torch.from_numpy(self.frames(sample_rate)(samples, added, self.dither / SCALE))

    def frames(self, sample_rate: int) -> FilterBank:
        """Return the filter bank for a sample rate, made once. Raises: PipelineError as a call does."""
        return self._frames.get(sample_rate) or self._frames.setdefault(sample_rate, self._make_frames(sample_rate))

    def bank(self, sample_rate: int) -> Float32s:
        """Return the mel triangles, (F, padded // 2) float32. Raises: PipelineError if the rate does not suit them."""
        window, _ = _window_and_shift(sample_rate, self.frame_length, self.frame_shift)
        nyquist = 0.5 * sample_rate
        high_freq = self.high_freq if self.high_freq > 0 else nyquist + self.high_freq
        if not self.low_freq < high_freq <= nyquist:
            raise PipelineError(
                f"{self.name}: at {sample_rate} Hz the mel bins would lie from {self.low_freq:g} to {high_freq:g} Hz; "
                f"the upper end must be above the lower one and at most {nyquist:g} Hz: choose another low_freq or "
                "high_freq, or resample first"
            )
        padded = 1 << (window - 1).bit_length()
        return _mel_bank(self.num_mel_bins, padded, sample_rate, self.low_freq, high_freq)

    def _make_frames(self, sample_rate: int, cosines: Float32s | None = None) -> FilterBank:
        window, shift = _window_and_shift(sample_rate, self.frame_length, self.frame_shift)
        if window < 2 or shift < 1:
            raise PipelineError(
                f"{self.name}: at {sample_rate} Hz, a frame of {self.frame_length} ms every {self.frame_shift} ms is "
                f"{window} samples every {shift}, but at least 2 every 1 are needed: use longer frames"
            )
        padded = 1 << (window - 1).bit_length()
        weights = window_of(self.window_type, window) * np.float32(SCALE)
        return FilterBank(weights, shift, padded, self.bank(sample_rate), FLOOR, PREEMPHASIS, cosines)


def _window_and_shift(sample_rate: int, frame_length: float, frame_shift: float) -> tuple[int, int]:
    """Return the samples in a window and between windows, in Kaldi's order of rounding."""
    return int(sample_rate * frame_length * 0.001), int(sample_rate * frame_shift * 0.001)


def _mel_bank(bands: int, padded: int, sample_rate: int, low_freq: float, high_freq: float) -> Float32s:
    """Make triangles evenly spaced on the mel scale 1127 ln(1 + f / 700): (bands, padded // 2) float32 weights, rounded
    as torchaudio does."""
    low, high = (1127.0 * math.log(1.0 + f / 700.0) for f in (low_freq, high_freq))
    delta = (high - low) / (bands + 1)
    band = np.arange(bands, dtype=np.float32)[:, None]
    left, centre, right = (np.float32(low) + (band + np.float32(n)) * np.float32(delta) for n in range(3))
    ratios = np.float32(1) + np.float32(sample_rate / padded) * np.arange(padded // 2, dtype=np.float32) / np.float32(
        700
    )
    mel = np.float32(1127) * np.array([math.log(each) for each in ratios.tolist()], np.float32)
    return np.asarray(np.minimum((mel - left) / (centre - left), (right - mel) / (right - centre)).clip(np.float32(0)))


def window_of(kind: str, size: int, periodic: bool = False) -> Float32s:
    """Return a window by its name in ``WINDOWS``, (size,) float32; ``periodic``: it is one of ``size`` + 1 samples
    without the last."""
    whole = size if periodic else size - 1
    turns = (2 * math.pi * n / whole for n in range(size))
    return np.array([WINDOWS[kind](turn) for turn in turns], np.float32)


WINDOWS: dict[str, Callable[[float], float]] = {
    "povey": lambda turn: (0.5 - 0.5 * math.cos(turn)) ** 0.85,
    "hanning": lambda turn: 0.5 - 0.5 * math.cos(turn),
    "hamming": lambda turn: 0.54 - 0.46 * math.cos(turn),
    "blackman": lambda turn: 0.42 - 0.5 * math.cos(turn) + 0.08 * math.cos(2 * turn),
    "rectangular": lambda turn: 1.0,
}
