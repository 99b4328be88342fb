"""Expects a failure by its reason: the words of its message stand in one table (``sources/test_messages.py``)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import uio_pipes as uio


@contextmanager
def fails_as(reason: str) -> Iterator[pytest.ExceptionInfo[uio.DataError]]:
    """Expect a DataError with this reason."""
    with pytest.raises(uio.DataError) as raised:
        yield raised
    assert raised.value.reason == reason
