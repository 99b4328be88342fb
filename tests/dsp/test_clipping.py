"""Clipping by its definition."""

import pytest
import torch

from uio_pipes.dsp.effects import clip

WAV = torch.tensor([[0.5, -0.25, 0.1, 0.01], [-0.4, 0.2, 0.0, -0.01]])


def test_hard_cuts_off_what_is_above() -> None:
    out = clip(WAV, 20 * 0.30103, hard=True)  # a factor of 2: above half of the peak
    assert torch.allclose(out, WAV.clamp(-0.25, 0.25), atol=1e-6)


def test_soft_saturates_and_leaves_small_samples() -> None:
    out = clip(WAV, 6.0, hard=False)
    limit = 0.5 / 10 ** (6 / 20)
    assert torch.allclose(out, limit * torch.tanh(WAV / limit), atol=1e-7)
    assert torch.allclose(out[:, 3], WAV[:, 3], rtol=0.01)
    assert float(out.abs().max()) < limit


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1000.0])
def test_level_does_not_matter(hard: bool, scale: float) -> None:
    assert torch.allclose(clip(WAV * scale, 9.0, hard) / scale, clip(WAV, 9.0, hard), atol=1e-6)


def test_at_0_db_hard_changes_nothing_and_silence_stays() -> None:
    assert torch.equal(clip(WAV, 0.0, hard=True), WAV)
    for hard in (True, False):
        assert torch.equal(clip(torch.zeros(1, 5), 9.0, hard), torch.zeros(1, 5))
