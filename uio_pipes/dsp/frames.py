"""Log band energies of the frames of a waveform, with the same bits on every CPU and with every version of torch.

The work is done by ``_kernel.c``, an extension that is compiled when the package is installed. Where that was not
possible, the same operations are done by NumPy, in the same order and so to the same bits, in thirty times the time.
"""

from __future__ import annotations

import cmath
import importlib
import logging
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

Float32s = npt.NDArray[np.float32]
Complex = tuple[Float32s, Float32s]  # real and imaginary parts: (bins, frames) each

log = logging.getLogger(__name__)

_ALL_LANES = 16  # the widest vectors that the kernel knows
_BLOCK = 128  # frames that NumPy works on at once
_OUTERMOST = (4, 2, 5)  # radices with a butterfly of their own; others are sums


def _compiled() -> Any:
    try:
        return importlib.import_module("uio_pipes.dsp._kernel")
    except ImportError as error:
        log.warning(
            "The compiled kernel for features and filters is missing (%s). NumPy computes the same results instead, 30 "
            "to 80 times more slowly. Install a C compiler, then reinstall the package.",
            error,
        )
        return None


kernel = _compiled()  # None: NumPy does it


def put_pcm(samples: npt.NDArray[np.int16], row: Float32s, padding: float) -> None:
    """Write 16-bit samples (S,) as floats in [-1, 1) to the beginning of ``row``, and ``padding`` after them."""
    if hasattr(kernel, "put_row"):  # one that was compiled for an earlier version has none
        kernel.put_row(np.ascontiguousarray(samples), row, padding)
        return
    row[: len(samples)] = samples
    row[: len(samples)] *= np.float32(1 / 32768)
    row[len(samples) :] = padding


