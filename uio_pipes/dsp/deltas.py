"""Differences over time, equal to ``torchaudio.functional.compute_deltas`` applied again and again."""

from __future__ import annotations

import torch


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
