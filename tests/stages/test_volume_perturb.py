"""Factors: drawn evenly between the bounds, the utterance's own, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers_bad import raw_items, run

import uio_pipes as uio


def factors(items: list[dict[str, Any]], *args: float, **options: Any) -> list[float]:
    plain, _ = run(uio.from_raw_list(items[:1]).decode_audio())
    batches, _ = run(uio.from_raw_list(items).decode_audio().volume_perturb(*args), **options)
    at = int(plain[0]["wav"].abs().argmax())
    return [float(b["wav"][0, at] / plain[0]["wav"][0, at]) for b in batches]


def test_factors_are_even_between_the_bounds(tmp_path: Path) -> None:
    """Kolmogorov and Smirnov's distance of 800 draws: below its 99.9 % quantile. Draws are hashes: no flakiness."""
    items = raw_items(tmp_path, 1) * 800
    drawn = sorted(factors(items))
    assert 0.125 <= drawn[0] < 0.14
    assert 1.98 < drawn[-1] <= 2.0
    distance = max(abs((f - 0.125) / 1.875 - i / 800) for i, f in enumerate(drawn))
    assert distance < 1.95 / 800**0.5


def test_draws_belong_to_seed_and_utterance(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 1) * 20
    first = factors(items)
    assert factors(items) == first
    assert factors(items, seed=1) != first
    assert factors(items[:5]) == first[:5]


def test_one_factor_for_the_whole_waveform_and_no_clipping(tmp_path: Path) -> None:
    (item,) = raw_items(tmp_path, 1)
    (plain,), _ = run(uio.from_raw_list([item]).decode_audio())
    (loud,), _ = run(uio.from_raw_list([item]).decode_audio().volume_perturb(30.0, 30.0))
    assert torch.equal(loud["wav"], plain["wav"] * 30)
    assert loud["wav"].abs().max() > 1


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_bounds_that_make_no_sense_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(uio.PipelineError, match="0 < low <= high"):
        uio.from_raw_list("x.list").decode_audio().volume_perturb(*bounds)
