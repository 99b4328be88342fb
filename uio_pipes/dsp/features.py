"""Operations on features: mean and variance normalization, differences over time, SpecAugment masks."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from kaldiio.matio import read_kaldi

from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.json_text import parse_json
from uio_pipes.io.opening import open_binary

_VARIANCE_FLOOR = 1e-20  # Kaldi's and WeNet's


class Cmvn(NamedTuple):
    """Mean and 1 / standard deviation of each of the F bins, float32."""

    mean: npt.NDArray[np.float32]
    istd: npt.NDArray[np.float32]


def read_cmvn(path: str | os.PathLike[str]) -> Cmvn:
    """Read WeNet's JSON, or Kaldi's statistics, binary or text (``compute-cmvn-stats``), from a path or URL.

    JSON: ``{"mean_stat": F sums, "var_stat": F sums of squares, "frame_num": N}``. Kaldi: a matrix (2, F + 1) of the
    same, with N after the sums. Raises: ListError naming the file if it is missing or something else.
    """
    try:
        with open_binary(os.fspath(path)) as file:
            data = file.read()
        if data.startswith(b"\0B"):
            return _of_kaldi(_binary(data))
        text = data.decode("utf-8-sig")  # a UnicodeDecodeError is a ValueError
        return _of_json(parse_json(text)) if text.lstrip().startswith("{") else _of_kaldi(_text(text))
    except (ValueError, DataError, OSError) as error:
        raise ListError(
            f"{path} cannot be used for global_cmvn: {error}. It takes WeNet's JSON with mean_stat, var_stat and "
            "frame_num, or the matrix that Kaldi's compute-cmvn-stats writes"
        ) from error


def cmvn_of(stats: Mapping[str, Any]) -> Cmvn:
    """Return the statistics in the contents of WeNet's JSON. Raises: PipelineError if they are something else."""
    try:
        return _of_json(stats)
    except ValueError as error:
        raise PipelineError(
            f"global_cmvn: stats cannot be used: {error}; pass the path of, or the dict from, WeNet's global_cmvn JSON"
        ) from error


def _of_json(stats: Any) -> Cmvn:
    missing = {"mean_stat", "var_stat", "frame_num"} - set(stats)
    if missing:
        raise ValueError(f"it has no {' and no '.join(sorted(missing))}")
    try:
        sums, squares = (np.asarray(stats[name], np.float64) for name in ("mean_stat", "var_stat"))
        return _of_sums(sums, squares, float(stats["frame_num"]))
    except TypeError as error:
        raise ValueError(f"mean_stat, var_stat and frame_num should be numbers: {error}") from error


def _binary(data: bytes) -> npt.NDArray[Any]:
    stream = io.BytesIO(data)
    try:
        matrix = read_kaldi(stream)
    except Exception as error:  # kaldiio raises errors of many classes for damaged bytes
        raise ValueError(f"not a Kaldi matrix ({type(error).__name__}: {error})") from error
    if stream.read(1):
        raise ValueError("more data follow the matrix, but global statistics are a single one")
    return np.asarray(matrix)


def _text(text: str) -> npt.NDArray[np.float64]:
    """Parse the text ourselves: kaldiio reads it as float32 or int32, too coarse for sums."""
    head, opened, rest = text.partition("[")
    inside, closed, tail = rest.partition("]")
    if head.strip() or tail.strip() or not opened or not closed:
        raise ValueError("neither a JSON object nor a single Kaldi matrix in brackets")
    return np.array([line.split() for line in inside.splitlines() if line.strip()], np.float64)


def _of_kaldi(matrix: npt.NDArray[Any]) -> Cmvn:
    if matrix.ndim != 2 or len(matrix) != 2 or matrix.shape[1] < 2:
        raise ValueError(f"the matrix must be of 2 rows and bins + 1 columns, not of shape {matrix.shape}")
    matrix = matrix.astype(np.float64)
    return _of_sums(matrix[0, :-1], matrix[1, :-1], float(matrix[0, -1]))


def _of_sums(sums: npt.NDArray[np.float64], squares: npt.NDArray[np.float64], count: float) -> Cmvn:
    if sums.ndim != 1 or not len(sums) or sums.shape != squares.shape:
        raise ValueError(f"sums and sums of squares must be of one length, not of shapes {sums.shape}, {squares.shape}")
    if not (0 < count < np.inf and np.isfinite(sums).all() and np.isfinite(squares).all()):
        raise ValueError(f"it must contain finite numbers and more than 0 frames, not {count:g} frames")
    mean = sums / count
    variance = np.maximum(squares / count - mean * mean, _VARIANCE_FLOOR)
    return Cmvn(mean.astype(np.float32), (1 / np.sqrt(variance)).astype(np.float32))


def append_deltas(feat: torch.Tensor, order: int, win_length: int) -> torch.Tensor:
    """(T, F) float32 → (T, F · (order + 1)): the input and its differences of orders 1 … ``order``, side by side.

    d[t] = Σ n · (c[t + n] - c[t - n]) / (2 Σ n²), n = 1 … (win_length - 1) / 2; the first and last frames are repeated
    beyond the edges. ``win_length`` is odd and 3 or more.
    """
    frames, bins = feat.shape
    reach = win_length // 2
    scale = 1.0 / (2 * sum(n * n for n in range(1, reach + 1)))
    out = feat.new_empty(frames, bins * (order + 1))
    out[:, :bins] = feat
    padded = feat.new_empty(frames + 2 * reach, bins)
    middle = slice(reach, reach + frames)
    for i in range(1, order + 1):
        before = out[:, (i - 1) * bins : i * bins]
        padded[middle] = before
        padded[:reach], padded[reach + frames :] = before[:1], before[-1:]
        delta = out[:, i * bins : (i + 1) * bins]
        torch.sub(padded[reach + 1 :][:frames], padded[reach - 1 :][:frames], out=delta)
        for n in range(2, reach + 1):
            delta.add_(padded[reach + n :][:frames], alpha=n).sub_(padded[reach - n :][:frames], alpha=n)
        delta.mul_(scale)
    return out


_Spans = list[tuple[int, int]]


def spec_aug_masks(
    draw: Callable[[int], int],
    frames: int,
    bins: int,
    num_t_mask: int = 2,
    num_f_mask: int = 2,
    max_t: int = 50,
    max_f: int = 10,
) -> tuple[_Spans, _Spans]:
    """Draw spans (start, end) of frames and of bins to mask in features of ``frames`` × ``bins``, both above 0.

    ``draw(n)`` returns an integer in [0, n). Starts are uniform over the axis, lengths over 1 … ``max_t`` or ``max_f``,
    cut off at the end of the axis. The order of draws: start and length of each time mask, then of each frequency mask.
    """
    return _spans(draw, frames, num_t_mask, max_t), _spans(draw, bins, num_f_mask, max_f)


def apply_masks(feat: torch.Tensor, time: _Spans, freq: _Spans) -> torch.Tensor:
    """Set the masked frames and bins of ``feat`` (T, F) to 0, in place, and return it; the caller must own it."""
    values = feat.numpy()  # the same memory; assigning takes a tenth of the time in torch
    for start, end in time:
        values[start:end] = 0
    for start, end in freq:
        values[:, start:end] = 0
    return feat


def _spans(draw: Callable[[int], int], size: int, count: int, longest: int) -> _Spans:
    spans = []
    for _ in range(count):
        start = draw(size)
        spans.append((start, min(size, start + 1 + draw(longest))))
    return spans
