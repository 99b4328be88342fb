"""The filter bank as a module: the loader's features, of a padded batch at once."""

import pytest
import torch

import uio_pipes as uio
from uio_pipes.dsp.fbank import Fbank, num_frames
from uio_pipes.dsp.fbank_module import FbankModule


def batch(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    pcm = torch.zeros(len(lengths), max(lengths))
    for row, length in zip(pcm, lengths, strict=True):
        row[:length] = torch.rand(length, generator=generator) - 0.5
    return pcm, torch.tensor(lengths, dtype=torch.int32)


@pytest.mark.parametrize(("bins", "rate", "window"), [(80, 16_000, "povey"), (40, 8_000, "hamming")])
def test_features_and_lengths_are_the_loader_s(bins: int, rate: int, window: str) -> None:
    pcm, lengths = batch([48_000, 399, 400, 17_777, 560])
    feats, feats_lengths = FbankModule(bins, rate, window_type=window)(pcm, lengths)
    kernel = Fbank(bins, window_type=window)
    for row, samples, got, frames in zip(pcm, lengths.tolist(), feats, feats_lengths.tolist(), strict=True):
        assert frames == num_frames(samples, rate)
        if frames:
            torch.testing.assert_close(got[:frames], kernel(row[:samples], rate), atol=1e-3, rtol=0)
        assert not got[frames:].any()


@pytest.mark.slow
def test_a_compiled_module_takes_any_shape() -> None:
    module = FbankModule(80)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in ([16_000, 9_000], [12_345, 400, 0], [399, 100]):
        for got, wanted in zip(compiled(*batch(lengths)), module(*batch(lengths)), strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_changes_nothing(dtype: torch.dtype, compiled: bool) -> None:
    module = FbankModule(80)
    called = torch.compile(module, fullgraph=True, backend="aot_eager") if compiled else module
    pcm, lengths = batch([16_000, 9_000])
    with torch.autocast("cpu", dtype=dtype):
        feats, _ = called(pcm, lengths)
    assert feats.dtype == torch.float32
    torch.testing.assert_close(feats, module(pcm, lengths)[0], atol=1e-5, rtol=0)


def test_a_model_in_bfloat16_keeps_it_in_float32() -> None:
    pcm, lengths = batch([16_000])
    model = torch.nn.Sequential(FbankModule(80)).to(torch.bfloat16)
    feats, _ = model[0](pcm, lengths)
    assert torch.equal(feats, FbankModule(80)(pcm, lengths)[0])


def test_utterances_under_one_window_have_no_frames() -> None:
    for lengths in ([399, 100], [0]):
        feats, feats_lengths = FbankModule(80)(*batch(lengths))
        assert feats.shape == (len(lengths), 0, 80)
        assert not feats_lengths.any()


def test_no_length_is_beyond_the_frames_there_are() -> None:
    feats, feats_lengths = FbankModule(80)(torch.zeros(2, 1_000), torch.tensor([1_000, 2_000]))
    assert feats_lengths.tolist() == [feats.shape[1]] * 2


def test_float64_is_taken_integers_and_other_shapes_are_not() -> None:
    pcm, lengths = batch([16_000])
    feats, _ = FbankModule(80)(pcm.double(), lengths)
    assert torch.equal(feats, FbankModule(80)(pcm, lengths)[0])
    for wrong in (torch.zeros(1, 16_000, dtype=torch.int16), pcm[0]):
        with pytest.raises(uio.PipelineError, match=r"floats in \[-1, 1\] of shape \(B, S\)"):
            FbankModule(80)(wrong, lengths)


def test_dither_is_drawn_in_training_only() -> None:
    pcm, lengths = batch([16_000])
    module = FbankModule(80, dither=1.0)

    def drawn(seed: int) -> torch.Tensor:
        return module(pcm, lengths, torch.Generator().manual_seed(seed))[0]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    module.eval()
    assert torch.equal(drawn(1), FbankModule(80)(pcm, lengths)[0])


def test_nothing_of_it_is_in_a_checkpoint() -> None:
    module = FbankModule(80)
    assert not module.state_dict()
    assert not list(module.parameters())
    assert "num_mel_bins=80" in repr(module)


def test_gradients_reach_the_waveform() -> None:
    pcm, lengths = batch([8_000])
    pcm.requires_grad_()
    FbankModule(80)(pcm, lengths)[0].sum().backward()
    assert pcm.grad is not None
    assert pcm.grad.isfinite().all()


def test_shapes_on_the_meta_device() -> None:
    feats, lengths = FbankModule(80).to("meta")(torch.empty(3, 16_000, device="meta"), torch.empty(3, device="meta"))
    assert (feats.shape, lengths.shape) == ((3, 98, 80), (3,))
