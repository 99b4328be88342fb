"""Changes of sample rate and speed, equal to ``torchaudio.transforms.Resample`` with its defaults, as WeNet uses it.

(``torchaudio.functional.resample`` makes its weights in float32, and differs by up to 3e-5 for 11025 to 16000 Hz.)
Output sample j is a Hann-windowed sinc of 6 zero crossings around input position j · orig / new. The weights repeat
after ``new`` outputs. A long enough period of them is split into groups of outputs. Each group is one matrix product
over the inputs that it needs, read in place from the padded waveform: nothing is copied, and few weights are 0.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.memory import bytes_in, kept

_ZERO_CROSSINGS = 6
_ROLLOFF = 0.99  # of the lower of the two Nyquist frequencies
_PERIOD = 32  # the fewest outputs in a row of the products
_GROUP = 16  # outputs of one product: the fastest of 8 … 64
_MAX_DENOMINATOR = 100  # of a speed as a fraction
_FEWEST = 64  # each output counts as at least so many weights: making fewer takes as long
_MOST_WEIGHTS = 1 << 22  # 16 MB for a pair of rates; 44,100 to 16,000 Hz needs 16,000


def resampled_length(samples: int, orig: int, new: int) -> int:
    """Return the number of samples that ``resample`` makes of ``samples``: ⌈samples · new / orig⌉.

    It is rounded through float32 as in torchaudio, so that the lengths agree even where that is off by one.
    """
    orig, new = _reduced(orig, new)
    if orig == new:
        return samples
    return min(math.ceil(float(np.float32(new * samples / orig))), (samples // orig + 1) * new)


def resample(waveform: torch.Tensor, orig: int, new: int) -> torch.Tensor:
    """Resample (C, S) float32 at ``orig`` Hz to (C, ``resampled_length(S, orig, new)``) at ``new`` Hz.

    Only the ratio of the rates counts; equal rates return the input. Raises: PipelineError for rates that are not
    positive and for other shapes; DataError ``bad_rate`` for a ratio whose filter needs over 4 million weights.
    """
    orig, new = _reduced(orig, new)
    if waveform.dim() != 2 or not len(waveform):
        raise PipelineError(f"resample: needs a shape of (channels, samples), not {tuple(waveform.shape)}")
    if orig == new:
        return waveform
    if len(waveform) > 1:
        return torch.cat([resample(channel[None], orig, new) for channel in waveform])
    plan = _plan(orig, new)
    samples = waveform.shape[1]
    length = resampled_length(samples, orig, new)
    rows = -(-length // plan.period)
    padded = torch.zeros(max(rows - 1, 0) * plan.hop + plan.reach, dtype=torch.float32)
    copied = min(samples, len(padded) - plan.margin)
    padded[plan.margin : plan.margin + copied] = waveform[0, :copied]
    out = torch.empty(rows, plan.period, dtype=torch.float32)
    for group in plan.groups:
        inputs = padded.as_strided((rows, len(group.weights)), (plan.hop, 1), group.first)
        torch.mm(inputs, group.weights, out=out[:, group.outputs])
    return out.view(1, -1)[:, :length]


def speed_length(samples: int, speed: float) -> int:
    """Return the number of samples that ``change_speed`` makes of ``samples``."""
    return resampled_length(samples, *speed_ratio(speed))


def change_speed(waveform: torch.Tensor, sample_rate: int, speed: float) -> torch.Tensor:
    """Play (C, S) ``speed`` times as fast: pitch and length change, the rate does not (sox's ``speed`` and ``rate``).

    ``speed`` is rounded to a fraction with a denominator of at most 100; 1.0 returns the input. The ratio of
    ``sample_rate · speed`` to ``sample_rate`` is the speed at any rate. Raises: PipelineError for speeds below 1 / 200.
    """
    return resample(waveform, *speed_ratio(speed))


def fit_length(waveform: torch.Tensor, samples: int) -> torch.Tensor:
    """Cut (C, S) after ``samples``, or fill it up with zeros."""
    return torch.nn.functional.pad(waveform, (0, samples - waveform.shape[1]))  # a negative padding cuts


@lru_cache(64)
def speed_ratio(speed: float) -> tuple[int, int]:
    """Return a speed as the fraction by which ``change_speed`` plays. Raises: PipelineError."""
    ratio = Fraction(speed).limit_denominator(_MAX_DENOMINATOR) if math.isfinite(speed) else Fraction(0)
    if ratio <= 0:
        raise PipelineError(
            f"change_speed: speed must be 1 / {_MAX_DENOMINATOR} or more, not {speed}; 0.9 … 1.1 is usual"
        )
    return ratio.numerator, ratio.denominator


def _reduced(orig: int, new: int) -> tuple[int, int]:
    if orig <= 0 or new <= 0:
        raise PipelineError(f"resample: both rates must be above 0 Hz, not {orig} and {new}; 16000 is usual")
    common = math.gcd(orig, new)
    return orig // common, new // common


class _Group(NamedTuple):
    """Neighbouring outputs of a period, the first padded input that they need, and the weights of the inputs."""

    outputs: slice
    first: int
    weights: torch.Tensor  # (inputs, outputs) float32


class _Plan(NamedTuple):
    period: int  # outputs in a row
    hop: int  # inputs from row to row
    margin: int  # zeros before the first input
    reach: int  # padded inputs that one row needs
    groups: list[_Group]


@kept("weights to resample", 32, bytes_in)
def _plan(orig: int, new: int) -> _Plan:
    cutoff = min(orig, new) * _ROLLOFF
    margin = math.ceil(_ZERO_CROSSINGS * orig / cutoff)
    repeats = -(-_PERIOD // new)
    # BLAS reads rows in place only if they do not overlap: a group must not need more inputs than lie between two rows.
    while repeats * orig < math.ceil((_GROUP - 1) * orig / new) + 2 * margin + 2:
        repeats *= 2
    period = repeats * new
    weights = period * max(math.ceil((_GROUP - 1) * orig / new) + 2 * margin + 1, _FEWEST)
    if weights > _MOST_WEIGHTS:
        raise DataError(
            "bad_rate",
            f"resampling by {orig}:{new} in lowest terms needs a filter of {weights:,} weights, more than the "
            f"{_MOST_WEIGHTS:,} that are allowed: correct the sample rate, or resample the file first: "
            "ffmpeg -i FILE -ar 16000 OUT.wav",
        )
    groups = [_group(j, min(j + _GROUP, period), orig, new, margin) for j in range(0, period, _GROUP)]
    reach = max(group.first + len(group.weights) for group in groups)
    return _Plan(period, repeats * orig, margin, reach, groups)


def _group(start: int, end: int, orig: int, new: int, margin: int) -> _Group:
    """Make the weights of the outputs ``start`` … ``end`` - 1, rounded as in torchaudio."""
    first, last = start * orig // new, -(-(end - 1) * orig // new) + 2 * margin
    output = torch.arange(start, end)
    position = torch.arange(first, last + 1)[:, None] - margin - output // new * orig
    time = position.double() / orig + -(output % new) / new  # the second term is float32, as torchaudio's
    phase = (time * (min(orig, new) * _ROLLOFF)).clamp_(-_ZERO_CROSSINGS, _ZERO_CROSSINGS)
    window = torch.cos(phase * math.pi / _ZERO_CROSSINGS / 2) ** 2
    weights = torch.sinc(phase) * window * (min(orig, new) * _ROLLOFF / orig)
    return _Group(slice(start, end), first, weights.float())
