"""The memory of batches is used again, but never while anybody refers to it."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.core import realize
from uio_pipes.core.realize import KEPT, SMALL

SIZES = st.lists(st.tuples(st.integers(SMALL // 4, SMALL), st.integers(0, 3)), max_size=30)


@pytest.fixture(autouse=True)
def own_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(realize, "_make", realize._Reused().empty)
    yield
    gc.collect()


def test_a_batch_takes_the_place_of_one_that_nobody_has_any_more() -> None:
    first = realize.empty((SMALL, 2), torch.float32)
    place = first.data_ptr()
    assert place % 64 == 0
    view = first[3:, 1]
    del first
    assert realize.empty((SMALL, 2), torch.float32).data_ptr() != place, "a view of it is left"
    del view
    found = {realize.empty((SMALL, 2), torch.float32).data_ptr() for _ in range(KEPT)}
    assert place in found


@given(st.integers(SMALL, 1 << 24))
def test_blocks_are_aligned_and_little_larger_than_asked_for(size: int) -> None:
    block = realize._block(size)
    assert block.ctypes.data % realize.ALIGNED == 0
    assert size <= len(block) <= size * 1.25 + realize.ALIGNED


def test_a_batch_that_is_a_little_larger_fits_into_the_same_memory() -> None:
    sizes = range(1_900_000, 1_920_000, 4_000)  # floats, of 7.6 MB
    assert len({realize.empty((size,), torch.float32).data_ptr() for size in sizes}) == 1


@given(SIZES)
def test_what_is_held_never_changes(sizes: list[tuple[int, int]]) -> None:
    held: list[tuple[torch.Tensor, int]] = []
    for number, (size, let_go) in enumerate(sizes):
        tensor = realize.empty((size,), torch.int64)
        tensor.fill_(number)
        held.append((tensor if number % 2 else tensor[1:].view(1, -1), number))
        del held[:let_go]
        assert all(bool((one == n).all()) for one, n in held)


def test_types_and_shapes() -> None:
    for dtype in (torch.float32, torch.int64):
        made = realize.empty((3, SMALL, 2), dtype)
        assert (made.dtype, made.shape, made.is_contiguous()) == (dtype, (3, SMALL, 2), True)
        np.testing.assert_array_equal(made.zero_().numpy(), 0)
