"""Differences over time: torchaudio's numbers, order, edges."""

from pathlib import Path

import pytest
import torch
import torchaudio.functional
from corpus import Corpus
from helpers_bad import raw_items, run

import uio_pipes as uio
from uio_pipes.dsp.features import append_deltas


def expected(feat: torch.Tensor, order: int, win_length: int) -> torch.Tensor:
    parts = [feat.T]
    for _ in range(order):
        parts.append(torchaudio.functional.compute_deltas(parts[-1], win_length))
    return torch.cat(parts).T


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 300])
@pytest.mark.parametrize("win_length", [3, 5, 9])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_equal_to_torchaudio(frames: int, win_length: int, order: int) -> None:
    feat = 10 * torch.randn(frames, 7, generator=torch.Generator().manual_seed(frames))
    got = append_deltas(feat, order, win_length)
    assert got.shape == (frames, 7 * (order + 1))
    assert torch.equal(got[:, :7], feat)
    assert (got - expected(feat, order, win_length)).abs().max() < 1e-4


def test_of_a_ramp_is_its_slope_inside_and_less_at_the_edges() -> None:
    """By hand, win_length 5: (1 · 1 + 2 · 2) · 2 / 10 = 1; at frame 0: (1 · (1 - 0) + 2 · (2 - 0)) / 10."""
    got = append_deltas(torch.arange(8.0)[:, None], 1, 5)[:, 1]
    assert got.tolist() == pytest.approx([0.5, 0.8, 1, 1, 1, 1, 0.8, 0.5])
    assert not append_deltas(torch.ones(5, 3), 2, 5)[:, 3:].any()


def test_kaldi_s_39_dimensions(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().mfcc(num_ceps=13)
    plain, _ = run(graph, failures="raise")
    for a, b in zip(plain, run(graph.deltas(), failures="raise")[0], strict=True):
        assert b["feat"].shape[1] == 39
        assert (b["feat"] - expected(a["feat"], 2, 5)).abs().max() < 1e-4


def test_precomputed_features(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(feature_corpus.list)
    for a, b in zip(run(graph)[0], run(graph.deltas(order=1, win_length=3))[0], strict=True):
        assert (b["feat"] - expected(a["feat"], 1, 3)).abs().max() < 1e-4
