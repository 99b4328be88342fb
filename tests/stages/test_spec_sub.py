"""Substitution of spans: WeNet's bounds and distribution."""

import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import Corpus
from helpers_bad import run

import uio_pipes as uio


def substituted(root: Path, count: int, frames: int, **options: Any) -> list[tuple[int, ...]]:
    """``count`` times the features 0, 1, 2, … (frame numbers) after ``spec_sub``: where each frame came from."""
    np.save(root / "ramp.npy", np.repeat(np.arange(frames, dtype=np.float32)[:, None], 2, 1))
    item = {"key": "a", "feat": str(root / "ramp.npy"), "txt": "t"}
    loader = uio.Loader(uio.from_raw_list([item] * count).spec_sub(**options).batch(250), failures="raise")
    feats = [one["feat"] for batch in loader for one in batch]
    assert all(torch.equal(f[:, 0], f[:, 1]) for f in feats), "whole frames"
    return [tuple(f[:, 0].int().tolist()) for f in feats]


def outcome(frames: int, start: int, length: int, back: int) -> tuple[int, ...]:
    """Return the origin of each frame after one substitution."""
    return tuple(t - back if start <= t < min(frames, start + length) else t for t in range(frames))


@pytest.mark.parametrize(("frames", "max_t"), [(6, 3), (4, 9), (1, 20)])
def test_one_substitution_is_distributed_as_wenet_s(tmp_path: Path, frames: int, max_t: int) -> None:
    """Start over all frames, length over 1 … max_t, distance over 0 … start: every outcome as often as it should be."""
    chances: Counter[tuple[int, ...]] = Counter()
    for start, length in product(range(frames), range(1, max_t + 1)):
        for back in range(start + 1):
            chances[outcome(frames, start, length, back)] += 1 / (frames * max_t * (start + 1))  # type: ignore[assignment]
    counts = Counter(substituted(tmp_path, 4000, frames, max_t=max_t, num_t_sub=1))
    assert set(counts) <= set(chances)
    chi_squared = sum((counts[x] - 4000 * p) ** 2 / (4000 * p) for x, p in chances.items())
    assert chi_squared < len(chances) + 4 * (2 * len(chances)) ** 0.5


def slow(frames: int, max_t: int, num_t_sub: int, rng: random.Random) -> list[int]:
    """U2++'s SpecSub frame by frame, with Python's own random numbers."""
    out = list(range(frames))
    for _ in range(num_t_sub):
        start, length = rng.randint(0, frames - 1), rng.randint(1, max_t)
        back = rng.randint(0, start)
        for t in range(start, min(frames, start + length)):
            out[t] = t - back  # of the original, not of what was substituted before
    return out


def test_wenet_s_defaults_change_as_much_as_a_slow_reference(tmp_path: Path) -> None:
    frames, count = 120, 1500
    got = np.array(substituted(tmp_path, count, frames))
    rng = random.Random(0)
    want = np.array([slow(frames, 20, 3, rng) for _ in range(count)])
    position = np.arange(frames)
    assert (got <= position).all()
    assert (got >= 0).all()
    assert (got != position).sum(1).max() <= 60
    for statistic in (lambda x: (x != position).mean(1), lambda x: (position - x).mean(1)):
        a, b = statistic(got), statistic(want)
        assert abs(a.mean() - b.mean()) < 4 * np.hypot(a.std(), b.std()) / count**0.5
        assert abs(a.std() - b.std()) < 0.15 * b.std()
    by_frame = np.abs((got != position).mean(0) - (want != position).mean(0))
    assert by_frame.max() < 5 * (2 * 0.25 / count) ** 0.5


def test_none_changes_nothing(tmp_path: Path) -> None:
    assert set(substituted(tmp_path, 5, 9, num_t_sub=0)) == {tuple(range(9))}


def test_precomputed_features_keep_their_length_and_values(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(feature_corpus.list)
    changed = 0
    for a, b in zip(run(graph)[0], run(graph.spec_sub())[0], strict=True):
        assert a["feat"].shape == b["feat"].shape
        rows = {tuple(row) for row in a["feat"].tolist()}
        assert {tuple(row) for row in b["feat"].tolist()} <= rows
        changed += not torch.equal(a["feat"], b["feat"])
    assert changed > 15
