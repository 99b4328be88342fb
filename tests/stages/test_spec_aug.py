"""Masks, substitutions and cuts of features: WeNet's bounds and distributions; the plan knows of them."""

import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import planned, raw_items, run
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.hashing import Draws
from uio_pipes.core.chain import Chain
from uio_pipes.core.origin import Origin
from uio_pipes.core.sample import Sample
from uio_pipes.stages.features.frames import SpecTrim

# spec_aug


FRAMES, BINS = 200, 40


def masked(root: Path, count: int, frames: int = FRAMES, **masks: Any) -> list[torch.Tensor]:
    """Features of ones after ``spec_aug``."""
    np.save(root / "ones.npy", np.ones((frames, BINS), np.float32))
    item = {"key": "a", "feat": str(root / "ones.npy"), "txt": "t"}
    loader = uio.Loader(uio.from_raw_list([item] * count).spec_aug(**masks).batch(250), failures="raise")
    return [one["feat"] for batch in loader for one in batch]


def runs(zero: torch.Tensor) -> list[int]:
    """Lengths of the runs of True."""
    text = "".join("x" if z else " " for z in zero.tolist())
    return [len(part) for part in text.split()]


def test_only_whole_frames_and_bins_are_masked(tmp_path: Path) -> None:
    for feat in masked(tmp_path, 50):
        zero = feat == 0
        time, freq = zero.all(1), zero.all(0)
        assert torch.equal(zero, time[:, None] | freq[None, :])
        assert set(feat.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize(("count", "longest"), [(0, 5), (1, 1), (1, 20), (2, 10), (3, 7)])
def test_masks_are_as_many_and_as_long_as_told(tmp_path: Path, count: int, longest: int) -> None:
    none = {"num_t_mask": 0, "num_f_mask": 0}
    for feat in masked(tmp_path, 100, **{**none, "num_t_mask": count, "max_t": longest}):
        lengths = runs((feat == 0).all(1))
        assert len(lengths) <= count
        assert sum(lengths) <= count * longest
        assert not (feat == 0).all(0).any()
        assert (count == 0) == (lengths == [])
    for feat in masked(tmp_path, 100, **{**none, "num_f_mask": count, "max_f": longest}):
        lengths = runs((feat == 0).all(0))
        assert len(lengths) <= count
        assert sum(lengths) <= count * longest
        assert (count == 0) == (lengths == [])


@pytest.mark.parametrize(
    ("axis", "size", "masks"),
    [
        (1, 20, {"num_t_mask": 1, "num_f_mask": 0, "max_t": 4}),
        (0, BINS, {"num_t_mask": 0, "num_f_mask": 1, "max_f": 4}),
    ],
    ids=["time", "frequency"],
)
def test_lengths_and_starts_are_uniform_and_cut_off_at_the_end(
    tmp_path: Path, axis: int, size: int, masks: dict[str, int]
) -> None:
    """One mask of 1 … 4 on 20 frames or 40 bins: each (start, length) pair is as likely, as WeNet draws them."""
    counts: Counter[tuple[int, int]] = Counter()
    for feat in masked(tmp_path, 2000, frames=20, **masks):
        zero = (feat == 0).all(axis).nonzero().flatten().tolist()
        counts[zero[0], len(zero)] += 1
    chances: Counter[tuple[int, int]] = Counter()
    for start in range(size):
        for length in range(1, 5):
            chances[start, min(length, size - start)] += 1
    assert set(counts) == set(chances)
    each = 2000 / (4 * size)
    chi_squared = sum((counts[x] - each * n) ** 2 / (each * n) for x, n in chances.items())
    assert chi_squared < len(chances) + 4 * (2 * len(chances)) ** 0.5


def test_wenet_s_defaults(tmp_path: Path) -> None:
    feats = masked(tmp_path, 300)
    time = [sum(runs((f == 0).all(1))) for f in feats]
    freq = [sum(runs((f == 0).all(0))) for f in feats]
    assert max(time) > 50
    assert max(time) <= 100
    assert max(freq) > 10
    assert max(freq) <= 20
    assert 40 < sum(time) / 300 < 52
    assert 9 < sum(freq) / 300 < 11.5


@pytest.mark.parametrize("frames", [1, 2, 5])
@pytest.mark.parametrize("stage", [uio.Pipeline.spec_aug, uio.Pipeline.spec_sub, uio.Pipeline.spec_trim])
def test_short_features(stage: Any, frames: int) -> None:
    rows = [{"key": f"{i}", "feat": torch.ones(frames, 40), "txt": ""} for i in range(50)]
    out, _ = run(stage(uio.from_iterable(rows)), failures="raise")
    assert all(0 < len(sample["feat"]) <= frames for sample in out)
    if stage is not uio.Pipeline.spec_trim:
        assert {sample["feat"].shape for sample in out} == {(frames, 40)}


# spec_sub


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
    counts = Counter(substituted(tmp_path, 2000, frames, max_t=max_t, num_t_sub=1))
    assert set(counts) <= set(chances)
    chi_squared = sum((counts[x] - 2000 * p) ** 2 / (2000 * p) for x, p in chances.items())
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


# spec_trim


def left(frames: int, seed: int, max_t: int) -> int:
    """Frames that are left of ``frames``; they are the first ones."""
    feat = torch.arange(frames)[:, None]
    sample = Sample({"key": "a", "feat": feat}, Origin(0), b"", Chain())
    SpecTrim(max_t).apply(sample, Draws(seed))
    out = sample.fields["feat"]
    assert torch.equal(out, feat[: len(out)])
    return len(out)


def plan_of(frames: int | None, seed: int, max_t: int) -> Plan | None:
    sample = Sample({"key": "a"}, Origin(0), b"", Chain())
    return SpecTrim(max_t).plan(Plan(0, 100, frames), sample, Draws(seed))


@pytest.mark.parametrize(("frames", "max_t"), [(500, 20), (41, 20), (40, 20), (23, 20), (2, 5), (1, 20), (90, 7)])
def test_distributed_as_wenet_s(frames: int, max_t: int) -> None:
    """1 … max_t frames with equal chances; a draw of half the frames or more cuts nothing."""
    counts = Counter(left(frames, seed * 977, max_t) for seed in range(4000))
    chances = Counter(frames - cut if cut < frames / 2 else frames for cut in range(1, max_t + 1))
    assert set(counts) == set(chances)
    chi_squared = sum((counts[x] - 4000 * n / max_t) ** 2 / (4000 * n / max_t) for x, n in chances.items())
    assert chi_squared < len(chances) + 4 * (2 * len(chances)) ** 0.5


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 2**64 - 1), st.integers(1, 90))
def test_the_plan_is_never_below_what_is_left(frames: int, fewer: int, seed: int, max_t: int) -> None:
    """Of as many frames as planned, and of fewer (a duration rounded up)."""
    plan = plan_of(frames, seed, max_t)
    assert plan is not None
    assert plan.frames is not None
    assert plan.frames <= frames
    assert left(max(1, frames - fewer), seed, max_t) <= plan.frames


