"""The filter bank as a module: the loader's features, of a padded batch at once."""

from __future__ import annotations

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
            torch.testing.assert_close(got[:frames], kernel(row[:samples], rate), atol=1e-4, rtol=0)
        assert not got[frames:].any()


def test_a_compiled_module_gives_the_same() -> None:
    pcm, lengths = batch([16_000, 9_000])
    module = FbankModule(80)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(compiled(pcm, lengths), module(pcm, lengths), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


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


def test_wrong_values_are_refused() -> None:
    with pytest.raises(uio.PipelineError, match="num_mel_bins"):
        FbankModule(2)
