"""Columns of whole numbers as strings: they come back as they were, and strings of another kind are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.base.hashing import pack, unpack


@given(st.lists(st.integers(0, 2**32 - 1)) | st.lists(st.integers(0, 2**16 - 1)))
def test_numbers_come_back(column: list[int]) -> None:
    assert unpack(pack(column)) == column
    assert pack(iter(column)) == pack(column)


@pytest.mark.parametrize(
    ("column", "text"), [([], "H"), ([0, 1, 65535], "HAAABAP//"), ([65536], "IAAABAA=="), ([2**32 - 1], "I/////w==")]
)
def test_strings_of_saved_states_never_change(column: list[int], text: str) -> None:
    assert pack(column) == text
    assert unpack(text) == column


@pytest.mark.parametrize("number", [-1, 2**32])
def test_numbers_that_do_not_fit_are_not_cut(number: int) -> None:
    with pytest.raises(OverflowError):
        pack([number])


@pytest.mark.parametrize("text", ["", "Q", "AAAA", "HAAA", "HA", "H*AAA", "IAAAB", "H上", "h"])
def test_other_strings_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        unpack(text)


@given(st.text(max_size=20))
def test_any_string_is_a_column_or_refused(text: str) -> None:
    try:
        column = unpack(text)
    except ValueError:
        return
    assert all(0 <= number < 2**32 for number in column)