@given(st.integers(1, 30), st.integers(0, 300), st.integers(0, 2**64 - 1))
def test_the_plan_is_exact_from_three_times_max_t_frames_on(max_t: int, more: int, seed: int) -> None:
    plan = plan_of(3 * max_t + more, seed, max_t)
    assert plan is not None
    assert plan.frames == left(3 * max_t + more, seed, max_t)


def test_audio_without_features_keeps_its_plan() -> None:
    assert plan_of(None, 1, 20) == Plan(0, 100, None)


@pytest.mark.parametrize("by_duration", [False, True])
def test_batches_are_planned_with_what_is_left(tmp_path: Path, by_duration: bool) -> None:
    items = raw_items(tmp_path, 30, samples=8000)
    for i, item in enumerate(items):
        item |= {"duration": 1.0001 + 0.01 * (i % 10)} if by_duration else {}
    graph = uio.from_raw_list(items).decode_audio().fbank(20)
    whole = {b["key"]: len(b["feat"]) for b in run(graph)[0]}
    plans, samples = planned(graph.spec_trim())
    real = {s["key"]: len(s["feat"]) for s in samples}
    assert len(real) == 30
    assert len({whole[k] - n for k, n in real.items()}) > 8
    assert all(1 <= whole[k] - n <= 20 for k, n in real.items())
    assert all(plan.sample_rate == (TICKS if by_duration else 8000) for plan in plans.values())
    assert all(plans[k].frames - n in ((0, 1, 2) if by_duration else (0,)) for k, n in real.items())
