"""SpecAugment's masks, drawn as WeNet draws them."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["apply_masks", "spec_aug_masks"]

Spans = list[tuple[int, int]]


def spec_aug_masks(
    draw: Callable[[int], int],
    frames: int,
    bins: int,
    num_t_mask: int = 2,
    num_f_mask: int = 2,
    max_t: int = 50,
    max_f: int = 10,
) -> tuple[Spans, Spans]:
    """Spans (start, end) to mask in time and in frequency; ``draw(n)`` is an integer in [0, n)."""
    return _spans(draw, frames, num_t_mask, max_t), _spans(draw, bins, num_f_mask, max_f)


def _spans(draw: Callable[[int], int], size: int, count: int, longest: int) -> Spans:
    spans = []
    for _ in range(count):
        start = draw(size)
        spans.append((start, min(size, start + 1 + draw(longest))))
    return spans


def apply_masks(feat: torch.Tensor, time: Spans, freq: Spans) -> torch.Tensor:
    """Set the spans of ``feat`` (T, F) to 0, in place."""
    view = feat.numpy()
    for start, end in time:
        view[start:end] = 0
    for start, end in freq:
        view[:, start:end] = 0
    return feat