class FilterBank:
    """Log energies of the bands of each frame, or their cosine transform: (S,) samples → (T, outputs) float32.

    Args:
        window: weights of the samples of a frame, (W,) float32.
        shift: samples from one frame to the next.
        size: length of the Fourier transform, an even number, at least W; frames are padded by zeros.
        bank: weights of the bins 0 … size / 2 in each band, (bands, bins) float32.
        floor: the least energy of a band, before the logarithm.
        emphasis: None, or what Kaldi's frames have: the mean is taken away, and then from each sample so much of the
            one before it (the first one is its own predecessor).
        cosines: matrix to multiply the logarithms by, (bands, outputs) float32. Default: None, none.
    """

    def __init__(
        self,
        window: Float32s,
        shift: int,
        size: int,
        bank: Float32s,
        floor: float,
        emphasis: float | None = None,
        cosines: Float32s | None = None,
    ) -> None:
        self._arguments = window, shift, size, bank, floor, emphasis, cosines
        self.window, self.shift = np.ascontiguousarray(window), shift
        self.cosines = None if cosines is None else np.ascontiguousarray(cosines)
        self.half, self.emphasis, self.floor = size // 2, emphasis, np.float32(floor)
        self.radices = np.array(_radices(self.half), np.int32)
        groups = [self.half // int(product) for product in np.cumprod(self.radices)]  # of each stage of the transform
        self.twiddles = [  # e^(-2πi p k / (n · r)) for p < n and 0 < k < r: (n, r - 1, 2)
            _units(np.outer(np.arange(n), np.arange(1, r)) / (n * r))
            for n, r in zip(groups, map(int, self.radices), strict=True)
        ]
        self.roots = [_units(np.arange(r) / r) if r not in _OUTERMOST else _NONE for r in map(int, self.radices)]
        self.unpacking = _units(0.25 + np.arange(self.half + 1) / (2 * self.half))
        self.spans = [_span(row) for row in bank]
        self.weights = [row[first:end] * np.float32(0.25) for row, (first, end) in zip(bank, self.spans, strict=True)]
        self.outputs = len(bank) if cosines is None else cosines.shape[1]
        self._arrays, self._plan = self._packed()

    def __call__(
        self,
        samples: npt.NDArray[Any],
        noise: tuple[Float32s, ...] = (),
        dither: float = 0.0,
        lanes: int = _ALL_LANES,
    ) -> Float32s:
        """Compute all frames that lie wholly inside of the samples.

        Args:
            samples: (S,) 16-bit integers, or numbers in [-1, 1], which are computed with as float32.
            noise: one or two arrays (S,), which are added times ``dither``. Default: (), nothing is added.
            dither: see ``noise``. Default: 0.0.
            lanes: frames side by side in a vector, at most. Default: what the CPU has.
        """
        pcm = samples.dtype.kind == "i" and samples.dtype.itemsize == 2
        samples = np.ascontiguousarray(samples, np.int16 if pcm else np.float32)
        noise = tuple(np.ascontiguousarray(each, np.float32) for each in noise)
        if len(noise) > 2 or any(each.shape != samples.shape for each in noise):
            raise ValueError(f"noise must be at most two arrays of {samples.shape}")
        count = 1 + (len(samples) - len(self.window)) // self.shift if len(samples) >= len(self.window) else 0
        out = np.empty((count, self.outputs), np.float32)
        if kernel is None:
            for first in range(0, count, _BLOCK):
                out[first : first + _BLOCK] = self._computed(samples, noise, dither, first, min(_BLOCK, count - first))
        elif count:
            first_noise, second_noise = (*noise, None, None)[:2]
            whole = samples.dtype == np.int16
            kernel.features(self._plan, samples, whole, first_noise, second_noise, dither, out, lanes)
        return out

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the arguments: the plan holds addresses."""
        return type(self), self._arguments

    def _packed(self) -> tuple[list[npt.NDArray[Any]], bytes]:
        """Return the arrays that the kernel reads, and its plan, which points to them."""
        tables = [each for pair in zip(self.twiddles, self.roots, strict=True) for each in pair]
        cosines = _NONE if self.cosines is None else self.cosines
        bins = np.arange(self.half, dtype=np.int32).reshape(self.radices)  # where the transform, in place, leaves each
        arrays = [
            self.window,
            np.concatenate([_NONE, *(table.reshape(-1, 2) for table in tables)]),
            self.unpacking,
            np.array([(first, end - first) for first, end in self.spans], np.int32),
            np.concatenate(self.weights),
            cosines,
            self.radices,
            np.ascontiguousarray(bins.T).reshape(-1),
        ]
        sizes = len(self.window), self.shift, self.half, len(self.radices), len(self.spans), self.outputs
        emphasis = self.emphasis or 0.0
        numbers = *sizes, self.emphasis is not None, emphasis, self.floor
        return arrays, struct.pack("8P7q2f", *map(_place, arrays), *numbers)

    # The same by NumPy: each line stands for one of the kernel, operation by operation.

    def _computed(
        self, samples: npt.NDArray[Any], noise: tuple[Float32s, ...], dither: float, first: int, count: int
    ) -> Float32s:
        part = slice(first * self.shift, (first + count - 1) * self.shift + len(self.window))
        wave = samples[part].astype(np.float32)
        if samples.dtype == np.int16:
            wave *= np.float32(1 / 32768)
        for each in noise:
            wave = wave + each[part] * np.float32(dither)
        frames = np.lib.stride_tricks.sliding_window_view(wave, len(self.window))[:: self.shift].T
        z = np.zeros((2 * self.half, count), np.float32)
        np.multiply(self._emphasized(frames), self.window[:, None], out=z[: len(self.window)])
        bands = logarithm(self._bands(self._powers(*self._transformed(z[0::2], z[1::2]))))
        if self.cosines is None:
            return np.asarray(bands.T)
        out: Float32s = np.zeros((self.outputs, count), np.float32)
        for band, row in zip(bands, self.cosines, strict=True):
            out += band * row[:, None]
        return np.asarray(out.T)

    def _emphasized(self, frames: Float32s) -> Float32s:
        if self.emphasis is None:
            return frames
        differences, sums = frames - frames[0], np.zeros((4, frames.shape[1]), np.float32)
        for first in range(0, len(frames), 4):
            part = differences[first : first + 4]
            sums[: len(part)] += part
        centred = frames - (frames[0] + ((sums[0] + sums[1]) + (sums[2] + sums[3])) / np.float32(len(frames)))
        before = np.concatenate([centred[:1], centred[:-1]])
        return np.asarray(centred - before * np.float32(self.emphasis))

    def _transformed(self, re: Float32s, im: Float32s) -> Complex:
        left, stride = self.half, 1
        for radix, table, roots in zip(map(int, self.radices), self.twiddles, self.roots, strict=True):
            groups = left // radix
            shape = radix, groups, stride, -1
            x = list(zip(re.reshape(shape), im.reshape(shape), strict=True))
            for k, each in enumerate(_butterfly(x, roots)):
                turned = each if k == 0 or groups == 1 else _times(each, table[:, None, None, k - 1, :])
                x[k] = turned
            re, im = (np.stack([each[part] for each in x], 1).reshape(self.half, -1) for part in (0, 1))
            left, stride = groups, stride * radix
        return re, im

    def _powers(self, re: Float32s, im: Float32s) -> Float32s:
        """Return four times the squared magnitudes of the real transform, (half + 1, frames)."""
        k = np.arange(self.half // 2 + 1)
        opposite = np.where(k, self.half - k, 0)
        total = re[k] + re[opposite], im[k] - im[opposite]
        turned = _times((re[k] - re[opposite], im[k] + im[opposite]), self.unpacking[k][:, None, :])
        out = np.empty((self.half + 1, re.shape[1]), np.float32)
        for sign, bins in ((1, k), (-1, self.half - k)):
            a, b = total[0] + sign * turned[0], total[1] + sign * turned[1]
            out[bins] = a * a + b * b
        return out

    def _bands(self, power: Float32s) -> Float32s:
        """Add the bins of all bands up, the first ones, the second ones, and so on: (bands, frames)."""
        total = np.zeros((len(self.spans), power.shape[1]), np.float32)
        for nth in range(max(map(len, self.weights))):
            having = [number for number, weights in enumerate(self.weights) if nth < len(weights)]
            bins = [self.spans[number][0] + nth for number in having]
            total[having] += power[bins] * np.array([self.weights[number][nth] for number in having])[:, None]
        return np.where(total < self.floor, self.floor, total)


def logarithm(x: Float32s) -> Float32s:
    """Compute natural logarithms of normal numbers above 0 by Cephes' polynomial (logf), as the kernel does."""
    bits = x.view(np.int32)
    exponent = (bits >> 23) - np.int32(126)
    m = ((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)).view(np.float32)
    low = m < np.float32(0.707106781186547524)
    exponent -= low
    m = m + np.where(low, m, np.float32(0)) - np.float32(1)
    e, z = exponent.astype(np.float32), m * m
    y = m * np.float32(_POLYNOMIAL[0]) + np.float32(_POLYNOMIAL[1])
    for coefficient in _POLYNOMIAL[2:]:
        y = y * m + np.float32(coefficient)
    y = y * m * z
    y = y + e * np.float32(-2.12194440e-4)
    y = y - np.float32(0.5) * z
    return np.asarray(((m + y) + e * np.float32(0.693359375)) + (x - x))


_POLYNOMIAL = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_NONE = np.empty((0, 2), np.float32)


def _place(array: npt.NDArray[Any]) -> int:
    """Return the address of an array; 0 of an empty one."""
    return array.ctypes.data if array.size else 0


def _radices(size: int) -> list[int]:
    """Factor a transform's length: as many fours as there are, a two, then odd factors."""
    found, radix = list[int](), 4
    while size > 1:
        while size % radix == 0:
            found.append(radix)
            size //= radix
        radix = {4: 2, 2: 3}.get(radix, radix + 2)
    return found


def _units(turns: Any) -> Float32s:
    """Return e^(-2πi · turns) as pairs of float32, computed in float64 by the C library."""
    found = [cmath.exp(-2j * cmath.pi * float(turn)) for turn in np.ravel(turns)]
    return np.array([(each.real, each.imag) for each in found], np.float32).reshape(*np.shape(turns), 2)


def _span(row: Float32s) -> tuple[int, int]:
    """Return the first bin of a band and the one after its last; bands narrower than a bin may have none."""
    bins = np.flatnonzero(row)
    return (int(bins[0]), int(bins[-1]) + 1) if len(bins) else (0, 0)


def _times(a: Complex, w: Float32s) -> Complex:
    return a[0] * w[..., 0] - a[1] * w[..., 1], a[0] * w[..., 1] + a[1] * w[..., 0]


def _add(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _minus_i(a: Complex) -> Complex:
    return a[1], -a[0]


def _scaled(a: Complex, by: float) -> Complex:
    return a[0] * np.float32(by), a[1] * np.float32(by)


def _butterfly(x: list[Complex], roots: Float32s) -> list[Complex]:
    """Return the Fourier transform of a few values."""
    if len(x) == 2:
        return [_add(*x), _sub(*x)]
    if len(x) == 4:
        a, b, c = _add(x[0], x[2]), _sub(x[0], x[2]), _add(x[1], x[3])
        d = _minus_i(_sub(x[1], x[3]))
        return [_add(a, c), _add(b, d), _sub(a, c), _sub(b, d)]
    if len(x) == 5:
        return _butterfly5(x)
    out = []
    for k in range(len(x)):
        total = x[0]
        for j in range(1, len(x)):
            total = _add(total, _times(x[j], roots[j * k % len(x)]))
        out.append(total)
    return out


def _butterfly5(x: list[Complex]) -> list[Complex]:
    c1, c2, s1, s2 = 0.309016994374947424, -0.809016994374947424, 0.951056516295153572, 0.587785252292473129
    a, b, c, d = _add(x[1], x[4]), _add(x[2], x[3]), _sub(x[1], x[4]), _sub(x[2], x[3])
    e = _add(_add(x[0], _scaled(a, c1)), _scaled(b, c2))
    f = _add(_add(x[0], _scaled(a, c2)), _scaled(b, c1))
    g, h = _minus_i(_add(_scaled(c, s1), _scaled(d, s2))), _minus_i(_sub(_scaled(c, s2), _scaled(d, s1)))
    return [_add(_add(x[0], a), b), _add(e, g), _add(f, h), _sub(f, h), _sub(e, g)]
