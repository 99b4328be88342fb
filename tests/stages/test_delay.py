"""``delay``: codes that come later, and the weight of each in the loss."""

from typing import Any

import pytest
import torch
from helpers_bad import run
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.hashing import Draws
from uio_pipes.core.chain import Chain
from uio_pipes.core.origin import Origin
from uio_pipes.core.sample import Sample
from uio_pipes.stages.features.frames import Delay


def delayed(codes: Any, *args: Any, **options: Any) -> tuple[list[list[int]], list[list[float]]]:
    sample = Sample({"feat": torch.as_tensor(codes)}, Origin(0), b"", Chain())
    Delay(*args, **options).apply(sample, Draws(0))
    assert (sample["feat"].dtype, sample["loss"].dtype) == (torch.int64, torch.float32)
    return sample["feat"].tolist(), sample["loss"].tolist()


def test_each_column_comes_later_by_its_delay() -> None:
    codes, loss = delayed([[5, 1, 1], [6, 2, 2], [7, 3, 3]], [0, 1, 2])
    assert codes == [[5, -1, -1], [6, 1, -1], [7, 2, 1]]
    assert loss == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_what_is_not_known_has_no_weight_and_padding_less_of_it() -> None:
    text = [[3, 8], [0, 8], [9, 8], [-1, 8]]
    _, loss = delayed(text, [0, 0], weights=[2, 0], text_padding_weight=0.5)
    assert loss == [[1, 0], [1, 0], [2, 0], [0, 0]]
    codes, loss = delayed(text, [1, 5], zero=99, text_padding=[9], text_padding_weight=0)
    assert codes == [[99, 99], [3, 99], [0, 99], [9, 99]]
    assert loss == [[0, 0], [1, 0], [1, 0], [0, 0]]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 8))
def test_nothing_changes_but_the_place(delays: list[int], frames: int) -> None:
    given = torch.arange(frames * len(delays)).view(frames, len(delays))
    codes, loss = delayed(given, delays)
    for column, delay in enumerate(delays):
        for frame in range(frames):
            came = int(given[frame - delay, column]) if frame >= delay else -1
            assert (codes[frame][column], loss[frame][column]) == (came, came >= 0)


def test_codes_of_one_codebook_are_one_column() -> None:
    assert delayed([4, 5], [1])[0] == [[-1], [4]]


@pytest.mark.parametrize("feat", [torch.ones(4, 3, dtype=torch.int64), torch.ones(4, 2)])
def test_columns_that_do_not_fit_are_told(feat: torch.Tensor) -> None:
    graph = uio.from_iterable([{"key": "K0", "feat": feat}]).delay([0, 1])
    with pytest.raises(
        uio.PipelineError, match=r"delay: there are 2 delays, but the feat of K0 has \d columns of torch"
    ):
        run(graph)
