"""Frames put together, compared with FunASR's own way of doing it, frame by frame."""

import torch
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio


def low_frame_rate(feat: torch.Tensor, m: int, n: int) -> torch.Tensor:
    """What FunASR documents for ``lfr_m`` and ``lfr_n``: m frames around each n-th, the ends repeated."""
    rows = []
    for i in range(-(-len(feat) // n)):
        numbers = [i * n + j - (m - 1) // 2 for j in range(m)]
        rows.append(torch.cat([feat[min(max(number, 0), len(feat) - 1)] for number in numbers]))
    return torch.stack(rows)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_each_frame_is_those_around_it(length: int, m: int, n: int) -> None:
    feat = torch.arange(length * 3, dtype=torch.float32).reshape(length, 3)
    (sample,) = uio.Loader(uio.from_iterable([{"key": "a", "feat": feat}]).stack(m, n))
    assert torch.equal(sample["feat"], low_frame_rate(feat, m, n))
