"""Random pieces: never longer than wanted or planned, every place as likely as any other."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from corpus import Corpus
from helpers_bad import raw_items, run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.length import TICKS, Plan
from uio_pipes.base.hashing import Draws
from uio_pipes.core.chain import Chain
from uio_pipes.core.origin import Origin
from uio_pipes.core.sample import Sample
from uio_pipes.stages.utterances.segment_runs import RandomCrop


def test_every_position_is_about_equally_often(tmp_path: Path) -> None:
    """1 600 samples cropped to 1 591: ten positions. Chi-squared with 9 degrees of freedom, 99.9 % quantile 27.9."""
    items = raw_items(tmp_path, 1) * 1000
    (whole,), _ = run(uio.from_raw_list(items[:1]).decode_audio())
    pieces = {whole["wav"][0, i : i + 1591].numpy().tobytes(): i for i in range(10)}
    batches, _ = run(uio.from_raw_list(items).decode_audio().random_crop(max_seconds=1591 / 8000))
    counts = Counter(pieces[b["wav"][0].numpy().tobytes()] for b in batches)
    assert sorted(counts) == list(range(10))
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 27.9


def test_what_is_shorter_stays_as_it_is(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 4)
    plain, _ = run(uio.from_raw_list(items).decode_audio())
    same, _ = run(uio.from_raw_list(items).decode_audio().random_crop(max_seconds=2))
    assert all(torch.equal(a["wav"], b["wav"]) for a, b in zip(plain, same, strict=True))


def test_piece_is_memory_of_its_own(tmp_path: Path) -> None:
    (batch,), _ = run(uio.from_raw_list(raw_items(tmp_path, 1)).decode_audio().random_crop(max_seconds=0.01))
    assert batch["wav"].untyped_storage().nbytes() == 80 * 4


@pytest.mark.parametrize("most", [1, 30, 10_000])
def test_precomputed_features_are_cropped(feature_corpus: Corpus, most: int) -> None:
    plain, _ = run(uio.from_shard_list(feature_corpus.list))
    cropped, _ = run(uio.from_shard_list(feature_corpus.list).random_crop(max_frames=most), failures="raise")
    assert len(cropped) == len(plain) > 3
    for whole, part in zip(plain, cropped, strict=True):
        frames = min(most, len(whole["feat"]))
        assert part["feat"].shape == (frames, 6)
        starts = range(len(whole["feat"]) - frames + 1)
        assert any(torch.equal(part["feat"], whole["feat"][i : i + frames]) for i in starts)


def lazy(wav: torch.Tensor, rate: int) -> Sample:
    return Sample({"key": "k", "wav": wav, "sample_rate": rate}, Origin(0), b"", Chain())


@settings(max_examples=300)
@given(
    st.integers(1, 5000),
    st.sampled_from([8000, 11_025, 16_000, 44_100]),
    st.floats(0.0001, 0.7),
    st.booleans(),
    st.integers(0, 2**64 - 1),
)
def test_plan_is_never_below_what_comes_out(samples: int, rate: int, seconds: float, ticks: bool, seed: int) -> None:
    stage = RandomCrop(max_seconds=seconds)
    before = Plan(-(-samples * TICKS // rate), TICKS) if ticks else Plan(samples, rate)
    sample = lazy(torch.arange(samples)[None].float(), rate)
    plan = stage.plan(before, sample, Draws(seed))
    assert plan is not None
    stage.apply(sample, Draws(seed))
    made = sample.fields["wav"].shape[1]
    assert made == min(samples, max(1, round(seconds * rate)))
    assert made * plan.sample_rate <= plan.samples * rate
    if not ticks:
        assert made == plan.samples


@pytest.mark.parametrize("sorts", [False, True])
def test_frames_of_waveforms_stop_the_run(tmp_path: Path, sorts: bool) -> None:
    wrong = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().random_crop(max_frames=5)
    with pytest.raises(uio.PipelineError, match="max_seconds crops waveforms, before features"):
        run(wrong.sort(2) if sorts else wrong)
