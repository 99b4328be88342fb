"""Features, normalization and masks of packed batches on the device: those of the loader, and nothing elsewhere."""

from typing import Any

import numpy as np
import pytest
import torch

import uio_pipes as uio

SAMPLES = [4_000, 401, 9_999, 400, 6_400, 1_234, 399]
STATS = {"mean_stat": [30.0] * 8, "var_stat": [100.0] * 8, "frame_num": 10}
Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def batch(**options: Any) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    items = [
        {"key": f"{i}", "wav": draw.uniform(-0.5, 0.5, n).astype(np.float32), "sample_rate": 16_000}
        for i, n in enumerate(SAMPLES)
    ]
    return next(iter(uio.Loader(uio.from_iterable(items).pack(max_frames=200, **options))))


def features(**options: Any) -> Packed:
    packed = batch(**options)
    return uio.FbankModule(8).packed(packed["pcm"], packed["pcm_lengths"], packed["cu_seqlens"])


@pytest.mark.parametrize(
    "options", [{}, {"fixed": True}, {"multiple_of": 8}, {"multiple_of": 8, "fixed": True}], ids=str
)
def test_packed_features_are_those_of_a_padded_batch(options: dict[str, Any]) -> None:
    packed = batch(**options)
    feats, lengths, begins = features(**options)
    rows = [packed["pcm"][at:][:n] for at, n in zip(packed["cu_seqlens"], packed["pcm_lengths"], strict=False)]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    wanted, wanted_lengths = uio.FbankModule(8)(padded, packed["pcm_lengths"])
    assert torch.equal(lengths, wanted_lengths)
    assert (begins.dtype, int(begins[-1])) == (torch.int32, len(packed["pcm"]) // 160)
    assert not (begins[: len(rows)] % options.get("multiple_of", 1)).any()
    rest = feats.clone()
    for at, length, row in zip(begins, lengths, wanted, strict=False):
        torch.testing.assert_close(feats[at : at + length], row[:length], atol=1e-5, rtol=0)
        rest[at : at + length] = 0
    assert not rest.any()


def test_normalization_is_the_stage_s_and_leaves_padding_alone() -> None:
    feats, lengths, begins = features(multiple_of=8)
    made = uio.CmvnModule(STATS)(feats, lengths, begins)
    own = [feats[at:][:n] for at, n in zip(begins, lengths, strict=False) if n]
    samples = [{"key": "a", "feat": one} for one in own]
    rest = made.clone()
    wanted = [sample["feat"] for sample in uio.Loader(uio.from_iterable(samples).global_cmvn(STATS))]
    for (at, n), row in zip([one for one in zip(begins, lengths, strict=False) if one[1]], wanted, strict=True):
        torch.testing.assert_close(made[at : at + n], row)
        rest[at : at + n] = 0
    assert not rest.any()
    padded = torch.nn.utils.rnn.pad_sequence(own, batch_first=True)
    normalized = uio.CmvnModule(STATS, norm_var=False)(padded, lengths[lengths > 0])
    assert normalized[0, 0].tolist() == (padded[0, 0] - 3).tolist()
    assert not normalized[1, 1:].any()


def test_masks_are_drawn_for_each_utterance_within_it() -> None:
    module = uio.SpecAugModule(num_t_mask=1, num_f_mask=1, max_t=3, max_f=2)
    begins = torch.tensor([0, 40, 80, 81, 128, 160], dtype=torch.int32)  # the last segments are padding
    lengths = torch.tensor([40, 33, 1], dtype=torch.int32)
    feats = torch.ones(160, 8)
    drawn = set()
    for _ in range(200):
        hidden = module(feats, lengths, begins) == 0
        for at, length in zip(begins.tolist(), lengths.tolist(), strict=False):
            rows, bins = (hidden[at : at + length].all(axis).nonzero().flatten().tolist() for axis in (1, 0))
            if length > 1:
                assert 1 <= len(rows) <= 3
                assert 1 <= len(bins) <= 2
                assert (rows, bins) == (list(range(rows[0], rows[-1] + 1)), list(range(bins[0], bins[-1] + 1)))
                drawn.add((at, rows[0], bins[0]))
    assert len(drawn) > 250, "each utterance has its own"
    assert torch.equal(module.eval()(feats, lengths, begins), feats)
    twice = uio.SpecAugModule()(torch.ones(2, 90, 8), torch.tensor([90, 50]))
    assert (twice[0] != twice[1]).any(), "of a padded batch, too"


def test_what_does_not_fit_is_refused() -> None:
    feats, lengths, begins = features()
    with pytest.raises(uio.PipelineError, match=r"SpecAugModule: feats must be \(B, T, F\), or \(R, F\) together with"):
        uio.SpecAugModule()(feats, lengths)
    with pytest.raises(uio.PipelineError, match="the statistics are of 8 bins, the features have 4; compute"):
        uio.CmvnModule(STATS)(feats[:, :4], lengths, begins)
    with pytest.raises(uio.PipelineError, match="SpecAugModule: max_t must be a whole number, 1 or more, not 0"):
        uio.SpecAugModule(max_t=0)
    with pytest.raises(uio.PipelineError, match=r"of shape \(S,\), not torch.int16"):
        uio.FbankModule().packed(torch.zeros(900, dtype=torch.int16), lengths, begins)
    with pytest.raises(uio.PipelineError, match="need frame_length ≥ frame_shift; raise frame_length"):
        uio.FbankModule(frame_length=5.0).packed(torch.zeros(900), lengths, begins)


@pytest.mark.slow
def test_compiled_modules_take_any_shape() -> None:
    fbank, cmvn = uio.FbankModule(8), uio.CmvnModule(STATS)

    def front(pcm: torch.Tensor, lengths: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
        feats, feats_lengths, begins = fbank.packed(pcm, lengths, begins)
        made: torch.Tensor = cmvn(feats, feats_lengths, begins)
        return made

    compiled = torch.compile(front, fullgraph=True, dynamic=True, backend="aot_eager")
    for options in ({}, {"multiple_of": 8}, {"fixed": True}):
        one = batch(**options)
        given = one["pcm"], one["pcm_lengths"], one["cu_seqlens"]
        torch.testing.assert_close(compiled(*given), front(*given), atol=1e-5, rtol=0)
