"""Frames cut from the end: WeNet's rule and distribution; the plan knows of it."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from corpus import Corpus
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


def test_dynamic_batches_count_what_is_left(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(feature_corpus.list).spec_trim(60).dynamic_batch(max_frames=500).pad()
    batches, loader = run(graph, failures="raise")
    assert sum(len(b["keys"]) for b in batches) == len(feature_corpus.keys)
    assert max(b["feats"].shape[0] * b["feats"].shape[1] for b in batches) <= 500
    assert loader.stats().skipped == {}
