"""SpecAugment's masks: within WeNet's bounds, distributed as WeNet's; of short features, too."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import run

import uio_pipes as uio

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
    for feat in masked(tmp_path, 4000, frames=20, **masks):
        zero = (feat == 0).all(axis).nonzero().flatten().tolist()
        counts[zero[0], len(zero)] += 1
    chances: Counter[tuple[int, int]] = Counter()
    for start in range(size):
        for length in range(1, 5):
            chances[start, min(length, size - start)] += 1
    assert set(counts) == set(chances)
    each = 4000 / (4 * size)
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


def test_the_file_s_own_array_is_not_written_to(tmp_path: Path) -> None:
    """Two copies of one utterance by flat_map are masked apart."""
    np.save(tmp_path / "ones.npy", np.ones((50, BINS), np.float32))
    item = {"key": "a", "feat": str(tmp_path / "ones.npy"), "txt": "t"}

    def twice(sample: uio.Sample) -> list[uio.Sample]:
        assert sample["feat"].all()
        return [sample, sample]

    batches, _ = run(uio.from_raw_list([item]).flat_map(twice).spec_aug(max_t=5), failures="raise")
    a, b = (batch["feat"] == 0 for batch in batches)
    assert a.any()
    assert b.any()
    assert not torch.equal(a, b)
    assert len(runs(a.all(1))) <= 2
    assert len(runs(b.all(1))) <= 2


@pytest.mark.parametrize("frames", [1, 2, 5])
@pytest.mark.parametrize("stage", [uio.Pipeline.spec_aug, uio.Pipeline.spec_sub, uio.Pipeline.spec_trim])
def test_short_features(stage: Any, frames: int) -> None:
    rows = [{"key": f"{i}", "feat": torch.ones(frames, 40), "txt": ""} for i in range(50)]
    out, _ = run(stage(uio.from_iterable(rows)), failures="raise")
    assert all(0 < len(sample["feat"]) <= frames for sample in out)
    if stage is not uio.Pipeline.spec_trim:
        assert {sample["feat"].shape for sample in out} == {(frames, 40)}
